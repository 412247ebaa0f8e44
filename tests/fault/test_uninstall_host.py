#!/usr/bin/python3
"""boxery-host uninstall on a libvirtd, a network, nft and qemu-img that are real, in a world of its own; only guests there are none:

    test_uninstall_host.py BUILD [TEST]     the quick tier runs Uninstall.test_with_nft; all take half a minute

What libvirt, the kernel and the folders had before boxery is what they have after it."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from lab import WORLD, run, wait_until  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
FOLDERS = ("config", "state", "run/boxery", "image", "cache")
OK, FAILED, USAGE, CONFLICT = 0, 1, 2, 4
NETWORK = """<network><name>%s</name><forward mode='nat'/><bridge name='%s'/>
<ip address='198.51.100.1' netmask='255.255.255.0'/></network>"""


class Uninstall(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="boxery-uninstall-")
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.addCleanup(run, [WORLD, "stop", self.dir], False)
        run([WORLD, "start", self.dir])
        # libvirt's own chains stay when its last network goes; so it has had one.
        self.network("before", "virbr-before")
        self.inside("virsh", "-q", "net-destroy", "before")

    def inside(self, *command, check=True):
        return run([WORLD, "run", self.dir, "--", *command], check=check)

    def host(self, *args, check=True):
        return self.inside(os.path.join(BUILD, "boxery-host"), *args, check=check)

    def network(self, name, bridge):
        path = os.path.join(self.dir, "network.xml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(NETWORK % (name, bridge))
        self.inside("virsh", "-q", "net-create", path)
        os.unlink(path)

    def base_image(self):
        folder = os.path.join(self.dir, "image", "base", "tiny")
        os.makedirs(folder)
        disk = os.path.join(folder, "disk.qcow2")
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "64M"], check=True)
        with open(disk, "rb") as f:
            data = f.read()
        for name in ("vmlinuz", "initrd"):
            with open(os.path.join(folder, name), "w", encoding="ascii"):
                pass
        with open(os.path.join(folder, "manifest.env"), "w", encoding="ascii") as f:
            f.write("ARCH=%s\nKERNEL=vmlinuz\nINITRD=initrd\nCMDLINE=quiet\nDISK_SHA256=%s\nDISK_FILE_SIZE=%d\nDISK_SIZE=%d\n" % (
                os.uname().machine, hashlib.sha256(data).hexdigest(), len(data), 64 << 20))

    def look(self):
        """Everything of the host that boxery leaves traces in."""
        out = {}
        for what, command in {
                "domains": ("virsh", "-q", "list", "--all", "--name"), "networks": ("virsh", "-q", "net-list", "--all", "--name"),
                "filters": ("virsh", "-q", "nwfilter-list"), "tables": ("nft", "list", "tables"), "links": ("ip", "-br", "link"),
                "addresses": ("ip", "-br", "addr"), "routes": ("ip", "route"), "sockets": ("ss", "-Hxl")}.items():
            lines = [x for x in self.inside(*command).stdout.splitlines() if x.strip() and (what != "sockets" or "boxery/" in x)]
            # Whether an idle bridge is up or "unknown" is the kernel's mood.
            words = [x.replace(" linkdown", "").split() for x in lines]
            out[what] = sorted(" ".join(w[:1] if what == "links" else w[:1] + w[2:] if what == "addresses" else w) for w in words)
        return out

    def folders(self):
        return [f for f in FOLDERS if os.path.isdir(os.path.join(self.dir, f)) and os.listdir(os.path.join(self.dir, f))]

    def keepers(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    mine = self.dir.encode() in f.read()
                if mine and os.path.basename(os.readlink("/proc/%s/exe" % pid)) in ("boxery-keeper", "boxery-vm"):
                    found.append(pid)
            except OSError:
                continue
        return found

    def before_and_after(self, implementation):
        with open(os.path.join(self.dir, "config", "host.env"), "a", encoding="ascii") as f:
            f.write("BOXERY_NET_FILTER=%s\n" % implementation)
        before = self.look()
        self.base_image()
        self.host("init", check=False)
        self.host("new", "plain", "--image", "tiny", "--memory", "256M", "--disk", "1G")
        during = self.look()
        changed = {what for what in before if before[what] != during[what]}
        self.assertLessEqual({"networks", "tables", "links", "addresses", "sockets"}, changed)
        self.assertEqual("filters" in changed, implementation == "nwfilter")
        refused = self.host("uninstall", check=False)
        self.assertEqual(refused.returncode, USAGE, refused.stderr)
        self.assertIn("VM       plain, PLAIN", refused.stdout)
        self.assertEqual(self.look(), during)
        done = self.host("uninstall", "--yes")
        self.assertIn("network boxery and its rules were removed", done.stdout)
        wait_until("the keeper's end", lambda: not self.keepers(), 30)
        self.assertEqual(self.look(), before)
        self.assertEqual(self.folders(), [])

    def test_with_nft(self):
        self.before_and_after("nft")

    def test_with_nwfilter(self):
        self.before_and_after("nwfilter")

    def test_anothers_network_of_that_name(self):
        """It is named, and left; nothing of the folders goes before."""
        self.network("boxery", "virbr-other")
        done = self.host("uninstall", "--yes", check=False)
        self.assertEqual(done.returncode, CONFLICT, done.stderr)
        self.assertIn("a network named boxery that was not made by boxery", done.stderr)
        self.assertIn("boxery", self.look()["networks"])
        self.assertIn("config", self.folders())
        self.inside("virsh", "-q", "net-destroy", "boxery")
        self.host("uninstall", "--yes")
        self.assertEqual(self.folders(), [])

    def test_a_guest_of_ours_that_no_keeper_knows(self):
        """A settings file without a row in the database: nothing is taken from under it."""
        self.base_image()
        self.host("new", "plain", "--image", "tiny", "--memory", "256M", "--disk", "1G")
        self.host("keeper", "stop")
        for name in os.listdir(os.path.join(self.dir, "state")):
            if name.startswith("boxery.db"):
                os.unlink(os.path.join(self.dir, "state", name))
        done = self.host("uninstall", "--yes", check=False)
        self.assertEqual(done.returncode, CONFLICT, done.stdout + done.stderr)
        self.assertIn("there are files of a VM 'plain' that the keeper knows nothing of; say --force", done.stderr)
        self.assertIn("image", self.folders())
        self.host("uninstall", "--yes", "--force")
        self.assertEqual(self.folders(), [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: namespaces and a libvirtd of one's own need root")
        sys.exit(77)
    unittest.main(verbosity=2)
