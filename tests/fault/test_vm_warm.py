#!/usr/bin/python3
"""boxery-vm on libvirt's test driver: memory images, standby, waking; what does not fit, what is cut off in the middle."""
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from vm_driver import DROP_MEMORY, EIO, EVIDENCE, ENOTCONN, ESTALE, FORCE, KEY, PLAIN, STANDBY, WARM, DriverCase  # noqa: E402

EBADMSG = -74


class Warm(DriverCase):
    def manifest(self, name="b", **change):
        """The manifest of the memory image as a dict; with `change`, written anew."""
        path = self.path("images", name + "@boxery-warm", "manifest.env")
        with open(path) as f:
            facts = dict(line.rstrip("\n").split("=", 1) for line in f)
        if change:
            facts.update(change)
            with open(path, "w") as f:
                f.writelines("%s=%s\n" % item for item in facts.items())
        return facts

    def warm(self, name="b", flags=WARM, **more):
        return self.start(name, flags=flags, **more)

    def wake(self, name="b"):
        return self.vm.call("wake", name, generation=self.generation[name], key_line=KEY)

    def memory_step(self, answer):
        return next((s["text"] for s in answer.steps if s["step"] == "memory"), None)

    def again(self, name="b", flags=WARM):
        """Reset, and a warm start that says what it did about the memory."""
        self.good(self.reset(name))
        answer = self.good(self.warm(name, flags))
        return self.memory_step(answer)

    def state(self, name="b"):
        return self.virsh("domstate", name).strip()

    def test_capture_and_restore(self):
        first = self.good(self.warm())
        self.assertIn("there is no memory image", self.memory_step(first))
        self.assertEqual((first.result["warm"], first.result["standby"]), (1, 0))
        made = self.manifest()
        self.assertEqual(made["MACHINE"], "test")
        self.assertRegex(made["MEMORY_SHA256"], "^[0-9a-f]{64}$")
        self.assertEqual(os.stat(self.path("images", "b@boxery-warm", "memory")).st_mode & 0o777, 0o400)
        self.doubt()
        # The same life again gives the same answer; the next one restores the same image.
        again = self.good(self.vm.call("start", "b", generation=1, key_line=KEY, flags=WARM))
        self.assertEqual(again.result["host_key"], first.result["host_key"])
        self.assertEqual(again.result["warm"], 1)
        self.assertIn(made["CAPTURED"], self.again())
        self.assertEqual(self.manifest(), made)
        # A cold start does not use it, and is compared with it.
        self.good(self.reset())
        cold = self.good(self.start())
        self.assertEqual(cold.result["warm"], 0)
        self.assertTrue(any(s["step"] == "listing" for s in cold.steps))
        # Each VM has its own.
        self.good(self.warm("a"))
        self.assertNotEqual(self.manifest("a")["UUID"], made["UUID"])

    def test_standby(self):
        answer = self.good(self.warm(flags=WARM | STANDBY))
        self.assertEqual((answer.result["standby"], answer.result["host_key"]), (1, ""))
        self.assertEqual(self.state(), "paused")
        self.assertEqual(self.entry()["running"], 1)
        self.doubt()
        again = self.good(self.vm.call("start", "b", generation=1, key_line=KEY, flags=WARM | STANDBY))
        self.assertEqual(again.result["standby"], 1)
        self.bad(self.vm.call("wake", "b", generation=2, key_line=KEY), ESTALE, "not 2")
        self.bad(self.vm.call("grant", "b", generation=1, key_line=KEY), ESTALE, "has not passed the check")
        awake = self.good(self.wake())
        self.assertTrue(awake.result["host_key"])
        self.assertEqual(self.state(), "running")
        self.doubt()
        self.assertEqual(self.good(self.wake()).result["host_key"], awake.result["host_key"])
        self.good(self.reset())
        self.bad(self.wake(), ENOTCONN, "not running")
        # Somebody lets it run: it has not been checked.
        self.good(self.warm(flags=WARM | STANDBY))
        self.virsh("resume", "b")
        self.doubt("runs now")
        self.good(self.reset())
        # A life that did not stand by is awake; a cold one, too.
        self.good(self.start())
        self.assertTrue(self.good(self.wake()).result["host_key"])

    def test_a_guest_that_does_not_come_to_rest(self):
        """It is not captured; this start is a cold one, and a later one captures."""
        self.tell("b.settle")
        answer = self.good(self.warm(flags=WARM | STANDBY))
        self.assertEqual((answer.result["warm"], answer.result["standby"]), (0, 0))
        self.assertTrue(answer.result["host_key"])
        said = [s["text"] for s in answer.steps if s["step"] == "settle"]
        self.assertEqual(said, ["no memory image this time, it boots: b: begin: the guest does not come to rest"])
        self.assertEqual(self.state(), "running")
        self.assertEqual(self.entry()["generation"], 1)
        self.doubt()
        self.assertFalse(os.path.exists(self.path("images", "b@boxery-warm")))
        os.unlink(os.path.join(self.told, "b.settle"))
        self.assertIn("captured anew", self.again())
        # Nor is the image that does not fit any more used, or lost.
        self.good(self.reset())
        self.manifest(QEMU="9")
        self.tell("b.settle")
        self.assertEqual(self.good(self.warm()).result["warm"], 0)
        self.assertEqual(self.manifest()["QEMU"], "9")

    def test_what_does_not_fit(self):
        self.good(self.warm())
        for key, words in (("QEMU", "version of QEMU"), ("CPU", "the CPU"), ("EMULATOR_IDENTITY", "the QEMU program"),
                           ("CPUS", "number of CPUs"), ("MEMORY_MIB", "size of the memory"), ("UUID", "uuid"),
                           ("MAC", "MAC"), ("TAP", "tap"), ("FORMAT", "format"), ("CLEAN_IDENTITY", "clean image"),
                           ("BASE_IDENTITY", "base image"), ("MEMORY_IDENTITY", "file of its memory")):
            self.manifest(**{key: "/9" if key == "EMULATOR" else "9"})
            said = self.again()
            self.assertIn("captured anew", said)
            self.assertIn(words, said)
        for file in ("memory", "disk.qcow2", "overlay.qcow2", "guest.txt", "manifest.env"):
            os.unlink(self.path("images", "b@boxery-warm", file)) if file != "disk.qcow2" else self.replace_disk()
            self.assertIn("captured anew", self.again())
        self.manifest(COLOUR="red")
        self.assertIn("captured anew: images/b@boxery-warm/manifest.env", self.again())
        # Sizes asked for at the start count.
        self.good(self.reset())
        self.assertIn("number of CPUs", self.memory_step(self.good(self.warm(start_cpus=2))))
        self.good(self.reset())
        # A new clean image: of the origin itself, and of its clone.
        self.good(self.warm("a"))
        self.good(self.reset("a"))
        self.good(self.vm.call("capture", "a"))
        self.assertFalse(os.path.exists(self.path("images", "a@boxery-warm")))
        self.assertIn("the clean image", self.memory_step(self.good(self.warm())))

    def replace_disk(self):
        path = self.path("images", "b@boxery-warm", "disk.qcow2")
        os.rename(path, path + ".old")
        with open(path, "w") as f, open(path + ".old") as old:
            f.write(old.read())

    def test_changed_under_a_running_guest(self):
        self.good(self.warm())
        self.replace_disk()
        self.doubt("disk of its memory image")

    def test_restore_or_check_fails(self):
        self.good(self.warm())
        self.good(self.reset())
        self.tell("restore")
        self.bad(self.warm(), EIO, "memory image dropped")
        self.assertFalse(os.path.exists(self.path("images", "b@boxery-warm")))
        os.unlink(os.path.join(self.told, "restore"))
        # The keeper asks for a cold start next, then for a warm one.
        self.good(self.reset())
        self.good(self.start())
        self.assertIn("captured anew", self.again())

    def test_reset_drops_the_image(self):
        """What a life out of it has failed of may be in it; evidence stands on a layer of it."""
        self.good(self.warm(flags=WARM | STANDBY))
        made = self.manifest()
        self.good(self.reset(flags=DROP_MEMORY | EVIDENCE))
        self.assertEqual(self.manifest(), made)
        dropped = self.good(self.reset(flags=DROP_MEMORY))
        self.assertIn("image dropped", self.memory_step(dropped))
        self.assertFalse(os.path.exists(self.path("images", "b@boxery-warm")))
        self.good(self.reset(flags=DROP_MEMORY))  # again: there is none
        self.assertIn("there is no memory image", self.memory_step(self.good(self.warm())))

    def test_listing(self):
        """A guest with something more than at its capture."""
        self.good(self.warm())
        self.good(self.reset())
        self.tell("b.more")
        self.bad(self.warm(), EBADMSG, "a process, '0 x /usr/bin/x', was not there")
        self.assertEqual(self.entry()["running"], 0)
        self.assertFalse(os.path.exists(self.path("images", "b@boxery-warm")))
        os.unlink(os.path.join(self.told, "b.more"))
        self.good(self.reset())
        self.good(self.warm(flags=WARM | STANDBY))
        self.tell("b.more")
        self.bad(self.wake(), EBADMSG, "was not there")
        os.unlink(os.path.join(self.told, "b.more"))
        # The same after a boot, where a captured listing is the measure, too.
        self.good(self.reset())
        self.good(self.warm())
        self.good(self.reset())
        self.tell("b.more")
        self.bad(self.start(), EBADMSG, "was not there")
        # One with less is only a step behind.
        os.unlink(os.path.join(self.told, "b.more"))
        self.good(self.reset())
        self.good(self.vm.call("capture", "a"))
        self.tell("b.more")
        self.good(self.warm())
        os.unlink(os.path.join(self.told, "b.more"))
        self.good(self.reset())
        self.good(self.start())

    def test_a_guest_with_a_full_disk(self):
        """However it got into the clean state's place: it is never handed out, neither restored nor booted."""
        self.good(self.warm())
        self.good(self.reset())
        self.tell("b.full")
        self.bad(self.warm(), EBADMSG, "1 MiB and 50000 inodes are free on its disk, 976 MiB and 50000 were")
        self.assertEqual(self.entry()["running"], 0)
        os.unlink(os.path.join(self.told, "b.full"))
        self.good(self.reset())
        self.good(self.warm())
        self.good(self.reset())
        self.tell("b.full")
        self.bad(self.start(), EBADMSG, "are free on its disk")
        self.assertEqual(self.entry()["running"], 0)

    def test_capture_fails(self):
        self.good(self.warm())
        before = self.manifest(QEMU="9")
        self.good(self.reset())
        self.tell("b.save")
        self.bad(self.warm(), EIO, "capture", "cannot be saved")
        # The old one is as it was, although it does not fit.
        self.assertEqual(self.manifest(), before)
        os.unlink(os.path.join(self.told, "b.save"))
        self.assertEqual(self.entry()["running"], 0)
        self.assertIn("captured anew", self.again())
        self.assertEqual([n for n in os.listdir(self.path("images")) if n.startswith(".")], [])

    def test_killed(self):
        """kill -9 of boxery-vm at any moment of a capture, a restore and a wake: a reset, and it works again. What was in use
        before a capture is there as it was, or the new one is, whole."""
        self.good(self.warm())
        self.good(self.reset())
        for what in ("capture", "standby", "wake"):
            for ms in (0, 40, 80, 160, 320, 640):
                if what == "capture":
                    before = self.manifest(QEMU="9")
                if what == "wake":
                    self.good(self.warm(flags=WARM | STANDBY))
                else:
                    self.generation["b"] = self.generation.get("b", 0) + 1
                self.tell("b.delay", "100")
                child, sock = self.vm.spawn("wake" if what == "wake" else "start", "b", generation=self.generation["b"],
                                            key_line=KEY, flags=0 if what == "wake" else WARM | STANDBY)
                time.sleep(ms / 1000)
                child.send_signal(signal.SIGKILL)
                child.wait()
                sock.close()
                os.unlink(os.path.join(self.told, "b.delay"))
                self.good(self.reset())
                self.assertEqual([n for n in os.listdir(self.path("images")) if n.startswith(".")], [], what)
                if what == "capture":
                    now = self.manifest()
                    self.assertTrue(now == before or now["QEMU"] != "9" and set(now) == set(before), (before, now))
                    self.assertEqual(len(os.listdir(self.path("images", "b@boxery-warm"))), 5)
                self.assertEqual(self.entry()["trouble"], "", what)
                self.assertNotIn("b", self.virsh("list", "--all", "--name").split())
        self.good(self.warm(flags=WARM | STANDBY))
        self.good(self.wake())

    def test_plain_is_never_warm(self):
        answer = self.good(self.start("a", flags=PLAIN | WARM | STANDBY))
        self.assertEqual((answer.result["warm"], answer.result["standby"]), (0, 0))
        self.good(self.vm.call("stop", "a", flags=FORCE))
        self.assertFalse(os.path.exists(self.path("images", "a@boxery-warm")))


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: namespaces and a libvirtd of one's own need root")
        sys.exit(77)
    unittest.main(verbosity=2)
