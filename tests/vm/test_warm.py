#!/usr/bin/python3
"""Memory images with real guests: what comes out of a restore is the machine that was captured, and nobody else's."""
import base64
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jail  # noqa: E402
import test_vm  # noqa: E402
from lab import run, wait_until  # noqa: E402
from vmctl import STANDBY, WARM  # noqa: E402

EIO = -5
MEMORY_MIB = 512
GENEROUS_MS = 600000
OLD = datetime.timedelta(days=90)
TLS_SERVER = "203.0.113.10:8443"
AGENT_S = 60
CHUNK = 16 << 20


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
        answer = self.world.vm.call("wake", "a", generation=self.generation, key_line=self.world.key_line)
        if answer.ok:
            self.world.host_keys["a"] = (answer.result["address"], answer.result["host_key"])
        return answer

    def reset(self):
        return self.good(self.world.vm.call("reset", "a", generation=self.generation))

    def steps(self, answer):
        return [s["step"] for s in answer.steps]

    def memory(self, answer):
        return next(s["text"] for s in answer.steps if s["step"] == "memory")

    def agent(self, *command):
        """The output of a command in the guest, by its agent."""
        return self.agent_status(*command)[1]

    def agent_status(self, *command):
        """(exit status, output)"""
        q = {"execute": "guest-exec", "arguments": {"path": command[0], "arg": list(command[1:]), "capture-output": True}}

        def call(q):
            return json.loads(self.world.inside("virsh", "-q", "qemu-agent-command", "--timeout", str(AGENT_S), "a", json.dumps(q)
                                                ).stdout)["return"]
        pid = call(q)["pid"]

        def ended():
            status = call({"execute": "guest-exec-status", "arguments": {"pid": pid}})
            return status if status["exited"] else None
        status = wait_until("the end of %s in the guest" % command[0], ended, AGENT_S, every=0.1)
        return status.get("exitcode"), base64.b64decode(status.get("out-data", "")).decode()

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
        # Any key at all: how the text of one begins. Programs know the first line only.
        words.append(b"OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE")
        with open(self.image("memory"), "rb") as f:
            memory = f.read()
        # That it would be found: what the guest does have in memory is.
        self.assertIn(b"boxery-ssh.socket", memory)
        for word in words:
            self.assertNotIn(word, memory)
        raw = os.path.join(self.world.dir, "raw")
        self.world.inside("qemu-img", "convert", "-O", "raw", self.image("disk.qcow2"), raw)
        self.assertEqual(self.found_in_file(raw, *words, b"boxery-ssh.socket"), {b"boxery-ssh.socket"})
        os.unlink(raw)
        # While this life has it: the search is not blind to how a guest keeps it.
        self.assertIn(words[1].decode()[:40], self.agent("/usr/bin/ssh-keygen", "-y", "-f", "/run/boxery/ssh_host_ed25519_key"))
        secret = self.agent("/bin/cat", "/run/boxery/ssh_host_ed25519_key").splitlines()[2].encode()
        self.assertNotIn(secret, memory)
        late = os.path.join(self.world.dir, "late")
        self.world.inside("virsh", "-q", "save", "a", late)
        with open(late, "rb") as f:
            memory = f.read()
        os.unlink(late)
        for word in (secret, words[0]):
            self.assertIn(word, memory)
        self.reset()

    @staticmethod
    def found_in_file(path, *words):
        """Of a sparse file only what is not a hole is read."""
        found, keep, end = set(), max(map(len, words)), os.path.getsize(path)
        fd = os.open(path, os.O_RDONLY)
        try:
            at = 0
            while at < end:
                try:
                    at = os.lseek(fd, at, os.SEEK_DATA)
                except OSError:
                    break
                to = min(os.lseek(fd, at, os.SEEK_HOLE), at + CHUNK)
                start = max(0, at - keep)
                chunk = os.pread(fd, to - start, start)
                found |= {w for w in words if w in chunk}
                at = to
        finally:
            os.close(fd)
        return found

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

    def test_5_killed_in_capture_restore_and_wake(self):
        """kill -9 of boxery-vm while it saves, while it restores, and while the guest begins its life."""
        self.good(self.start())
        self.reset()
        self.kill_after("start", "memory", flags=WARM | STANDBY)
        self.good(self.start(WARM | STANDBY))
        self.kill_after("wake", "resume")
        self.manifest(QEMU="1")
        before = self.files()
        self.kill_after("start", "settle", flags=WARM | STANDBY)
        # What was there before the capture that was killed is there as it was.
        self.assertEqual(self.files(), before)
        self.good(self.start())
        self.assertNotEqual(self.files(), before)
        self.reset()

    def kill_after(self, verb, step, **more):
        """Kills it when it has said that this step is done, in the middle of the next; then the reset."""
        if verb == "start":
            type(self).generation += 1
        child, sock = self.world.vm.spawn(verb, "a", generation=self.generation, key_line=self.world.key_line,
                                          timeout_ms=GENEROUS_MS, **more)
        while True:
            _, value = self.world.vm.receive(sock, 900)
            if value["step"] == step:
                break
        time.sleep(0.02 if verb == "wake" else 0.2)
        child.send_signal(signal.SIGKILL)
        child.wait()
        sock.close()
        self.reset()
        self.assertFalse(self.world.domain("a"))
        self.assertEqual([n for n in os.listdir(self.world.path("images")) if n.startswith(".")], [])

    def files(self):
        return {n: (self.identity(n), os.stat(self.image(n)).st_mode) for n in os.listdir(self.image())}

    def test_6_ninety_days_later(self):
        """An image whose guest and files are of 90 days ago: after the wake the time is right, TLS works, and nothing has woken up,
        asked for an address or told anybody that it is there."""
        jobs = self.capture_in_the_past()
        self.reset()
        self.make_files_old()
        answer = self.good(self.start(WARM | STANDBY))
        self.assertEqual("of " + self.manifest()["CAPTURED"], self.memory(answer))
        with self.tls_server() as certificate:
            sniffer = jail.sniffer(self.world.enter(), "boxery-10")
            try:
                self.good(self.wake())
                time.sleep(3)
            finally:
                frames = [bytes.fromhex(line.split()[1]) for line in sniffer.stop()]
            self.assertLess(abs(float(self.agent("/bin/date", "+%s.%N")) - time.time()), 5)
            self.nothing_has_woken(jobs)
            # By itself it says who has which address, at most (ARP); QEMU says where its card is (RARP), which the filter drops.
            sent = {f[12:14].hex() for f in frames if f[6:12] == jail.mac_bytes("52:54:00:b0:0e:0a")}
            self.assertLessEqual(sent, {"0806", "8035"})
            self.assertIn("192.168.130.10/24", self.agent("/bin/ip", "-4", "-o", "address", "show", "dev", "eth0"))
            self.assertIn("valid_lft forever", self.agent("/bin/ip", "-4", "-o", "address", "show", "dev", "eth0"))
            self.host_key_offered()
            self.tls_works(certificate)
        self.reset()

    def capture_in_the_past(self):
        """Captures anew, in a guest whose clock is far behind; the number of jobs that systemd had had before."""
        if os.path.exists(self.image("manifest.env")):
            self.manifest(QEMU="1")
        type(self).generation += 1
        child, sock = self.world.vm.spawn("start", "a", generation=self.generation, flags=WARM | STANDBY,
                                          key_line=self.world.key_line, timeout_ms=GENEROUS_MS)
        jobs = []

        def on(kind, value):
            if value.get("step") == "ready":
                child.send_signal(signal.SIGSTOP)
                self.agent("/bin/date", "-s", (datetime.datetime.now() - OLD).strftime("%Y-%m-%d %H:%M:%S"))
                jobs.append(self.jobs())
                child.send_signal(signal.SIGCONT)
        self.good(self.world.vm.collect(child, sock, timeout=900, on=on))
        self.assertEqual(len(jobs), 1)
        return jobs[0]

    def make_files_old(self):
        old = (datetime.datetime.now() - OLD).timestamp()
        for name in ("memory", "disk.qcow2", "overlay.qcow2", "guest.txt"):
            os.utime(self.image(name), (old, old))
        self.manifest(CAPTURED=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(old)), MEMORY_IDENTITY=self.identity("memory"),
                      DISK_IDENTITY=self.identity("disk.qcow2"), OVERLAY_IDENTITY=self.identity("overlay.qcow2"),
                      GUEST_IDENTITY=self.identity("guest.txt"))

    def jobs(self):
        """How many jobs systemd has had since the boot."""
        return int(self.agent("/usr/bin/systemctl", "show", "-p", "NInstalledJobs", "--value"))

    def timers(self):
        """Those that will elapse."""
        return self.agent("/usr/bin/systemctl", "list-timers", "--no-legend").strip()

    def nothing_has_woken(self, jobs):
        self.assertEqual(self.jobs(), jobs)
        self.assertEqual(self.timers(), "")
        self.assertEqual(self.agent("/usr/bin/systemctl", "list-jobs", "--no-legend").strip(), "")
        # There is no runner, and nothing that one leaves: it is registered anew for each life, by the host.
        self.assertEqual(self.agent("/bin/sh", "-c", "ls -d /opt/actions-runner/.[rc]* /run/boxery/job 2>/dev/null || true"), "")
        # That it would be seen: a timer of every second.
        self.agent("/usr/bin/systemd-run", "-q", "--unit=probe", "--on-calendar=*:*:*", "--timer-property=AccuracySec=100ms", "/bin/true")
        self.assertIn("probe.timer", self.timers())
        wait_until("a job of the timer", lambda: self.jobs() > jobs + 1, AGENT_S)
        self.agent("/usr/bin/systemctl", "stop", "probe.timer")

    @contextlib.contextmanager
    def tls_server(self):
        """In the internet's place, with a certificate from today on; its text."""
        key, certificate = os.path.join(self.world.dir, "tls.key"), os.path.join(self.world.dir, "tls.pem")
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out",
             certificate, "-days", "2", "-subj", "/CN=203.0.113.10", "-addext", "subjectAltName=IP:203.0.113.10"])
        command = ["openssl", "s_server", "-quiet", "-www", "-accept", TLS_SERVER, "-key", key, "-cert", certificate]
        server = subprocess.Popen(self.world.enter(emulator=True) + command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            with open(certificate) as f:
                yield f.read()
        finally:
            server.kill()
            server.wait()

    def tls_works(self, certificate):
        self.agent("/bin/sh", "-c", "cat >/run/tls.pem <<'C'\n%sC\n" % certificate)
        command = ("/usr/bin/curl", "-sS", "-m", "30", "-o", "/dev/null", "--cacert", "/run/tls.pem", "https://%s/" % TLS_SERVER)
        self.assertEqual(self.agent_status(*command)[0], 0)
        # With the time of the image it is not.
        self.agent("/bin/date", "-s", (datetime.datetime.now() - OLD).strftime("%Y-%m-%d %H:%M:%S"))
        self.assertEqual(self.agent_status(*command)[0], 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
