#!/usr/bin/python3
"""boxery-build when things go wrong, with a mmdebstrap that makes a small root in no time: test_build.py BOXERY_BUILD

Needs root, as a build does. What is real: plan, download, the script in a chroot-less root, file system, qcow2, renames.
"""
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = ""
OK, FAILED, USAGE, CONFLICT, CONFIG, HOST, INTERRUPTED = 0, 1, 2, 4, 5, 7, 130

MMDEBSTRAP = """#!/bin/sh
set -eu
for a; do case $a in --customize-hook=*) hook=${a#*=};; /*) root=$a ;; esac; done
printf '%s\\n' "$@" >"$SEEN_ARGUMENTS"
mkdir -p "$root/boot" "$root/etc/ssh" "$root/usr/lib/boxery" "$root/var/lib/dpkg" "$root/bin" "$root/root" "$root/home"
: >"$root/var/lib/dpkg/status"
: >"$root/etc/machine-id"
ln -s "$OUTSIDE" "$root/var/out"
cp "$KERNEL" "$root/boot/vmlinuz-1"
echo initrd >"$root/boot/initrd.img-1"
sh -c "$hook" sh "$root"
[ ! -e "$SCENE" ] || . "$SCENE"
"""


def bz_image():
    """The least that is a bzImage: a setup header, and a gzip'ed ELF file with its size behind it."""
    elf = b"\x7fELF" + b"\0" * 1000
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    payload = deflate.compress(elf) + deflate.flush() + struct.pack("<I", len(elf))
    head = bytearray(1024)
    head[0x1f1] = 1
    head[0x202:0x206] = b"HdrS"
    head[0x206:0x208] = struct.pack("<H", 0x20f)
    head[0x248:0x250] = struct.pack("<II", 0, len(payload))
    return bytes(head) + payload + b"more", elf


