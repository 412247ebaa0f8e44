#!/usr/bin/python3
"""A clean VM for anybody: `lease --ssh-key --exec ssh` on a real guest, its reset, and the next one's new host key."""
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lab import BUILD, Lab, wait_until  # noqa: E402

SSH = ("exec ssh -F /dev/null -i $KEY -o UserKnownHostsFile=$BOXERY_KNOWN_HOSTS -o GlobalKnownHostsFile=/dev/null "
       "-o StrictHostKeyChecking=yes -o BatchMode=yes -p $BOXERY_PORT root@$BOXERY_ADDRESS ")


class Lease(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab("lease")
        cls.keys = tempfile.TemporaryDirectory(prefix="boxery-lease-")
        for name in ("mine", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(cls.keys.name, name)], check=True)
        try:
            cls.lab.start()
            cls.lab.new_pool_vm("one")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if sys.exc_info()[0] or os.environ.get("BOXERY_SHOW_LOGS"):
            sys.stderr.write("--- keeper.log\n%s\n" % cls.lab.log("state/keeper.log")[-6000:])
        cls.lab.stop()
        cls.keys.cleanup()

    def ssh(self, key, command, check=True):
        """A program run while a VM is leased: ssh into it, from inside the world."""
        return self.lab.inside(["env", "KEY=" + os.path.join(self.keys.name, key), os.path.join(BUILD, "boxery-host"), "lease",
                                "--wait", "5m", "--ssh-key", os.path.join(self.keys.name, "mine.pub"), "--exec", "sh", "-c",
                                SSH + "'" + command + "'"], check=check)

    def test_exec(self):
        lab = self.lab
        first = self.ssh("mine", "id -un; touch /root/mark; cat /run/boxery/generation; exit 3", check=False)
        self.assertEqual(first.returncode, 3, first.stderr)
        user, generation = first.stdout.split()
        self.assertEqual(user, "root")
        # Reset: another life, nothing of the last one, and a stranger's key opens nothing.
        second = self.ssh("mine", "ls /root/mark; cat /run/boxery/generation", check=False)
        self.assertIn("No such file", second.stderr)
        self.assertGreater(int(second.stdout), int(generation))
        stranger = self.ssh("other", "true", check=False)
        self.assertEqual(stranger.returncode, 255)
        self.assertIn("Permission denied", stranger.stderr)
        # The guest powers itself off: the program ends with its connection, the lease with the VM.
        begun = time.monotonic()
        self.ssh("mine", "systemctl poweroff; sleep 60", check=False)
        self.assertLess(time.monotonic() - begun, 300)
        lab.wait_state("one", "READY")
        self.assertEqual(lab.host_json("lease", "ls")["leases"], [])

    def test_keep(self):
        lab = self.lab
        lab.wait_state("one", "READY")
        lease = lab.host_json("lease", "one")["lease"]
        lab.host("pool", "keep", "one")
        lab.host("release", lease)
        lab.wait_state("one", "KEPT")
        # Committed first, shut off then.
        wait_until("one is off", lambda: not lab.vm("one")["running"])
        vm = lab.host_json("pool", "show", "one")["vm"]
        self.assertTrue(os.path.getsize(vm["evidence"]) > 0)
        lab.host("pool", "repair", "one", "--wait")
        self.assertEqual(lab.vm("one")["state"], "READY")


if __name__ == "__main__":
    unittest.main(verbosity=2)
