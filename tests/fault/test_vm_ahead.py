#!/usr/bin/python3
"""boxery-vm on libvirt's test driver: a child that was started ahead of its request, and what may happen while it waits."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from vm_driver import KEY, URI, WORLD, DriverCase, run  # noqa: E402
from proto import until  # noqa: E402

ECONNREFUSED = -111


class Ahead(DriverCase):
    def waiting(self):
        child, sock = self.vm.ahead()

        def connected():
            # Below the world's wrapper, which becomes it.
            with open("/proc/%d/comm" % child.pid) as f:
                name = f.read().strip()
            try:
                sockets = [x for x in os.listdir("/proc/%d/fd" % child.pid)
                           if os.readlink("/proc/%d/fd/%s" % (child.pid, x)).startswith("socket:")]
            except FileNotFoundError:  # it has just closed one of them
                return False
            return name == "boxery-vm-spare" and len(sockets) > 1
        until(connected)
        return child, sock

    def ask(self, ahead, verb, name="", **more):
        self.vm.ask(ahead[1], verb, name, **more)
        return self.vm.collect(*ahead)

    def test_waits(self):
        child, sock = self.waiting()
        sock.close()
        self.assertNotEqual(child.wait(10), 0)
        child, sock = self.waiting()
        sock.send(b"start b")
        self.assertNotEqual(child.wait(10), 0)
        sock.close()
        ahead = self.waiting()
        time.sleep(0.3)
        self.assertIsNone(ahead[0].poll())
        self.good(self.ask(ahead, "start", "b", generation=1, key_line=KEY))
        self.assertEqual(self.entry()["running"], 1)

    def test_libvirt_was_restarted(self):
        gone, back = self.waiting(), self.waiting()
        run([WORLD, "libvirtd-kill", self.dir])
        away = self.vm.ahead()
        answer = self.ask(gone, "list")
        self.assertEqual(answer.code, ECONNREFUSED, answer.result)
        run([WORLD, "libvirtd-start", self.dir])
        self.assertIsNotNone(self.good(self.ask(back, "list")).entry("b"))
        self.assertIsNotNone(self.good(self.ask(away, "list")).entry("b"))

    def test_settings_are_those_of_the_request(self):
        ahead = self.waiting()
        self.setting("BOXERY_LIBVIRT_URI", "test+unix:///nowhere/at/all")
        try:
            self.assertFalse(self.ask(ahead, "list").ok)
        finally:
            self.setting("BOXERY_LIBVIRT_URI", URI)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: namespaces and a libvirtd of one's own need root")
        sys.exit(77)
    unittest.main(verbosity=2)