class Build(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="boxery-build-")
        self.path = lambda *p: os.path.join(self.dir, *p)
        for d in ("bin", "layers", "guest", "outside"):
            os.mkdir(self.path(d))
        self.write("bin/mmdebstrap", MMDEBSTRAP.replace('"$SEEN_ARGUMENTS"', self.path("arguments"))
                   .replace('"$OUTSIDE"', self.path("outside")).replace('"$KERNEL"', self.path("kernel")).replace('"$SCENE"', self.path("scene")), mode=0o755)
        # No chroot: the small root has no programs. What would run in it is only written down.
        self.write("bin/chroot", "#!/bin/sh\nshift\necho \"$@\" >>%s\n" % self.path("in-image"), mode=0o755)
        self.write("bin/dpkg-query", "#!/bin/sh\necho 'git 1.0'\n", mode=0o755)
        image, self.elf = bz_image()
        with open(self.path("kernel"), "wb") as f:
            f.write(image)
        self.write("guest/begin", "#!/bin/sh\n")
        self.layer("base", "packages: [git]\nfiles: [{source: guest/begin, dest: /usr/lib/boxery/begin, mode: \"0755\"}]\n"
                   "run: ['echo hello']\n")

    def tearDown(self):
        shutil.rmtree(self.dir)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as f:
            f.write(text)
        os.chmod(self.path(name), mode)

    def layer(self, name, text):
        self.write("layers/%s.yaml" % name, "name: %s\n%s" % (name, text))

    def command(self, *args, name="img", layers="base"):
        return [PROGRAM, "base", name, "--layers", layers, "--layer-dir", self.path("layers"), "--image-dir",
                self.path("images"), "--cache-dir", self.path("cache"), "--disk", "2", *args]

    def env(self):
        return dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"])

    def build(self, *args, **kw):
        return subprocess.run(self.command(*args, **kw), env=self.env(), capture_output=True, text=True, timeout=120)

    def image(self, name="img"):
        return self.path("images", "base", name)

    def left(self):
        return sorted(n for n in os.listdir(self.path("images", "base")) if not n.endswith(".lock"))

    def manifest(self, name="img"):
        with open(os.path.join(self.image(name), "manifest.env")) as f:
            return dict(line.rstrip("\n").split("=", 1) for line in f)

    def good(self, done):
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        return done.stdout

    def bad(self, done, code, words, left=()):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)
        if os.path.isdir(self.path("images", "base")):
            self.assertEqual(self.left(), list(left))
        return done

    def test_whole(self):
        self.good(self.build())
        m = self.manifest()
        self.assertEqual((m["LAYERS"], m["KERNEL"], m["INITRD"], m["SUITE"]), ("base", "vmlinuz", "initrd", "bookworm"))
        self.assertEqual(m["DISK_SIZE"], str(2 << 30))
        self.assertEqual(sorted(os.listdir(self.image())), ["disk.qcow2", "initrd", "manifest.env", "packages.txt", "vmlinuz"])
        self.assertEqual(os.stat(self.image()).st_mode & 0o777, 0o755)
        with open(os.path.join(self.image(), "disk.qcow2"), "rb") as f:
            self.assertEqual(m["DISK_SHA256"], hashlib.sha256(f.read()).hexdigest())
        with open(os.path.join(self.image(), "vmlinuz"), "rb") as f:
            self.assertEqual(f.read(), self.elf)
        with open(self.path("arguments")) as f:
            arguments = f.read().split("\n")
        self.assertIn("--include=git", arguments)
        self.assertIn("--mode=root", arguments)
        with open(self.path("in-image")) as f:
            self.assertIn("/bin/sh -eu -c echo hello", f.read())
        info = json.loads(subprocess.run(["qemu-img", "info", "--output=json", os.path.join(self.image(), "disk.qcow2")],
                                         capture_output=True, check=True).stdout)
        self.assertEqual((info["format"], info["virtual-size"]), ("qcow2", 2 << 30))

    def test_again(self):
        self.good(self.build())
        inode = os.stat(self.image()).st_ino
        self.assertIn("reused", self.good(self.build()))
        self.assertEqual(os.stat(self.image()).st_ino, inode)
        self.good(self.build("--force"))
        self.assertNotEqual(os.stat(self.image()).st_ino, inode)
        inode = os.stat(self.image()).st_ino
        self.write("guest/begin", "#!/bin/sh\ntrue\n")
        self.assertNotIn("reused", self.good(self.build()))
        self.assertNotEqual(os.stat(self.image()).st_ino, inode)
        os.unlink(os.path.join(self.image(), "initrd"))
        self.assertNotIn("reused", self.good(self.build()))
        with open(os.path.join(self.image(), "disk.qcow2"), "ab") as f:
            f.write(b"x")
        self.assertNotIn("reused", self.good(self.build()))
        self.assertEqual(self.left(), ["img"])

    def test_dry_run(self):
        out = self.good(self.build("--dry-run"))
        self.assertIn("packages git", out)
        self.assertFalse(os.path.exists(self.path("images")))

    def test_failures_leave_the_old_image(self):
        self.good(self.build())
        inode = os.stat(self.image()).st_ino
        for scene, words in (("echo E: no such package >&2; exit 100", "mmdebstrap failed with status 100"),
                             ("echo key >$root/etc/ssh/ssh_host_rsa_key", "ssh_host_rsa_key is in the image"),
                             ("mkdir $root/root/.ssh; echo x >$root/root/.ssh/authorized_keys", "authorized_keys is in the image"),
                             ("mkdir -p $root/home/u/.ssh; echo x >$root/home/u/.ssh/id", "/home/u/.ssh/id is in the image"),
                             ("echo 0123 >$root/etc/machine-id", "machine-id in the image is not empty"),
                             ("rm $root/usr/lib/boxery/begin", "one of the layers must be debian"),
                             ("rm $root/boot/vmlinuz-1", "no layer installs a kernel"),
                             ("cp $root/boot/vmlinuz-1 $root/boot/vmlinuz-2", "two kernels")):
            self.write("scene", scene + "\n")
            done = self.build("--force")
            self.bad(done, done.returncode, words, left=["img"])
            self.assertNotEqual(done.returncode, OK)
            self.assertEqual(os.stat(self.image()).st_ino, inode)
        self.write("scene", "echo one; echo last words >&2; exit 3\n")
        self.assertIn("    | last words\n", self.build("--force").stderr)

    def test_kernel_of_another_kind(self):
        self.write("kernel", "not a bzImage")
        self.assertIn("as it is", self.good(self.build()))
        with open(os.path.join(self.image(), "vmlinuz")) as f:
            self.assertEqual(f.read(), "not a bzImage")

    def test_used_by_vms(self):
        self.good(self.build())
        os.mkdir(self.path("images", "vms"))
        self.write("images/vms/ci-1.env", "NAME=ci-1\nIMAGE=img\n")
        self.write("images/vms/ci-2.env", "IMAGE=other\n")
        self.assertIn("reused", self.good(self.build()))
        self.bad(self.build("--force"), CONFLICT, "it is the disk under ci-1;", left=["img"])
        self.write("images/vms/ci-2.env", "IMAGE=img\n")
        done = self.build("--force")
        self.assertTrue("ci-1, ci-2" in done.stderr or "ci-2, ci-1" in done.stderr, done.stderr)
        self.good(self.build(name="img-2"))

    def test_downloads(self):
        served = self.path("served")
        os.makedirs(self.path("tree"))
        self.write("tree/program", "#!/bin/sh\n", mode=0o755)
        os.mkdir(served)
        archive = os.path.join(served, "thing-x64.tar.gz")
        subprocess.run(["tar", "-C", self.path("tree"), "-czf", archive, "."], check=True)
        with open(archive, "rb") as f:
            right = hashlib.sha256(f.read()).hexdigest()
        server = subprocess.Popen(["/usr/bin/python3", os.path.join(HERE, "..", "emulator", "serve_files.py"), served],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            url = server.stdout.readline().split()[1].rstrip("/")

            def thing(amd64):
                self.layer("thing", "requires: [base]\ndownload:\n  version: 1.0\n  url: \"%s/thing-{arch}.tar.gz\"\n"
                           "  arch: {amd64: x64, arm64: x64}\n  dest: /opt/thing\n  sha256: {%s}\n" % (url, amd64))
            wrong = "0" * 64
            thing("amd64: %s, arm64: %s" % (wrong, wrong))
            done = self.bad(self.build(layers="thing"), CONFIG, wrong)
            self.assertIn(right, done.stderr)
            self.assertEqual(os.listdir(self.path("cache", "sha256")), [])
            other = "arm64" if os.uname().machine == "x86_64" else "amd64"
            thing("%s: %s" % (other, right))
            self.bad(self.build(layers="thing"), HOST, "no sha256 for")
            thing("amd64: %s, arm64: %s" % (right, right))
            self.write("scene", "test -x $root/opt/thing/program\n")
            self.good(self.build(layers="thing"))
            self.assertEqual(self.manifest()["RUNNER_VERSION"], "1.0")
            self.assertEqual(self.manifest()["ALL_LAYERS"], "base,thing")
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()
        # The cache is enough for the next one.
        self.good(self.build("--force", layers="thing"))

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.write("scene", "touch %s; sleep 100\n" % self.path("there"))
            p = subprocess.Popen(self.command(), env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.wait_for("there")
            p.send_signal(number)
            _, words = p.communicate(timeout=30)
            self.assertEqual(p.returncode, INTERRUPTED, words)
            self.assertIn("interrupted", words)
            self.assertEqual(self.left(), [])
            os.unlink(self.path("there"))

    def test_killed(self):
        """What is left has no name that counts, its processes are gone, and the next build takes it away."""
        self.write("scene", "touch %s; sleep 31415\n" % self.path("there"))
        p = subprocess.Popen(self.command(), env=self.env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for("there")
        self.bad(self.build(), CONFLICT, "being built already", left=[".img.tmp"])
        p.kill()
        p.wait()
        for _ in range(100):
            if not self.sleepers():
                break
            time.sleep(0.05)
        self.assertEqual(self.sleepers(), [])
        self.assertEqual(self.left(), [".img.tmp"])
        os.unlink(self.path("scene"))
        self.good(self.build())
        self.assertEqual(self.left(), ["img"])

    def sleepers(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    if f.read() == b"sleep\x0031415\0":
                        found.append(pid)
            except OSError:
                pass
        return found

    def wait_for(self, name):
        for _ in range(400):
            if os.path.exists(self.path(name)):
                return
            time.sleep(0.05)
        self.fail("%s did not appear" % name)

    def test_a_link_does_not_lead_onto_the_host(self):
        self.layer("link", "files: [{source: guest/begin, dest: /var/out/begin, mode: \"0755\"}]\n")
        self.bad(self.build(layers="base,link"), FAILED, "/var/out/begin leads out of the image")
        self.assertEqual(os.listdir(self.path("outside")), [])

    def test_bad_input(self):
        self.bad(self.build(name="a/b"), USAGE, "a/b")
        self.bad(self.build(name=".."), USAGE, "'..'")
        self.bad(self.build("--ca", self.path("absent.pem")), 3, "absent.pem")
        self.bad(self.build("--ca", self.path("guest/begin")), USAGE, "holds no certificate")
        self.bad(self.build("--mirror", "deb http://x"), USAGE, "--mirror")
        self.bad(self.build("--suite", "a b"), USAGE, "--suite")
        self.bad(self.build("--disk", "0"), USAGE, "--disk")
        self.bad(self.build("--frob"), USAGE, "--help")
        self.bad(self.build(layers="absent"), 3, "absent")
        self.layer("bad", "pakages: [git]\n")
        self.bad(self.build(layers="bad"), CONFIG, "layers/bad.yaml:2: unknown key 'pakages'")
        self.assertFalse(os.path.exists(self.path("images")))

    def test_proxy(self):
        """What the guest's run-job reads; never a password, and another one is another image."""
        self.write("scene", "cp $root/etc/boxery/runner.env %s 2>/dev/null || :\n" % self.path("env"))
        for args, no_proxy in (((), "localhost,127.0.0.1,::1"), (("--no-proxy", "localhost,.example.org"), "localhost,.example.org")):
            self.assertNotIn("reused", self.good(self.build("--proxy", "http://proxy.example.org:3128", *args)))
            with open(self.path("env")) as f:
                self.assertEqual(f.read(), "http_proxy=http://proxy.example.org:3128\nhttps_proxy=http://proxy.example.org:3128\n"
                                 "no_proxy=%s\n" % no_proxy)
        os.unlink(self.path("env"))
        self.assertNotIn("reused", self.good(self.build()))
        self.assertFalse(os.path.exists(self.path("env")))
        for bad, words in (("http://me:secret@proxy:1", "--proxy: a proxy with a user or a password"), ("proxy:3128", "write it like http://HOST:PORT"),
                           ("http://", "write it like"), ("http://a b", "write it like"), ("http://a\nPATH=/tmp", "write it like"), ("http://a/b", "write it like")):
            done = self.bad(self.build("--proxy", bad), CONFIG, words, left=["img"])
            self.assertNotIn("secret", done.stderr)
        self.bad(self.build("--proxy", "http://a", "--no-proxy", "a b"), CONFIG, "--no-proxy: 'a b' is not a list of hosts", left=["img"])
        self.bad(self.build("--no-proxy", "a"), USAGE, "--no-proxy is for --proxy", left=["img"])

    def test_mirror(self):
        self.good(self.build("--mirror", "http://127.0.0.1/debian", "--suite", "trixie"))
        with open(self.path("arguments")) as f:
            self.assertEqual(f.read().split("\n")[-4:-1], [
                "deb http://127.0.0.1/debian trixie main", "deb http://127.0.0.1/debian trixie-updates main",
                "deb http://127.0.0.1/debian-security trixie-security main"])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if os.geteuid() != 0:
        print("skipped: building an image needs root")
        sys.exit(77)
    unittest.main(verbosity=1)
