#!/usr/bin/python3
"""The pool on real VMs: resets that fail end in BROKEN and come back, and bad input changes nothing."""
import json
import os
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
