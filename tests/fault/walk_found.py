"""What the random walk has found, each as a scenario of its own: the same world, one cause at a time."""
import os
import sys
import unittest

from keeper_world import FORCE, WAIT, Refused
from walk_world import World, enter, until


class Found(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.w = World(FOLDER)
        cls.w.start()

    @classmethod
    def tearDownClass(cls):
        cls.w.close()

    def make(self, name):
        self.w.call("NEW", name=name, image="tiny", cpus=1, memory_mib=128, disk_gib=1)

    def vm(self, name):
        return next((v for v in self.w.call("LIST")["document"]["vms"] if v["name"] == name), None)

    def until_state(self, name, state):
        def probe():
            self.w.clock.advance(1)
            return self.vm(name)["state"] == state
        until(probe, 20)

    def litter(self, *names):
        """What a boxery-vm that was killed in the middle of a write leaves."""
        for name in names:
            os.makedirs(os.path.dirname(self.w.path("images", name)), exist_ok=True)
            self.w.write("images/" + name, "half")

    def left(self, name):
        return [f for d, _, files in os.walk(self.w.path("images")) for f in files
                if f.startswith((f"{name}.", f".{name}."))]

    def test_half_written_files_go_with_the_next_reset(self):
        self.make("a")
        self.w.call("POOL_ADD", name="a", pool="default", flags=WAIT)
        self.litter("run/.a.gen.0123abcd", "run/.a.qcow2.new", "console/.a.log.0123abcd", "vms/.a.env.0123abcd",
                    "run/.ab.gen.0123abcd")
        lease = self.w.call("LEASE", holder="x", name="a", ttl_ms=60000)["lease"]
        self.w.call("RELEASE", lease=lease)
        self.until_state("a", "READY")
        self.assertEqual([f for f in self.left("a") if f.startswith(".")], [])
        self.assertTrue(os.path.exists(self.w.path("images/run/.ab.gen.0123abcd")), "another VM's is another VM's")

    def test_a_capture_that_was_cut_off_is_done_over(self):
        self.make("b")
        self.litter("images/.b.new/.manifest.env.0123abcd", "images/.b.new/disk.qcow2")
        self.w.call("POOL_ADD", name="b", pool="default", flags=WAIT)
        self.assertFalse(os.path.exists(self.w.path("images/images/.b.new")))
        self.litter("images/.b.new/.manifest.env.0123abcd")
        self.w.call("POOL_REMOVE", name="b", flags=FORCE)
        self.assertEqual(self.left("b"), [])
        self.assertFalse(os.path.exists(self.w.path("images/images/.b.new")))

    def test_a_removal_that_was_cut_off_can_be_said_again(self):
        for n, gone in enumerate((["images/c{}@boxery-clean/manifest.env"], ["vms/c{}.qcow2"], ["vms/c{}.env"])):
            name = f"c{n}"
            self.make(name)
            self.w.call("POOL_ADD", name=name, pool="default", flags=WAIT)
            self.w.kill()
            for f in gone:
                os.unlink(self.w.path("images", f.format(n)))
            self.w.start()
            try:
                self.w.call("POOL_REMOVE", name=name, flags=FORCE)
            except Refused as e:  # a VM that is being reset just now
                self.assertEqual(e.code, -16, e)
                self.until_state(name, "BROKEN")
                self.w.call("POOL_REMOVE", name=name, flags=FORCE)
            self.assertIsNone(self.vm(name))
            self.assertEqual(self.left(name), [])

    def test_a_new_that_was_cut_off_can_be_removed(self):
        self.w.kill()
        self.w.start("new-inserted")
        with self.assertRaises(Exception):
            self.make("d")
        self.w.kill()
        self.w.start()
        self.assertEqual(self.vm("d")["state"], "PLAIN")
        self.w.call("REMOVE", name="d", flags=FORCE)
        self.assertIsNone(self.vm("d"))
        self.make("d")


if __name__ == "__main__":
    FOLDER = enter("found")
    unittest.main(verbosity=2, argv=sys.argv[:1])
