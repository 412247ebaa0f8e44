#!/usr/bin/python3
"""VM_PATCH and VM_SETTLE of boxery-vm, on libvirt's test driver: one clean state or the other, whatever is killed."""
import hashlib
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from vm_driver import EBUSY, EINVAL, ENOENT, ESTALE, TRIAL, WARM, DriverCase  # noqa: E402

PRELOAD = os.environ.get("BOXERY_KILL_AT_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "kill_at.so")
ENOTEMPTY, EBADMSG = -39, -74


class Patch(DriverCase):
    @classmethod
    def make_base(cls):
        super().make_base()
        for name in ("other", "spoilt"):
            folder = cls.path("base", name)
            os.makedirs(folder)
            text = "a base of %s\n" % name
            files = {"vmlinuz": "", "initrd": "", "disk.qcow2": text, "manifest.env":
                     "ARCH=%s\nKERNEL=vmlinuz\nINITRD=initrd\nCMDLINE=quiet\nDISK_SHA256=%s\n" % (
                         os.uname().machine, hashlib.sha256(text.encode()).hexdigest() if name == "other" else "0" * 64)}
            for file, content in files.items():
                with open(os.path.join(folder, file), "w") as f:
                    f.write(content)

    def setUp(self):
        super().setUp()
        self.good(self.vm.call("new", "c", slot=2, cpus=1, memory_mib=256, disk_gib=2, image="tiny"))
        self.good(self.vm.call("capture", "c"))

    def manifest(self, folder):
        with open(self.path("images", folder, "manifest.env")) as f:
            return dict(line.rstrip("\n").split("=", 1) for line in f)

    def settings(self, name):
        with open(self.path("vms", name + ".env")) as f:
            return dict(line.rstrip("\n").split("=", 1) for line in f)

    def image_of(self, folder):
        """The base image a clean image is on; and it is whole: its manifest speaks of the very disk beside it."""
        m = self.manifest(folder)
        disk = self.path("images", folder, "disk.qcow2")
        st = os.stat(disk)
        self.assertEqual(m["DISK_IDENTITY"].split(":")[:2], [str(st.st_ino), str(st.st_size)])
        with open(disk) as f:
            self.assertIn("base/%s/disk.qcow2" % m["IMAGE"], f.read())
        return m["IMAGE"]

    def patch(self, name, image="other"):
        return self.vm.call("patch", name, generation=self.generation.get(name, 0), image=image)

    def settle(self, name, image, clean_of=""):
        return self.vm.call("settle", name, image=image, clean_of=clean_of)

    def folders(self, name):
        return sorted(n for n in os.listdir(self.path("images")) if n.startswith((name + "@", "." + name)))

    def is_on(self, name, image, clean_of=""):
        """Nothing is undecided, and a life starts and passes its check on that image."""
        owner = clean_of or name
        self.assertEqual(self.image_of(owner + "@boxery-clean"), image)
        self.assertEqual([f for f in self.folders(name) if "warm" not in f], [] if clean_of else [name + "@boxery-clean"])
        s = self.settings(name)
        self.assertEqual((s["IMAGE"], s.get("CLEAN_OF", "")), (image, clean_of))
        self.assertEqual(os.path.exists(self.path("vms", name + ".qcow2")), not clean_of)
        if not clean_of:
            with open(self.path("vms", name + ".qcow2")) as f:
                self.assertIn("base/%s/" % image, f.read())
        self.good(self.start(name))
        self.assertIn("base/%s/disk.qcow2" % image, self.virsh("dumpxml", name))
        self.doubt(name=name)
        self.good(self.reset(name, image=image, clean_of=clean_of))

    def test_tried_and_kept(self):
        for name, clean_of in (("c", ""), ("b", "a")):
            with self.subTest(name):
                self.good(self.start(name, flags=WARM))
                self.good(self.patch(name))
                self.assertNotIn(name, self.virsh("list", "--name").split())
                # Undecided: the old one is there as it was, the new one is what a life starts from.
                self.good(self.reset(name, image="tiny", clean_of=clean_of, flags=TRIAL))
                self.assertEqual(self.image_of(name + "@boxery-clean"), "other")
                self.assertEqual(self.image_of("c@boxery-before" if name == "c" else "a@boxery-clean"), "tiny")
                self.assertEqual(self.settings(name)["IMAGE"], "tiny")
                self.good(self.start(name, flags=WARM))
                self.assertIn("base/other/disk.qcow2", self.virsh("dumpxml", name))
                self.doubt(name=name)
                # Proven, while it runs.
                self.good(self.settle(name, "other"))
                self.doubt(name=name)
                self.good(self.settle(name, "other"))
                self.good(self.reset(name, image="other"))
                self.is_on(name, "other")

    def test_tried_and_gone_back(self):
        for name, clean_of in (("c", ""), ("b", "a")):
            with self.subTest(name):
                before = os.stat(self.path("images", (clean_of or name) + "@boxery-clean", "disk.qcow2"))
                self.good(self.patch(name))
                self.good(self.reset(name, image="tiny", clean_of=clean_of, flags=TRIAL)) if name in self.generation else None
                self.tell(name + ".begin")
                self.assertFalse(self.start(name, flags=WARM).ok)
                os.unlink(os.path.join(self.told, name + ".begin"))
                self.good(self.reset(name, image="tiny", clean_of=clean_of))
                after = os.stat(self.path("images", (clean_of or name) + "@boxery-clean", "disk.qcow2"))
                self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))
                self.is_on(name, "tiny", clean_of)

    def test_refused(self):
        """Before the life that is on it has ended."""
        self.good(self.start("c"))
        self.bad(self.patch("c", "nosuch"), ENOENT, "no base image named nosuch")
        self.bad(self.patch("c", "spoilt"), EBADMSG, "spoilt is damaged")
        self.bad(self.patch("c", "../tiny"), EINVAL, "image name")
        self.bad(self.patch("a"), EBUSY, "b lives from the clean image of a")
        self.assertIn("c", self.virsh("list", "--name").split())
        self.bad(self.vm.call("patch", "c", generation=0, image="other"), ESTALE, "too late")
        self.good(self.reset("c", image="tiny"))
        self.is_on("c", "tiny")

    def test_changed_by_hand(self):
        """What somebody has put on its disk before it joined the pool is nowhere else."""
        with open(self.path("images", "c@boxery-clean", "disk.qcow2"), "r+") as f:
            os.fchmod(f.fileno(), 0o644)
            f.seek(0, 2)
            f.write("x" * 3 * 1024 * 1024)
        self.bad(self.patch("c"), ENOTEMPTY, "changed by hand", "put it into a layer")
        self.assertEqual(self.folders("c"), ["c@boxery-clean"])

    def test_origin_after_its_clone(self):
        """The clone's own clean state counts before its settings say so; and more clones start from the new one."""
        self.good(self.patch("b"))
        self.good(self.patch("a"))
        self.good(self.settle("a", "other"))
        self.good(self.vm.call("new", "d", slot=3, cpus=1, memory_mib=256, clean_of="a", image="other"))
        self.good(self.settle("b", "other"))
        for name in ("a", "b"):
            self.is_on(name, "other")
        self.is_on("d", "other", "a")

    def killed(self, n, verb, name, **fields):
        """boxery-vm with a kill right before its Nth change of a name; True when it came to its end instead."""
        os.environ.update(LD_PRELOAD=PRELOAD, BOXERY_KILL_AT=str(n))
        try:
            answer = self.vm.call(verb, name, **fields)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["BOXERY_KILL_AT"]
        return answer.result is not None and self.good(answer) is not None

    def each_kill(self, prepare, verb, name, after, **fields):
        n = 0
        while True:
            n += 1
            prepare()
            ended = self.killed(n, verb, name, generation=self.generation.get(name, 0), **fields)
            with self.subTest("%s of %s, killed at %d" % (verb, name, n)):
                after()
            if ended:
                break
        self.assertGreater(n, 4, "kills of " + verb)
        print("%s of %s: %d kills" % (verb, name, n - 1), flush=True)

    def back_on_tiny(self, name, clean_of):
        self.generation.setdefault(name, 0)
        self.good(self.vm.call("reset", name, generation=self.generation[name], image="tiny", clean_of=clean_of))

    def test_patch_killed(self):
        """Whatever it was at: the reset that follows makes it what the keeper's row says, the old one."""
        for name, clean_of in (("c", ""), ("b", "a")):
            def after(name=name, clean_of=clean_of):
                self.image_of((clean_of or name) + "@boxery-clean")
                self.back_on_tiny(name, clean_of)
                self.is_on(name, "tiny", clean_of)
            self.each_kill(lambda: None, "patch", name, after, image="other")

    def test_way_back_killed(self):
        for name, clean_of in (("c", ""), ("b", "a")):
            def after(name=name, clean_of=clean_of):
                self.back_on_tiny(name, clean_of)
                self.is_on(name, "tiny", clean_of)
            self.each_kill(lambda name=name: self.good(self.patch(name)), "reset", name, after, image="tiny", clean_of=clean_of)

    def test_settle_killed(self):
        for name, clean_of in (("c", ""), ("b", "a")):
            def prepare(name=name, clean_of=clean_of):
                if os.path.exists(self.path("vms", name + ".env")):
                    self.good(self.vm.call("remove", name))
                self.generation.pop(name, None)
                more = {"clean_of": clean_of} if clean_of else {"image": "tiny"}
                self.good(self.vm.call("new", name, slot=2 if name == "c" else 1, cpus=1, memory_mib=256, disk_gib=2, **more))
                if not clean_of:
                    self.good(self.vm.call("capture", name))
                self.good(self.patch(name))

            def after(name=name):
                self.assertEqual(self.image_of(name + "@boxery-clean"), "other")
                self.generation.setdefault(name, 0)
                self.good(self.vm.call("reset", name, generation=self.generation[name], image="other"))
                self.is_on(name, "other")
            self.each_kill(prepare, "settle", name, after, image="other")


if __name__ == "__main__":
    unittest.main(verbosity=2)
