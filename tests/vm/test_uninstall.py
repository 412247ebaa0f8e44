#!/usr/bin/python3
"""boxery-host uninstall on a real host: what libvirt, the kernel and the folders had before boxery is what they have after it."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lab import IMAGE, Lab, wait_until  # noqa: E402

FOLDERS = ("config", "state", "run/boxery", "image", "cache")


class Uninstall(unittest.TestCase):
    def look(self):
        """Everything of the host that a start, a capture and a guest leave traces in."""
        out = {}
        for what, command in {
                "domains": ("virsh", "-q", "list", "--all", "--name"), "networks": ("virsh", "-q", "net-list", "--all", "--name"),
                "filters": ("virsh", "-q", "nwfilter-list"), "bindings": ("virsh", "-q", "nwfilter-binding-list"),
                "tables": ("nft", "list", "tables"), "links": ("ip", "-br", "link"), "addresses": ("ip", "-br", "addr"),
                "routes": ("ip", "route"), "sockets": ("ss", "-Hxl")}.items():
            lines = self.lab.inside(command).stdout.splitlines()
            if what == "sockets":
                lines = [line for line in lines if "boxery" in line or self.lab.dir in line]
            # Whether an idle bridge is up or "unknown" is the kernel's mood.
            words = [line.replace(" linkdown", "").split() for line in lines if line.strip()]
            out[what] = sorted(" ".join(w[:1] if what == "links" else w[:1] + w[2:] if what == "addresses" else w) for w in words)
        return out

    def test_before_and_after(self):
        with Lab("uninstall") as self.lab:
            lab = self.lab
            # libvirt's own tables stay when its last network goes; they are there before, too, when it has had one.
            lab.inside(["sh", "-c", "printf '<network><name>before</name><forward mode=\"nat\"/><bridge name=\"virbr-before\"/>"
                        "<ip address=\"198.51.100.1\" netmask=\"255.255.255.0\"/></network>' > /tmp/before.xml; "
                        "virsh -q net-create /tmp/before.xml; virsh -q net-destroy before"])
            before = self.look()
            lab.host("init", check=False)
            lab.host("new", "plain", "--image", IMAGE, "--memory", "1G")
            lab.host("start", "plain")
            lab.new_pool_vm("one", wait=False)
            during = self.look()
            for what in ("domains", "networks", "tables", "links"):
                self.assertNotEqual(during[what], before[what], what)
            refused = lab.host("uninstall", check=False)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("VM       plain, PLAIN", refused.stdout)
            self.assertEqual(lab.vm("plain")["state"], "PLAIN")
            sys.stderr.write(lab.host("uninstall", "--yes").stdout)
            wait_until("the keeper's end", lambda: lab.keeper_pid() is None, 30)
            self.assertEqual(self.look(), before)
            self.assertEqual([f for f in FOLDERS if os.path.exists(os.path.join(lab.dir, f)) and os.listdir(os.path.join(lab.dir, f))], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
