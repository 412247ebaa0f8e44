#!/usr/bin/python3
"""Memory images with real guests: what comes out of a restore is the machine that was captured, and nobody else's."""
import datetime
import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_vm  # noqa: E402
from vmctl import STANDBY, WARM  # noqa: E402

EIO = -5
MEMORY_MIB = 512
GENEROUS_MS = 600000


class Warm(test_vm.Case):
    """One VM, captured once. A pool VM's only way in is the delivery key, so what a test wants to know of the guest it asks
    the agent, as boxery-vm does."""

    @classmethod
    def prepare(cls):
        w = cls.world
        cls.generation = 0
        assert w.new("a", 0, memory_mib=MEMORY_MIB).ok
        assert w.vm.call("capture", "a").ok

    def start(self, flags=WARM, **more):
        type(self).generation += 1
        return self.world.start("a", self.generation, flags, timeout=900, timeout_ms=GENEROUS_MS, **more)

    def wake(self):
        return self.world.vm.call("wake", "a", generation=self.generation, key_line=self.world.key_line)

    def reset(self):
        return self.good(self.world.vm.call("reset", "a", generation=self.generation))

    def steps(self, answer):
        return [s["step"] for s in answer.steps]

    def memory(self, answer):
        return next(s["text"] for s in answer.steps if s["step"] == "memory")

    def agent(self, *command):
        """The output of a command in the guest, by its agent."""
        import base64
        import json
        q = {"execute": "guest-exec", "arguments": {"path": command[0], "arg": list(command[1:]), "capture-output": True}}

        def call(q):
            return json.loads(self.world.inside("virsh", "-q", "qemu-agent-command", "a", json.dumps(q)).stdout)["return"]
        pid = call(q)["pid"]
        while True:
            status = call({"execute": "guest-exec-status", "arguments": {"pid": pid}})
            if status["exited"]:
                return base64.b64decode(status.get("out-data", "")).decode()
            time.sleep(0.1)

    def tearDown(self):
        """A test that has failed in the middle leaves its life to nobody."""
        self.world.vm.call("reset", "a", generation=self.generation)

    def image(self, *parts):
        return self.world.path("images", "a@boxery-warm", *parts)

    def test_1_capture_restore_and_differ(self):
        first = self.good(self.start())
        self.assertEqual(first.result["warm"], 1)
        self.assertIn("there is no memory image", self.memory(first))
        seen = self.random()
        self.reset()
        second = self.good(self.start())
        self.assertIn(" ".join(self.manifest()["CAPTURED"].split()[:1]), self.memory(second))
        for step in ("ready", "settle", "save"):
            self.assertIn(step, self.steps(first))
            self.assertNotIn(step, self.steps(second))
        other = self.random()
        # The same boot, another life: nothing that a random generator gave comes twice.
        self.assertEqual(seen.pop("boot_id"), other.pop("boot_id"))
        for what in seen:
            self.assertNotEqual(seen[what], other[what], what)
        self.assertNotEqual(first.result["host_key"], second.result["host_key"])
        self.assertNotEqual(self.host_key_offered(), "")
        # This life writes to its own console.
        self.agent("/bin/sh", "-c", "echo boxery-marker >/dev/console")
        with open(self.world.path("console", "a.log"), errors="replace") as f:
            self.assertIn("boxery-marker", f.read())
        self.chain()
        self.reset()

    def random(self):
        out = self.agent("/bin/sh", "-c", "cat /proc/sys/kernel/random/uuid; head -c 32 /dev/urandom | base64; "
                         "ssh-keygen -q -t ed25519 -N '' -f /run/k && cut -d' ' -f2 /run/k.pub; cat /proc/sys/kernel/random/boot_id; "
                         "cat /run/boxery/generation").split()
        self.assertEqual(len(out), 5)
        self.assertEqual(int(out[4]), self.generation)
        return dict(zip(("uuid", "urandom", "ssh key", "boot_id", "generation"), out))

    def host_key_offered(self):
        """What sshd shows is the key of this life: asked over the network."""
        out = self.world.inside("ssh-keyscan", "-T", "30", "-t", "ed25519", "192.168.130.10", check=False).stdout
        keys = [" ".join(line.split()[1:3]) for line in out.splitlines() if not line.startswith("#")]
        self.assertEqual(keys, [self.world.host_keys["a"][1]])
        return keys[0]

    def chain(self):
        xml = self.world.inside("virsh", "dumpxml", "a").stdout
        files = [f for f in re.findall(r"<source file='([^']+)'", xml) if f.endswith(".qcow2")]
        self.assertEqual([os.path.relpath(f, self.world.path()) for f in files],
                         ["run/a.qcow2", "images/a@boxery-warm/disk.qcow2", "images/a@boxery-clean/disk.qcow2",
                          "base/%s/disk.qcow2" % self.world.image])

    def manifest(self, **change):
        with open(self.image("manifest.env")) as f:
            facts = dict(line.rstrip("\n").split("=", 1) for line in f)
        if change:
            facts.update(change)
            with open(self.image("manifest.env"), "w") as f:
                f.writelines("%s=%s\n" % item for item in facts.items())
        return facts

    def test_2_standby(self):
        answer = self.good(self.start(WARM | STANDBY))
        self.assertEqual((answer.result["standby"], answer.result["host_key"]), (1, ""))
        self.assertEqual(self.world.inside("virsh", "-q", "domstate", "a").stdout.strip(), "paused")
        self.assertEqual(self.world.vm.call("list").entry("a")["trouble"], "")
        awake = self.good(self.wake())
        self.assertEqual(self.world.vm.call("list").entry("a")["trouble"], "")
        self.assertEqual(self.good(self.wake()).result["host_key"], awake.result["host_key"])
        skew = abs(float(self.agent("/bin/date", "+%s.%N")) - time.time())
        self.assertLess(skew, 5)
        self.reset()

    def test_3_no_secret_in_an_image(self):
        """Of lives that have been, and of the one whose start made the capture: no key of any is in memory or disk."""
        words = [self.world.key_line.split()[1].encode()]
        self.manifest(QEMU="1")
        answer = self.good(self.start())
        self.assertIn("captured anew", self.memory(answer))
        words.append(answer.result["host_key"].split()[1].encode())
        words.append(b"OPENSSH PRIVATE KEY-----\n" + b"b3BlbnNzaC1rZXktdjE")
        with open(self.image("memory"), "rb") as f:
            memory = f.read()
        # That it would be found: what the guest does have in memory is.
        self.assertIn(b"boxery-ssh.socket", memory)
        for word in words:
            self.assertNotIn(word, memory)
        disk = self.world.inside("qemu-img", "convert", "-O", "raw", self.image("disk.qcow2"),
                                 os.path.join(self.world.dir, "raw"))
        self.assertEqual(disk.returncode, 0)
        for word in words:
            found = self.world.inside("grep", "-c", "-a", "-F", word.decode().split("\n")[0], os.path.join(self.world.dir, "raw"),
                                      check=False)
            if not word.startswith(b"OPENSSH"):
                self.assertEqual(found.returncode, 1)
        os.unlink(os.path.join(self.world.dir, "raw"))
        # While this life has it: the search is not blind to how a guest keeps it.
        self.assertIn(words[1].decode()[:40], self.agent("/usr/bin/ssh-keygen", "-y", "-f", "/run/boxery/ssh_host_ed25519_key"))
        self.reset()

    def test_4_damaged_memory(self):
        os.chmod(self.image("memory"), 0o600)
        stat = os.stat(self.image("memory"))
        with open(self.image("memory"), "r+b") as f:
            f.truncate(stat.st_size // 2)
        # Found by its size.
        self.manifest(MEMORY_IDENTITY=self.identity("memory"))
        # And if that had been forged as well, by libvirt; then it is not tried again.
        self.bad(self.start(), EIO, "memory image dropped")
        self.assertFalse(os.path.exists(self.image()))
        self.reset()

    def identity(self, name):
        stat = os.stat(self.image(name))
        return "%d:%d:%d.%09d" % (stat.st_ino, stat.st_size, stat.st_mtime_ns // 10**9, stat.st_mtime_ns % 10**9)

    def test_5_killed_in_capture_and_restore(self):
        """kill -9 of boxery-vm while it saves, and while it restores."""
        for step in ("settle", "memory"):
            type(self).generation += 1
            child, sock = self.world.vm.spawn("start", "a", generation=self.generation, flags=WARM | STANDBY,
                                              key_line=self.world.key_line, timeout_ms=GENEROUS_MS)
            while True:
                kind, value = self.world.vm.receive(sock, 900)
                if value["step"] == step:
                    break
            time.sleep(0.2)
            child.send_signal(signal.SIGKILL)
            child.wait()
            sock.close()
            self.reset()
            self.assertFalse(self.world.domain("a"))
            self.assertEqual([n for n in os.listdir(self.world.path("images")) if n.startswith(".")], [])
            self.good(self.start())
            self.reset()

    def test_6_ninety_days_later(self):
        """The clock of the image is far behind: after the wake it is right, and nothing has woken up in the guest."""
        past = datetime.datetime.now() - datetime.timedelta(days=90)
        self.manifest(QEMU="1")
        # The capture itself runs with the clock of the past.
        child, sock = self.world.vm.spawn("start", "a", generation=self.generation + 1, flags=WARM | STANDBY,
                                          key_line=self.world.key_line, timeout_ms=GENEROUS_MS)
        type(self).generation += 1
        moved = []

        def on(kind, value):
            if value.get("step") == "ready":
                self.agent("/bin/date", "-s", past.strftime("%Y-%m-%d %H:%M:%S"))
                moved.append(True)
        self.good(self.world.vm.collect(child, sock, timeout=900, on=on))
        self.assertTrue(moved)
        self.good(self.wake())
        self.assertLess(abs(float(self.agent("/bin/date", "+%s.%N")) - time.time()), 5)
        self.assertEqual(self.agent("/usr/bin/systemctl", "list-timers", "--all", "--no-legend").strip(), "")
        self.assertEqual(self.agent("/usr/bin/systemctl", "list-jobs", "--no-legend").strip(), "")
        self.reset()


if __name__ == "__main__":
    unittest.main(verbosity=2)
