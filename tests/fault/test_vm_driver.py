#!/usr/bin/python3
"""boxery-vm on libvirt's test driver: clones, evidence, doubt, and what is left behind."""
import fcntl
import os
import re
import shutil
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
from lab import wait_until  # noqa: E402
from vm_driver import (EBUSY, EEXIST, EINVAL, EIO, ENOENT, ENOMEM, ENOTCONN, ESTALE, ETIMEDOUT, EVIDENCE, FORCE,  # noqa: E402
                       FRESH, HALT, KEY, PLAIN, DriverCase)


class Driver(DriverCase):
    def test_fresh(self):
        """Whatever is there of a name, `new` leaves it as it is; only what was not there is made, and said to be."""
        def new(name="c", slot=2, **more):
            return self.vm.call("new", name, slot=slot, cpus=1, memory_mib=256, disk_gib=2, image="tiny", flags=FRESH, **more)

        self.bad(new("a", slot=0), EEXIST, "vms/a.env is there already")
        self.bad(new("b", slot=1), EEXIST, "vms/b.env is there already")
        for place in ("vms/c.qcow2", "run/c.qcow2", "broken/c.qcow2", "images/c@boxery-clean"):
            with open(self.path(place), "w") as f:
                f.write("somebody's")
            answer = new()
            self.bad(answer, EEXIST, self.path(place), "it was left as it is")
            self.assertEqual([s["step"] for s in answer.steps], [])
            with open(self.path(place)) as f:
                self.assertEqual(f.read(), "somebody's")
            self.assertFalse(os.path.exists(self.path("vms", "c.env")))
            os.unlink(self.path(place))
        answer = new(slot=1)
        self.bad(answer, EEXIST, "slot 1 is b's")
        self.assertEqual(answer.steps, [])
        answer = self.good(new())
        self.assertEqual([s["step"] for s in answer.steps], ["making", "new"])
        self.bad(new(), EEXIST, "vms/c.env is there already")

    def test_clones(self):
        call = self.vm.call
        with open(self.path("run", "a.lock"), "w") as busy:  # as while it starts, which may take minutes
            fcntl.flock(busy, fcntl.LOCK_EX)
            self.good(call("new", "b", slot=1, cpus=1, memory_mib=256, clean_of="a"))
        self.bad(call("new", "b", slot=1, cpus=1, memory_mib=256, disk_gib=2, image="tiny"), EEXIST, "other settings")
        self.bad(call("new", "c", slot=2, cpus=1, memory_mib=256, clean_of="b"), EINVAL, "name that one")
        self.bad(call("new", "c", slot=2, cpus=1, memory_mib=256, clean_of="c"), EINVAL, "its own")
        self.bad(call("new", "c", slot=2, cpus=1, memory_mib=256, clean_of="x"), ENOENT, "no VM named x")
        self.bad(call("new", "c", slot=2, cpus=1, memory_mib=256, clean_of="../a"), EINVAL, "is not a name")
        self.bad(call("new", "c", slot=2, cpus=1, memory_mib=256, clean_of="a", image="other"), EINVAL, "not other")
        self.bad(call("new", "c", slot=1, cpus=1, memory_mib=256, clean_of="a"), EEXIST, "slot 1 is b's")
        self.bad(call("capture", "b"), EINVAL, "capture that one")
        self.bad(self.start(flags=PLAIN), EINVAL, "no disk of its own")
        self.good(self.start())
        entry = self.entry()
        self.assertEqual((entry["plain"], entry["slot"], entry["address"]), (0, 1, "127.77.0.11"))
        self.assertNotEqual(entry["address"], self.entry("a")["address"])
        self.bad(call("capture", "a"), EBUSY, "b is running")
        self.bad(call("remove", "a"), EBUSY, "remove that one first")
        self.bad(call("remove", "a", flags=FORCE), EBUSY, "remove that one first")
        self.good(self.reset())
        # A new clean state is what its next life has.
        before = os.stat(self.path("images", "a@boxery-clean", "disk.qcow2")).st_ino
        self.good(call("capture", "a"))
        self.assertNotEqual(os.stat(self.path("images", "a@boxery-clean", "disk.qcow2")).st_ino, before)
        self.good(self.start())
        self.doubt()

    def test_limits(self):
        self.good(self.start(start_memory_mib=512, disk_mib_per_s=10, disk_iops=100, net_kib_per_s=1000))
        xml = self.virsh("dumpxml", "b")
        for words in (">524288</memory>", "<total_bytes_sec>10485760<", "<total_iops_sec>100<"):
            self.assertIn(words, xml)
        self.good(self.reset())
        self.bad(self.start(start_memory_mib=10 ** 9), ENOMEM, "does not fit")
        self.bad(self.start(start_cpus=1000), EINVAL, "CPUs")
        self.good(self.start())
        self.assertNotIn("iotune", self.virsh("dumpxml", "b"))

    def test_evidence(self):
        overlay, kept = self.path("run", "b.qcow2"), self.path("broken", "b.qcow2")
        self.good(self.start())
        with open(overlay, "a") as f:
            f.write("life 1\n")
        answer = self.good(self.reset(flags=HALT))
        self.assertEqual((answer.text, self.entry()["running"]), (overlay, 0))
        self.bad(self.vm.call("start", "b", generation=1, key_line=KEY), ESTALE, "is refused")
        for _ in range(2):
            self.assertEqual(self.good(self.reset(flags=EVIDENCE)).text, kept)
        with open(kept) as f:
            self.assertIn("life 1", f.read())
        self.assertFalse(os.path.exists(overlay))
        self.good(self.reset())
        self.assertFalse(os.path.exists(kept))
        self.assertIn("no disk of this life", self.good(self.reset(flags=EVIDENCE)).text)
        # Too large: dropped, and what was kept of an earlier life with it.
        self.good(self.start())
        self.good(self.reset(flags=EVIDENCE))
        self.setting("BOXERY_EVIDENCE_MAX", "0")
        try:
            self.good(self.start())
            answer = self.good(self.reset(flags=EVIDENCE))
            self.assertRegex(answer.text, "^not kept: .*BOXERY_EVIDENCE_MAX")
            self.assertIn("not kept", answer.steps[-1]["text"])
            self.assertEqual((os.path.exists(overlay), os.path.exists(kept)), (False, False))
        finally:
            self.setting("BOXERY_EVIDENCE_MAX", "2G")
        self.good(self.start())
        self.good(self.reset(flags=EVIDENCE))

    def test_grant(self):
        self.bad(self.vm.call("grant", "b", generation=1, key_line=KEY), ENOTCONN, "not running")
        self.good(self.start())
        self.good(self.vm.call("grant", "b", generation=1, key_line=KEY))
        self.bad(self.vm.call("grant", "b", generation=2, key_line=KEY), ESTALE, "life 1, not 2")
        self.bad(self.vm.call("grant", "b", generation=1, key_line="command=\"x\" " + KEY), EINVAL, "its type")
        self.bad(self.vm.call("grant", "b", generation=1, key_line=KEY + "\n" + KEY), EINVAL)
        self.bad(self.vm.call("grant", "nobody", generation=1, key_line=KEY), ENOTCONN)

    def test_files_taken_away(self):
        self.good(self.start())
        self.doubt()
        overlay = self.path("run", "b.qcow2")
        os.rename(overlay, overlay + "x")
        self.doubt("run/b.qcow2, was deleted")
        shutil.copy2(overlay + "x", overlay)
        self.doubt("was replaced by another file")
        os.rename(overlay + "x", overlay)
        clean = self.path("images", "a@boxery-clean", "disk.qcow2")
        stat = os.stat(clean)
        with open(clean, "a") as f:
            f.write("x")
        for name in "ab":
            self.doubt("the clean image of a is not the file it was", name=name)
        # The listing of watch tells of those that are off as well.
        watch = self.vm.watch()
        self.assertIn("clean image", watch.wait("entry", name="a")["trouble"])
        watch.close()
        os.truncate(clean, stat.st_size)
        os.utime(clean, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        self.doubt()
        os.rename(self.path("images", "a@boxery-clean"), self.path("images", "x"))
        self.doubt("a has no clean image")
        os.rename(self.path("images", "x"), self.path("images", "a@boxery-clean"))
        base = self.path("base", "tiny", "disk.qcow2")
        stat = os.stat(base)
        os.utime(base)
        self.doubt("base image tiny was replaced or changed")
        os.utime(base, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        os.rename(self.path("vms", "b.env"), self.path("x.env"))
        self.doubt("vms/b.env is missing")
        os.rename(self.path("x.env"), self.path("vms", "b.env"))
        with open(self.path("run", "b.gen")) as f:
            record = f.read()
        with open(self.path("run", "b.gen"), "w") as f:
            f.write(record.replace("GENERATION=1", "GENERATION=7"))
        self.doubt("says life 1, but run/b.gen says 7")
        with open(self.path("run", "b.gen"), "w") as f:
            f.write(record)
        self.doubt()

    def test_domains_edited(self):
        self.good(self.start())
        xml = self.virsh("dumpxml", "b")
        twin = re.sub("<uuid>.*</uuid>", "", xml).replace("<name>b</name>", "<name>twin</name>")
        self.create(twin)
        self.doubt("another domain, twin, carries a copy of its mark")
        self.assertIsNone(self.entry("twin"))
        self.virsh("destroy", "twin")
        self.create(xml, "define")
        self.doubt("somebody has defined its domain")
        self.virsh("undefine", "b")
        self.virsh("suspend", "b")
        self.doubt("was paused by somebody")
        self.virsh("resume", "b")
        self.doubt()
        # Ended and started again by somebody, from what libvirt said of it.
        self.virsh("destroy", "b")
        self.assertEqual(self.entry()["running"], 0)
        self.doubt()
        self.create(xml)
        self.doubt("is not the one boxery started")
        self.good(self.reset())
        self.create(xml, "define")
        self.doubt("somebody has defined a domain for it")
        self.virsh("undefine", "b")
        for edit, word in (("<disk type='file' device='disk'><source file='/x'/><target dev='vdb'/></disk>", "it has 2 disks"),
                           ("<filesystem><source dir='/'/><target dir='x'/></filesystem>", "a device <filesystem>"),
                           ("<interface type='user'/>", "it has 2 network cards")):
            self.good(self.start())
            good = self.virsh("dumpxml", "b")
            domain_id = int(re.search("id='([0-9]+)'", good)[1])
            self.virsh("destroy", "b")
            self.create(good.replace("</devices>", edit + "</devices>"))
            # As if it were the very domain, so that the description is what gives it away.
            path = self.path("run", "b.gen")
            with open(path) as f:
                record = f.read()
            with open(path, "w") as f:
                f.write(record.replace("DOMAIN_ID=%d\n" % domain_id, ""))
            self.doubt(word)
            self.good(self.reset())

    def test_strangers(self):
        foreign = "<domain type='test'><name>%s</name><memory unit='MiB'>64</memory><os><type>hvm</type></os>%s</domain>"
        mark = "<metadata><vm xmlns='urn:boxery:vm:1' name='%s' generation='3' net='%s'/></metadata>"
        self.create(foreign % ("b", ""))
        self.doubt("domain of its name that boxery did not make")
        self.bad(self.start(), EEXIST, "was not made by boxery")
        self.virsh("destroy", "b")
        self.create(foreign % ("b", mark % ("ghost", "boxery")))
        self.doubt("domain of its name that boxery did not make")
        ghost = self.entry("ghost")
        self.assertEqual((ghost["running"], ghost["slot"]), (0, 0))
        self.assertIn("another domain, b, carries a copy", ghost["trouble"])
        self.virsh("destroy", "b")
        # Of another network's boxery: nobody's business.
        self.create(foreign % ("c", mark % ("c", "other")))
        self.assertIsNone(self.entry("c"))
        self.virsh("destroy", "c")
        # Ours by its mark, but of no VM here.
        self.create(foreign % ("c", mark % ("c", "boxery")))
        entry = self.entry("c")
        self.assertEqual((entry["running"], entry["generation"]), (1, 3))
        self.assertIn("vms/c.env is missing", entry["trouble"])
        self.good(self.vm.call("reset", "c", generation=3))
        self.assertIsNone(self.entry("c"))
        os.unlink(self.path("run", "c.gen"))
        os.unlink(self.path("run", "c.lock"))

    def test_dirty_or_dead(self):
        """The stand-in guest notices what a real one would."""
        for what, code, word in (("b.begin", EIO, "status 1"), ("b.dies", ENOTCONN, "ended by itself"),
                                 ("b.filter", -1, "not in force"), ("disk", -28, "no disk can be made")):
            self.tell(what)
            self.bad(self.start(), code, word)
            self.assertEqual(self.entry()["running"], 0)
            os.unlink(os.path.join(self.told, what))
            self.good(self.reset())
        self.tell("b.agent")
        self.bad(self.start(timeout_ms=300), ETIMEDOUT, "did not answer")
        os.unlink(os.path.join(self.told, "b.agent"))
        self.good(self.reset())
        self.tell("b.delay", "4000")
        soiling = threading.Thread(target=self.soil)
        soiling.start()
        self.bad(self.start(), ESTALE, "is not clean")
        soiling.join()
        self.good(self.reset())

    def at_the_agent(self):
        """b has been created, and is waited for as long as b.delay says."""
        wait_until("b at its agent", lambda: self.entry()["running"], 60, 0.05)

    def soil(self):
        self.at_the_agent()
        with open(self.path("run", "b.qcow2"), "a") as f:
            f.write("somebody was here\n")

    def test_no_doubt_while_it_is_worked_on(self):
        self.tell("b.delay", "4000")
        starting = threading.Thread(target=lambda: self.good(self.start()))
        starting.start()
        self.at_the_agent()
        os.rename(self.path("run", "b.qcow2"), self.path("run", "x"))
        self.doubt()
        os.rename(self.path("run", "x"), self.path("run", "b.qcow2"))
        starting.join()
        self.doubt()

    def test_killed_in_the_middle(self):
        self.tell("b.delay", "60000")
        self.generation["b"] = 1
        child, sock = self.vm.spawn("start", "b", generation=1, key_line=KEY)
        self.at_the_agent()
        child.kill()
        child.wait()
        sock.close()
        self.assertEqual(self.entry()["running"], 1)
        os.unlink(os.path.join(self.told, "b.delay"))
        self.bad(self.start(), ESTALE, "reset it first")
        self.good(self.reset())
        self.assertEqual(self.entry()["running"], 0)
        self.good(self.start())
        self.doubt()


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: namespaces and a libvirtd of one's own need root")
        sys.exit(77)
    unittest.main(verbosity=2)
