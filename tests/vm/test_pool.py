#!/usr/bin/python3
"""The pool on real VMs: resets that fail end in BROKEN and come back, and bad input changes nothing."""
import base64
import hashlib
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lab import WORLD, Lab, run, wait_until  # noqa: E402


class Pool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab("pool")
        try:
            cls.lab.start()
            cls.lab.new_pool_vm("one", wait=False)
            cls.lab.new_pool_vm("two", wait=False)
            cls.lab.wait_state("one", "READY")
            cls.lab.wait_state("two", "READY")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if sys.exc_info()[0] or os.environ.get("BOXERY_SHOW_LOGS"):
            sys.stderr.write("--- keeper.log\n%s\n" % cls.lab.log("state/keeper.log")[-6000:])
        cls.lab.stop()

    def lease(self, name):
        return self.lab.host_json("lease", name)["lease"]

    def broken_by(self, spoil, mend, step, mended=lambda: None):
        """A reset of `one` that cannot succeed: BROKEN after three attempts, `two` goes on, repair brings it back."""
        lease = self.lease("one")
        spoil()
        try:
            self.lab.host("release", lease)
            vm = self.lab.wait_state("one", "BROKEN", timeout=400)
            self.assertEqual(vm["attempts"], 3)
            listed = self.lab.host("pool", "ls").stdout
            line = next(row for row in listed.splitlines() if row.startswith("one "))
            self.assertIn(vm["step"], line)
            self.assertTrue(vm["reason"], vm)
            self.assertIn(vm["reason"][:40], line)
            self.assertIn(vm["step"], step)
            self.reason = vm["reason"]
            self.seen = self.lab.inside(["virsh", "-q", "list", "--all"], check=False).stdout
            refused = self.lab.host("lease", "one", check=False)
            self.assertEqual(refused.returncode, 4, refused.stderr)
            self.assertEqual(self.lab.vm("two")["state"], "READY")
        finally:
            mend()
        mended()
        self.lab.host("pool", "repair", "one", "--wait")
        self.assertEqual(self.lab.vm("one")["state"], "READY")

    def ended_by(self, generation):
        """What the step of a reset that ends a life says, of the life after `generation`."""
        steps = self.lab.host_json("history", "one")["events"]
        return next(e["text"] for e in reversed(steps) if e["kind"] == "destroy" and e["generation"] >= generation)

    def test_whom_a_reset_kills(self):
        """The QEMU of the life, and never the process that libvirt's pid file names when that is another one."""
        lease = self.lab.host_json("lease", "one")
        other = self.lab.inside(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]).stdout.strip()
        try:
            self.lab.inside(["sh", "-c", "echo %s > /run/libvirt/qemu/one.pid" % other])
            self.lab.host("release", lease["lease"])
            self.lab.wait_state("one", "READY")
            self.assertNotIn("killed", self.ended_by(lease["generation"]))
            self.lab.inside(["kill", "-0", other])
            lease = self.lab.host_json("lease", "one")
            self.lab.host("release", lease["lease"])
            self.lab.wait_state("one", "READY")
            self.assertIn("its QEMU killed", self.ended_by(lease["generation"]))
            self.lab.inside(["kill", "-0", other])
        finally:
            self.lab.inside(["kill", other], check=False)

    def test_overlay_that_cannot_be_removed(self):
        overlay = os.path.join(self.lab.dir, "image", "run", "one.qcow2")
        self.broken_by(lambda: run(["chattr", "+i", overlay]), lambda: run(["chattr", "-i", overlay]), ("overlay",))
        self.cycle("two")

    def test_read_only_image_folder(self):
        folder = os.path.join(self.lab.dir, "image", "run")

        life = " one "

        def spoil():
            self.lab.inside(["mount", "--bind", folder, folder])
            self.lab.inside(["mount", "-o", "remount,bind,ro", folder])
        self.broken_by(spoil, lambda: self.lab.inside(["umount", folder]), ("lock",))
        self.assertNotIn(life, self.seen, "the guest must be off although its folder could not be written")

    def test_libvirtd_stopped(self):
        self.broken_by(lambda: run([WORLD, "libvirtd-kill", self.lab.dir]),
                       lambda: run([WORLD, "libvirtd-start", self.lab.dir]), ("connect",), self.guest_is_ended)
        self.assertIn("libvirt", self.reason)

    def guest_is_ended(self):
        """Nobody could end it without libvirtd; it must not live on until somebody repairs the VM."""
        def off():
            listed = self.lab.inside(["virsh", "-q", "list"], check=False)
            return listed.returncode == 0 and " one " not in listed.stdout
        wait_until("the guest of the BROKEN VM is off", off, 60, every=0.5)
        self.assertEqual(self.lab.vm("one")["state"], "BROKEN")

    def cycle(self, name):
        before = self.lab.vm(name)["generation"]
        self.lab.host("release", self.lease(name))
        wait_until("%s READY again" % name, lambda: (lambda v: v["state"] == "READY" and v["generation"] > before)(
            self.lab.vm(name)), 600, every=0.5)

    def test_killed_guest_is_seen(self):
        self.lab.wait_state("two", "READY")
        self.cycle("two")  # a life that was used: what failed before on a small file system is forgotten
        vm = self.lab.vm("two")
        pid = run(["cat", os.path.join(self.lab.dir, "run", "libvirt", "qemu", "two.pid")]).stdout.strip()
        os.kill(int(pid), 9)
        wait_until("two in a new life", lambda: (lambda v: v["state"] == "READY" and v["generation"] > vm["generation"])(
            self.lab.vm("two")), 600, every=0.5)

    def test_full_disk_ends_a_job(self):
        """QEMU stops a guest that finds the host's disk full; its job must not sit there until its time is over."""
        folder = os.path.join(self.lab.dir, "image", "run")
        key = os.path.join(self.lab.dir, "full")
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
        # A file system of its own; guests that run on files of the old one are doubts, and are made anew on this one.
        self.lab.inside(["sh", "-c", "cp -a $0 $0.copy && mount -t tmpfs -o size=160m tmpfs $0 && cp -a $0.copy/. $0 && rm -r $0.copy",
                         folder])
        try:
            life = self.lab.vm("one")["generation"]
            wait_until("one runs on the small file system", lambda: (lambda v: v["state"] == "READY" and v["generation"] > life)(
                self.lab.vm("one")), 600, every=0.5)
            lease = self.lab.host_json("lease", "one", "--ssh-key", key + ".pub")["lease"]
            fill = {"path": "/bin/dd", "arg": ["if=/dev/urandom", "of=/root/fill", "bs=1M", "count=400", "conv=fsync"]}
            self.lab.inside(["virsh", "-q", "qemu-agent-command", "one",
                             json.dumps({"execute": "guest-exec", "arguments": fill})])

            def ended():
                events = self.lab.host_json("history", lease)["events"]
                return [e["text"] for e in events if e["kind"] == "DOUBT"]
            wait_until("the job was ended", ended, 600, every=0.5)
            self.assertIn("stopped by an I/O error; the host's disk may be full", ended()[0])
        finally:
            self.lab.inside(["umount", "-l", folder])
        for name in ("one", "two"):
            if self.lab.wait_state(name, "READY", "BROKEN")["state"] == "BROKEN":
                self.lab.host("pool", "repair", name, "--wait")

    # -- another base image

    def base(self, name, marker=None, kernel=True):
        """Like the one that was built, with a file more in it, or without a kernel that is one."""
        folder = os.path.join(self.lab.dir, "image", "base")
        new = os.path.join(folder, name)
        run(["cp", "-al", os.path.join(folder, "lab"), new])
        with open(os.path.join(new, "manifest.env")) as f:
            text = f.read()
        if marker:
            raw, disk = os.path.join(new, "raw"), os.path.join(new, "disk.qcow2")
            run(["qemu-img", "convert", "-O", "raw", disk, raw])
            with open(raw + ".marker", "w") as f:
                f.write(marker)
            run(["debugfs", "-w", "-R", "write %s.marker /etc/boxery-marker" % raw, raw])
            os.unlink(disk)
            run(["qemu-img", "convert", "-O", "qcow2", raw, disk])
            os.unlink(raw)
            os.unlink(raw + ".marker")
            digest = hashlib.sha256()
            with open(disk, "rb") as f:
                while piece := f.read(1 << 20):
                    digest.update(piece)
            text = re.sub("(?m)^DISK_SHA256=.*", "DISK_SHA256=" + digest.hexdigest(), text)
        if not kernel:
            os.unlink(os.path.join(new, "vmlinuz"))
            with open(os.path.join(new, "vmlinuz"), "w") as f:
                f.write("no kernel\n")
        os.unlink(os.path.join(new, "manifest.env"))
        with open(os.path.join(new, "manifest.env"), "w") as f:
            f.write(text)

    def agent(self, name, command, **arguments):
        return json.loads(self.lab.inside(["virsh", "-q", "qemu-agent-command", name,
                                           json.dumps({"execute": command, "arguments": arguments})]).stdout)["return"]

    def marker(self, name):
        """What the guest of a lease of this VM finds in its base image."""
        lease = self.lease(name)
        try:
            pid = self.agent(name, "guest-exec", path="/bin/cat", arg=["/etc/boxery-marker"], **{"capture-output": True})["pid"]
            done = wait_until("cat has ended", lambda: (lambda s: s if s["exited"] else None)(
                self.agent(name, "guest-exec-status", pid=pid)), 60)
            return base64.b64decode(done.get("out-data", "")).decode()
        finally:
            life = self.lab.vm(name)["generation"]
            self.lab.host("release", lease)
            wait_until("%s READY again" % name, lambda: (lambda v: v["state"] == "READY" and v["generation"] > life)(
                self.lab.vm(name)), 600, every=0.5)

    def images_in_use(self):
        """Of everything that stands on a base image: what disks say, and what manifests and settings say."""
        out = set()
        for part in ("images", "vms", "run"):
            for d, _, names in os.walk(os.path.join(self.lab.dir, "image", part)):
                for n in names:
                    path = os.path.join(d, n)
                    if n.endswith(".qcow2"):
                        out |= set(re.findall("/base/([a-z0-9-]+)/", run(["qemu-img", "info", "-U", "--backing-chain", path]).stdout))
                    elif n.endswith(".env"):
                        with open(path) as f:
                            out |= set(re.findall("(?m)^IMAGE=(.*)", f.read()))
        return out

    def test_patch(self):
        self.base("bad", kernel=False)
        self.base("newer", marker="of the newer base")
        for name in ("one", "two"):
            self.lab.wait_state(name, "READY")
        self.assertEqual(self.marker("one"), "")

        # An image that does not start: back, with a sentence, and the other one is not tried.
        life = self.lab.vm("two")["generation"]
        done = self.lab.host("pool", "patch", "--all", "--base", "bad", "--wait", check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("one was not patched and stays on lab", done.stderr)
        self.lab.wait_state("one", "READY")
        self.assertIn("not patched: ", self.lab.host("pool", "show", "one").stdout)
        self.assertIn("not tried, since one could not be patched to bad", self.lab.host("pool", "show", "two").stdout)
        self.assertEqual(self.lab.vm("two")["generation"], life)
        self.assertEqual(self.images_in_use(), {"lab"})
        self.assertEqual(self.marker("one"), "")

        # A lease is not interrupted, and of the two one is READY throughout.
        lease = self.lease("one")
        life = self.lab.vm("one")["generation"]
        self.lab.host("pool", "patch", "--all", "--base", "newer")
        waits = {v["name"]: v["patch_waits"] for v in self.lab.host_json("ls")["vms"]}
        self.assertEqual(waits, {"one": "its lease has to end first", "two": "it is the only READY VM of its pool"})
        self.assertIn("to be patched to newer, waits: its lease has to end first", self.lab.host("pool", "ls").stdout)
        vm = self.lab.vm("one")
        self.assertEqual((vm["state"], vm["generation"]), ("LEASED", life))
        self.lab.host("release", lease)
        self.lab.host("pool", "patch", "--all", "--base", "newer", "--wait")
        for name in ("one", "two"):
            vm = self.lab.wait_state(name, "READY")
            self.assertEqual((vm["image"], vm["patch"], vm["patch_failed"]), ("newer", "", ""))
            self.assertEqual(self.marker(name), "of the newer base")
        self.assertEqual(self.images_in_use(), {"newer"})
        self.refused(4, ["every VM is on newer already"], "pool", "patch", "--all", "--base", "newer")
        self.refused(3, ["nosuch", "build-base"], "pool", "patch", "one", "--base", "nosuch")

    # -- bad input

    def refused(self, code, words, *arguments):
        before = self.lab.host_json("ls")["vms"]
        done = self.lab.host(*arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        names = [(v["name"], v["pool"]) for v in before]
        self.assertEqual([(v["name"], v["pool"]) for v in self.lab.host_json("ls")["vms"]], names)

    def test_bad_names_and_numbers(self):
        self.refused(2, ["VM name", "a/b"], "new", "a/b", "--image", "lab")
        self.refused(3, ["nosuch"], "pool", "add", "nosuch")
        self.refused(3, ["nosuch"], "new", "three", "--image", "nosuch")
        self.refused(7, ["MiB"], "new", "three", "--image", "lab", "--memory", "900G")
        self.refused(4, ["one"], "new", "one", "--image", "lab")
        self.refused(3, [], "release", "0" * 32)
        self.refused(4, ["two"], "rm", "two")

    def test_doctor_says_which_virtualisation_and_why(self):
        done = self.lab.host("doctor", "--json", check=False)
        texts = " ".join(c["text"] for c in json.loads(done.stdout)["checks"])
        self.assertRegex(texts, "qemu|emulation|KVM")

    def test_runners_check(self):
        self.lab.write("config/runners.yaml", "version: 1\nrunners:\n  - repo: octo/private\n    labelz: [x]\n")
        self.refused(5, ["runners.yaml:4", "labelz", "labels"], "runners", "check")
        self.lab.configure()
        self.assertIn("private, can be served", self.lab.host("runners", "check").stdout)
        secrets = os.path.join(self.lab.dir, "config", "runners.env")
        os.chmod(secrets, 0o644)
        self.refused(6, ["runners.env", "0644"], "runners", "check")
        os.chmod(secrets, 0o600)
        self.lab.emulator.repo("octo/private", private=False)
        self.refused(6, ["octo/private", "public"], "runners", "check")
        self.lab.emulator.repo("octo/private", private=True)
        self.lab.configure(repo="octo/nosuch")
        self.refused(3, ["octo/nosuch"], "runners", "check")
        self.assertEqual(self.lab.emulator.runners(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
