#!/usr/bin/python3
"""boxery runners once with all that is real: gh over TLS, ssh to a real sshd, a real VM; from a shell that has nothing but HOME."""
import json
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import canary  # noqa: E402
from lab import IMAGE, LABELS, REPO, Lab, wait_until  # noqa: E402
from laptop import Laptop  # noqa: E402

# In a guest: from now on its sshd has another key than the host has made.
OTHER_KEY = "cd /run/boxery && ssh-keygen -q -t ed25519 -N '' -f other && mv other ssh_host_ed25519_key"


class Once(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab, cls.laptop = Lab("once"), None
        try:
            cls.lab.start()
            cls.laptop = Laptop(cls.lab)
            cls.lab.new_pool_vm("one", wait=False)
            cls.lab.wait_state("one", "READY")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if sys.exc_info()[0] or os.environ.get("BOXERY_SHOW_LOGS"):
            for name in ("state/keeper.log", "laptop/sshd.log"):
                sys.stderr.write("--- %s\n%s\n" % (name, cls.lab.log(name)[-6000:]))
        if cls.laptop:
            cls.laptop.stop()
        cls.lab.stop()

    def generation(self):
        return self.lab.vm("one")["generation"]

    def registered(self):
        return [r for r in self.lab.emulator.runners() if not r["foreign"] and r["state"] != "gone"]

    def back(self, generation):
        wait_until("one READY in a later life", lambda: (v := self.lab.vm("one"))["state"] == "READY" and v["generation"] > generation, 600,
                   every=0.5)
        self.assertEqual([x for x in self.lab.host_json("leases")["leases"] if x["open"]], [])

    def test_1_one_job(self):
        before = self.generation()
        p, seen = self.laptop.once("--follow", "--wait", "5m"), []
        self.assertTrue(self.laptop.until(p, "listening", seen), (seen, p.poll()))
        job = self.lab.emulator.job(REPO, LABELS, "id; sleep 5; echo fine", name="from the laptop")
        self.assertTrue(self.laptop.until(p, "running", seen), seen)
        runner = [r for r in self.lab.emulator.runners() if not r["foreign"]][-1]
        needles = runner["needles"] + [self.lab.emulator.token]
        here = [x for x in canary.in_processes(needles) if x[1] not in ("gh", "python3.11", "python3")]
        self.assertEqual(here, [], "a secret in an argv or environment of this machine")
        self.laptop.until(p, "", seen)
        self.assertEqual(p.wait(60), 0, (seen, p.stderr.read()))
        result = next(e for e in seen if e["event"] == "result")
        self.assertEqual((result["outcome"], result["job"], result["name"]), ("succeeded", "from the laptop", runner["name"]))
        self.assertTrue([e for e in seen if e["event"] == "output" and "Running job: from the laptop" in e["text"]], "nothing was followed")
        self.assertEqual(self.lab.emulator.wait_job(job["id"])["conclusion"], "success")
        self.back(before)
        found = canary.in_files(self.lab.dir, needles, lambda path: "/laptop/home/.config/gh/" in path)
        self.assertEqual(found, [], "a secret in a file of the host")
        lease = next(x for x in self.lab.host_json("leases", "--all")["leases"] if x["runner_name"] == runner["name"])
        self.assertEqual((lease["holder"], lease["outcome"], lease["registration"]), ("github-runner-local", "succeeded", "gone"))

    def test_2_the_laptop_goes_away(self):
        before = self.generation()
        p, seen = self.laptop.once("--wait", "5m"), []
        self.assertTrue(self.laptop.until(p, "delivered", seen), seen)
        p.send_signal(signal.SIGKILL)
        p.wait()
        self.back(before)
        # Nobody is left who could delete the registration; its only configuration went with the VM.
        self.assertEqual(len(self.registered()), 1)
        self.lab.emulator.reset()
        self.lab.emulator.repo(REPO)

    def test_3_interrupted(self):
        """And for a moment, when it is delivered, the host has no route to the guest."""
        lease = self.lab.host_json("lease", "one")
        self.lab.host("release", lease["lease"])
        self.back(lease["generation"])
        before = self.generation()
        route = ["unreachable", lease["address"] + "/32"]
        self.lab.inside(["ip", "route", "add", *route])
        try:
            p, seen = self.laptop.once("--wait", "5m"), []
            self.assertTrue(self.laptop.until(p, "registered", seen), seen)
            time.sleep(1)
        finally:
            self.lab.inside(["ip", "route", "del", *route])
        self.assertTrue(self.laptop.until(p, "listening", seen), seen)
        p.send_signal(signal.SIGINT)
        self.laptop.until(p, "", seen)
        self.assertEqual(p.wait(60), 130, (seen, p.stderr.read()))
        self.assertEqual(self.registered(), [])
        self.back(before)

    def test_4_setup(self):
        self.assertRegex(self.laptop.boxery("setup", "vmhost", check=False).stdout, r"^vmhost: boxery \S+, x64\n")
        self.assertIn("one", self.laptop.boxery("ls").stdout)

    def host(self, *arguments, check=True, **more):
        return self.laptop.boxery("--host", "vmhost", *arguments, check=check, **more)

    def refused(self, done):
        self.assertEqual(done.returncode, 255, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"(?m)^Host key for (plain|one) has changed and you have requested strict checking\.\r?$")
        self.assertIn("Host key verification failed.", done.stderr)

    def test_5_ssh(self):
        """A VM of `new` and `start`: the host logs in, and takes no key but the one that it made for this life."""
        self.host("new", "plain", "--image", IMAGE, "--memory", "1G")
        self.host("start", "plain")
        for command in (["cat /run/boxery/generation; id -un; exit 7"], ["--", "cat /run/boxery/generation; id -un; exit 7"]):
            r = self.host("ssh", "plain", *command, check=False)
            self.assertEqual((r.returncode, r.stdout.split()), (7, [str(self.lab.vm("plain")["generation"]), "root"]), r.stderr)
        self.assertEqual(self.host("ssh", "plain", input="uname -n\n").stdout, "plain\n")
        # Somebody else answers there.
        self.host("ssh", "plain", OTHER_KEY)
        self.refused(self.host("ssh", "plain", "--", "echo", "in", check=False))
        self.refused(self.host("ssh", "plain", check=False))
        # The next life has another key, and there is nothing that would have to be forgotten first.
        self.host("stop", "plain")
        self.host("start", "plain")
        self.assertEqual(self.host("ssh", "plain", "--", "echo", "in").stdout, "in\n")
        self.host("rm", "--force", "plain")

    def test_6_ssh_config(self):
        """A leased VM, by the laptop's own ssh and key, through the host: who it is the host is asked each time."""
        self.lab.wait_state("one", "READY")
        lease = json.loads(self.host("lease", "one", "--wait", "10m", "--ssh-key", self.laptop.path("home/.ssh/id_ed25519.pub"), "--json").stdout)
        self.laptop.write("home/.ssh/boxery", self.host("ssh-config").stdout)
        with open(self.laptop.path("home/.ssh/config"), encoding="ascii") as f:
            before = f.read()
        self.laptop.write("home/.ssh/config", "Include boxery\n" + before)
        r = self.laptop.ssh("-v", "one.boxery", "cat", "/run/boxery/generation")
        self.assertEqual(int(r.stdout), lease["generation"])
        self.assertRegex(r.stderr, rf"Executing proxy command: exec /usr/bin/ssh .*-W '?\[{lease['address']}\]:22'? vmhost")
        self.laptop.ssh("one.boxery", OTHER_KEY)
        self.refused(self.laptop.ssh("one.boxery", "echo", "in", check=False))
        # No key counts that was taken before, and none is remembered.
        with open(self.laptop.path("home/.ssh/known_hosts"), encoding="ascii") as f:
            self.assertEqual(len(f.readlines()), 1)
        self.host("release", lease["lease"])
        r = self.laptop.ssh("one.boxery", "echo", "in", check=False)
        self.assertEqual((r.returncode, r.stdout), (255, ""), r.stderr)
        self.lab.wait_state("one", "READY")


if __name__ == "__main__":
    unittest.main(verbosity=2)
