"""A host that lacks something: said in one line by doctor and in the log, nothing half-done, and it goes on by itself when it is there."""
import ctypes
import datetime
import json
import os
import shutil
import subprocess
import sys

from keeper_world import SKIP, WAIT, Case, main, until

HOST = os.environ["BOXERY_HOST"]
LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, REMOUNT, RDONLY, REC, PRIVATE = 0x20000, 32, 1, 16384, 1 << 18
HOST_LACKS, OK = 7, 0


def mount(source, target, kind, flags, options=None):
    if LIBC.mount(source.encode(), target.encode(), kind, flags, options) != 0:
        raise OSError(ctypes.get_errno(), target)


class Doctor(Case):
    def setUp(self):
        super().setUp()
        self.programs()
        self.addCleanup(lambda: LIBC.umount2(self.w.path("images").encode(), 2))
        mount("none", self.w.path("images"), b"tmpfs", 0, b"size=6000m,mode=711")

    def programs(self):
        """All programs are there, whatever this machine has: tmpfs over /usr/local/bin, which is looked in first."""
        self.addCleanup(lambda: LIBC.umount2(b"/usr/local/bin", 2))
        mount("none", "/usr/local/bin", b"tmpfs", 0, b"size=1m,mode=755")
        for name in ("qemu-system-" + os.uname().machine, "qemu-img", "mmdebstrap", "nft", "conntrack", "ebtables", "iptables", "dnsmasq",
                     "ssh-keygen", "mkfs.ext4"):
            if not os.path.exists("/usr/bin/" + name):
                os.symlink("/bin/true", "/usr/local/bin/" + name)

    def doctor(self):
        done = subprocess.run([HOST, "doctor", "--json"], env=self.w.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, {c["name"]: (c["ok"], c["text"]) for c in json.loads(done.stdout)["checks"]}

    def lacks(self, name, words):
        status, checks = self.doctor()
        self.assertEqual(status, HOST_LACKS, checks)
        self.assertFalse(checks[name][0], checks)
        self.assertIn(words, checks[name][1])
        self.assertEqual([n for n, c in checks.items() if not c[0]], [name])

    def test_nothing_is_missing(self):
        self.w.start()
        status, checks = self.doctor()
        self.assertEqual(status, OK, checks)

    def test_a_program(self):
        self.w.start()
        os.symlink("/nowhere", "/usr/local/bin/.x")  # the folder is ours
        mount("none", "/usr/bin", b"tmpfs", 0, b"size=1m,mode=755")
        try:
            status, checks = None, None
            done = subprocess.run([HOST, "doctor", "--json"], env=self.w.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=60, check=False)
            status, checks = done.returncode, {c["name"]: c for c in json.loads(done.stdout)["checks"]}
        finally:
            LIBC.umount2(b"/usr/bin", 2)
        self.assertEqual(status, HOST_LACKS)
        self.assertEqual(checks["qemu-img"]["ok"], os.path.exists("/usr/local/bin/qemu-img"))
        missing = [c for c in checks.values() if not c["ok"]]
        self.assertTrue(missing and all("not found; apt-get install " in c["text"] for c in missing), missing)

    def test_the_image_folder(self):
        self.w.start()
        LIBC.umount2(self.w.path("images").encode(), 2)
        shutil.rmtree(self.w.path("images"))
        self.lacks("image folder", "images: No such file or directory; 'boxery-host init' makes it")
        os.mkdir(self.w.path("images"))

    def test_the_right_to_write_there(self):
        self.w.start()
        mount("none", self.w.path("images"), None, REMOUNT | RDONLY, b"size=6000m,mode=711")
        self.lacks("image folder", "cannot be written: Read-only file system")

    def test_room(self):
        self.w.start()
        mount("none", self.w.path("images"), None, REMOUNT, b"size=100m")
        self.lacks("image folder", "images: 100 MiB free, at least 4096 are needed")

    def test_libvirt(self):
        self.w.start()
        self.w.libvirt(False)
        self.lacks("connect", "libvirt does not answer")
        self.w.libvirt(True)

    def test_the_network_or_kvm(self):
        self.w.start()
        for step, words in (("network", "libvirt has a network named boxery that was not made by boxery"), ("virtualisation", "no guest starts here")):
            self.w.script("CHECK", "fail 17 %s %s" % (step, words))
            self.lacks(step, words)
        self.w.script("CHECK", None)

    def test_no_keeper_can_start(self):
        os.chmod(self.w.path("state"), 0o700)
        self.w.write("config/host.env", "BOXERY_PARALLEL=0\n")
        done = subprocess.run([HOST, "doctor"], env=self.w.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("host.env:1: BOXERY_PARALLEL: '0' is not a whole number from 1 to 64", done.stderr + done.stdout)

    def test_an_old_runner(self):
        self.w.start()
        for name, days, version in (("old", 40, "2.330.0"), ("new", 3, "2.338.0"), ("none", 90, "")):
            os.makedirs(self.w.path("images/base", name))
            built = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=days)
            self.w.write("images/base/%s/manifest.env" % name, "LAYERS=debian\nRUNNER_VERSION=%s\nBUILT_AT=%s\n" % (
                version, built.strftime("%Y-%m-%dT%H:%M:%SZ")))
        status, checks = self.doctor()
        self.assertEqual(status, OK, checks)
        self.assertEqual(checks["runner in new"], (True, "actions/runner 2.338.0, image built 3 days ago"))
        self.assertRegex(checks["runner in old"][1], "^actions/runner 2.330.0, image built 40 days ago; warning: .* 'boxery-host runners check'")
        self.assertNotIn("runner in none", checks)


class FullDisk(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: LIBC.umount2(self.w.path("images").encode(), 2))
        self.room(30000)

    def room(self, mib):
        there = os.path.ismount(self.w.path("images"))
        mount("none", self.w.path("images"), None if there else b"tmpfs", REMOUNT if there else 0, b"size=%dm,mode=711" % mib)

    def test_nothing_is_started_on_a_full_disk(self):
        """What runs goes on, what ends is reset and waits; nothing counts as a failure of the VM; with room it goes on by itself."""
        w = self.w.start()
        w.pool_vm("one", "two")
        lease = w.lease(name="two")["lease"]
        self.room(100)
        w.call("RELEASE", lease=lease)
        until(lambda: w.vms()["two"]["state"] == "COLD" and not w.running("two"))
        until(lambda: "the host has 100 MiB of disk free" in w.log() and "no VM is started with less than" in w.log())
        v = w.vms()["two"]
        self.assertEqual((v["state"], v["attempts"], w.vms()["one"]["state"]), ("COLD", 0, "READY"))
        self.assertEqual(v["step"], "host")
        self.assertIn("100 MiB of disk free", v["reason"])
        self.refused(28, "no VM is made with less than", w.new, "three")
        self.room(30000)
        w.await_state("two", "READY", timeout=60)

    def test_repair_says_so(self):
        w = self.w.start()
        w.pool_vm("one")
        w.script("START-one", "fail 5 agent it does not answer")
        w.call("RELEASE", lease=w.lease()["lease"])
        w.await_state("one", "BROKEN")
        w.script("START-one", None)
        self.room(100)
        w.call("POOL_REPAIR", name="one")
        until(lambda: "the host has 100 MiB of disk free" in w.log())
        self.room(30000)
        w.call("POOL_REPAIR", name="one", flags=WAIT, timeout=60) if w.state("one") == "BROKEN" else w.await_state("one", "READY", timeout=60)


if __name__ == "__main__":
    if LIBC.unshare(NEWNS) != 0:
        print("skipped: no right to make a mount namespace")
        sys.exit(SKIP)
    mount("", "/", None, REC | PRIVATE)
    main()
