#!/usr/bin/python3
"""boxery runners once over a real ssh to a real sshd, its link recorded; everything on the way is killed at every stage, frozen,
or says what it must not. After each the VM is clean again and the secrets are where they belong."""
import fcntl
import pwd
import tempfile

from once_world import BUILD, LABELS, REPO, TOKEN, OnceCase, json, main, os, re, signal, subprocess, threading, time, until
from keeper_world import Gone
from walk_world import Clock

STAGES = ("leased", "registered", "delivered", "listening", "running")
# What is left at GitHub of a run whose boxery lives: it refuses to delete a runner that has a job.
BUSY = {**dict.fromkeys(STAGES, 0), "running": 1}
# What it ends with when the host is lost: of a job only GitHub could say how it ended, and it does not within the time that is waited.
LOST = {**dict.fromkeys(STAGES, 8), "running": 15}
CLOCK = os.path.join(BUILD, "tests/fault/libwalk_clock.so")


class Base(OnceCase):
    def stage(self, word, *args, script="sleep 100", **more):
        """A run that has got as far as this."""
        if word == "running":
            self.emu.job(REPO, LABELS, script)
        o = self.w.once(*args, **more)
        o.await_word(word)
        return o

    def over(self, o, status, left=0):
        """left: registrations that nobody could delete; GitHub removes them in its own time."""
        self.assertEqual(o.wait(90), status, o.text())
        self.assertFalse([n for n in self.needles() if n in o.text()], "a secret on the screen")
        self.holds_nothing(registered=left)

    def forget(self):
        self.new_github()

    def pids(self, name):
        return [p for p in self.w.children() if os.path.basename(self.exe(p)) == name]


class Ssh(Base):
    ssh = True

    def test_one_job(self):
        # With the token in the environment, as some have it, and an ssh that passes on whatever it has.
        env = {"GH_TOKEN": TOKEN, "GITHUB_TOKEN": TOKEN, "GH_ENTERPRISE_TOKEN": TOKEN}
        o = self.w.once("--follow", env=env)
        for word in ("leased", "registered", "delivered", "listening"):
            o.await_word(word)
            self.secrets_are_nowhere(may_know=["boxery"])
        self.emu.job(REPO, LABELS, "sleep 3", name="far away")
        o.await_word("running")
        self.secrets_are_nowhere(may_know=["boxery"])
        self.assertEqual(o.wait(), 0, o.text())
        self.assertEqual(o.result()[0]["job"], "far away")
        self.clean()
        # What sshd says is in the log that was searched.
        log = self.journal.read()
        self.assertIn(b"Accepted publickey for ", log)
        self.assertIn(b"Starting session: command ", log)
        # The record is what it is taken for: the secret that may cross did, once, and nothing came back.
        runner = self.emu.runners()[-1]
        sent, got = self.w.link("link.c2h"), self.w.link("link.h2c")
        self.assertEqual(sent.count(runner["encoded_jit_config"].encode()), 1)
        self.assertNotIn(runner["encoded_jit_config"].encode(), got)
        for line in sent.splitlines() + got.splitlines():
            json.loads(line)

    def test_a_connection_of_its_own(self):
        """However ssh is configured: the end of one run is the end of nobody else's connection."""
        with open(self.w.path("tools/ssh_config"), "a", encoding="ascii") as f:
            f.write("ControlMaster auto\nControlPath %s\n" % self.w.path("tools/shared"))
        o = self.w.once()
        o.await_word("listening")
        self.assertFalse(os.path.exists(self.w.path("tools/shared")))
        o.process.send_signal(signal.SIGINT)
        self.assertEqual(o.wait(), 130, o.text())

    def test_unreachable(self):
        self.w.write_known_hosts("laptop_key.pub")
        o = self.w.once()
        self.assertEqual(o.wait(), 8, o.text())
        self.assertIn("Host key verification failed", o.text())
        self.assertEqual(self.w.ops("START", "one")[-1][3], "ok")
        self.w.write_known_hosts("host_key.pub")
        self.w.sshd.terminate()
        self.w.sshd.wait()
        o = self.w.once()
        self.assertEqual(o.wait(), 8, o.text())
        self.assertIn("vmhost cannot be reached", o.text())
        self.clean()

    def test_not_installed(self):
        os.rename(self.w.path("bin/boxery-host"), self.w.path("bin/away"))
        o = self.w.once()
        self.assertEqual(o.wait(), 8, o.text())
        self.assertIn("boxery-host is not installed on vmhost", o.text())
        # One that is older than the link.
        self.w.write("bin/boxery-host", "#!/bin/sh\necho \"boxery-host: no command '__once'\" >&2\nexit 2\n")
        os.chmod(self.w.path("bin/boxery-host"), 0o755)
        o = self.w.once()
        self.assertEqual(o.wait(), 8, o.text())
        self.assertIn("is it of the same version", o.text())
        self.clean()

    def test_setup(self):
        def boxery(*args, status=0):
            r = subprocess.run([self.w.path("bin/boxery"), *args], env=self.w.laptop, stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, timeout=60, check=False)
            self.assertEqual(r.returncode, status, r.stdout + r.stderr)
            return r.stdout + r.stderr
        for name in ("", "-oProxyCommand=x"):
            for args in (("setup", "--", name), ("--host", name, "ls"), ("--host=" + name, "ls")):
                self.assertIn("is not a host name", boxery(*args, status=2))
        self.assertRegex(boxery("setup", "vmhost"), r"vmhost: boxery \S+, (x64|arm64)\n")
        self.assertRegex(boxery("setup"), r"^\* vmhost +boxery ")
        self.assertIn("one", boxery("ls"))  # the default host from now on
        self.assertIn("Usage", boxery("runners", status=2))
        self.assertIn("Usage", boxery("runners", "__once", status=2))
        self.assertEqual(boxery("ssh-config"), "")  # one that waits for a lease has no address
        lease = self.w.lease()["lease"]
        config = boxery("ssh-config")
        self.w.call("RELEASE", lease=lease)
        for words in ("Host one.boxery", "HostKeyAlias one", "ProxyJump vmhost", "StrictHostKeyChecking yes",
                      "KnownHostsCommand /usr/bin/env ssh -T -- vmhost boxery-host known-hosts %H"):
            self.assertIn(words, config)
        # ssh reads it, and finds the VM by way of the host.
        self.w.write("laptop/config", config)
        got = subprocess.run(["/usr/bin/ssh", "-G", "-F", self.w.path("laptop/config"), "one.boxery"], capture_output=True, text=True, check=True).stdout
        for words in ("user root", "hostkeyalias one", "proxyjump vmhost", "stricthostkeychecking true", "globalknownhostsfile /dev/null",
                      "knownhostscommand /usr/bin/env ssh -T -- vmhost boxery-host known-hosts %H"):
            self.assertIn(words + "\n", got)
        self.clean()
        self.w.sshd.terminate()
        self.w.sshd.wait()
        self.assertIn("vmhost cannot be reached", boxery("setup", "vmhost", status=8))
        self.assertIn("Connection refused", boxery("ssh-config", status=8))
        boxery("setup", "--forget", "vmhost")
        self.assertEqual(boxery("setup"), "")

    def test_what_is_passed_on(self):
        """Words, streams and the exit status are those of boxery-host, whatever the words are."""
        os.unlink(self.w.path("bin/boxery-host"))
        self.w.write("bin/boxery-host", "#!/usr/bin/python3\nimport json, sys\nprint(json.dumps([sys.argv[1:], sys.stdin.read()]))\n"
                     "print('aside', file=sys.stderr)\nsys.exit(37)\n")
        os.chmod(self.w.path("bin/boxery-host"), 0o755)
        words = ["", "a b", "it's", "''", '"', "$(touch x)", "`id`", "a\nb\n", "\\", "-oProxyCommand=x", "--", "*", "~", "!!", "\u00e4\x1b[1m", "#", ";", "a=b"]
        # What reads nothing there is given nothing: the rest of the input is somebody else's.
        for command, given in ((["ssh"], "in"), (["runners", "token"], "in"), (["pool", "show"], "")):
            r = subprocess.run([self.w.path("bin/boxery"), "--host", "vmhost", *command, *words], env=self.w.laptop, input="in", capture_output=True,
                               text=True, timeout=60, check=False)
            self.assertEqual((r.returncode, json.loads(r.stdout), r.stderr), (37, [[*command, *words], given], "aside\n"))
        r = subprocess.run([self.w.path("bin/boxery"), "--host", "vmhost", "pool", "x" * 70000], env=self.w.laptop, capture_output=True, text=True,
                           timeout=60, check=False)
        self.assertEqual(r.returncode, 2)
        self.assertIn("longer than 65536 bytes", r.stderr)

    def test_the_key_of_a_vm(self):
        """By what ssh-config prints: the host is asked for the VM's key at each connection, and no other is taken. The VM is this sshd."""
        w = self.w
        os.rename(w.path("bin/boxery-host"), w.path("bin/real-boxery-host"))
        os.makedirs(w.path("config/host-keys"), 0o700, exist_ok=True)
        w.write("list", json.dumps({"vms": [{"name": "one", "address": "127.99.0.1"}, {"name": "x\nProxyCommand y", "address": "127.0.0.1"},
                                            {"name": "two", "address": "1\n\tProxyCommand y"}, {"name": "three", "address": "-oProxyCommand"}]}))
        w.write("bin/boxery-host", f"#!/bin/sh\necho \"$*\" >>{w.path('asked')}\ncase $1 in ls) cat {w.path('list')};; *) exec real-boxery-host \"$@\";; esac\n")
        os.chmod(w.path("bin/boxery-host"), 0o755)
        config = subprocess.run([w.path("bin/boxery"), "--host", "vmhost", "ssh-config"], env=w.laptop, capture_output=True, text=True, check=True).stdout
        self.assertEqual([x for x in config.split("\n") if "Host " in x or "ProxyCommand" in x], ["Host one.boxery"])
        w.write("laptop/config", "Include " + w.path("tools/ssh_config") + "\n" + config)
        for name, status in (("host_key", 0), ("laptop_key", 255), (None, 255), ("host_key", 0)):
            if name:
                with open(w.path("tools", name + ".pub"), encoding="ascii") as f:
                    w.write("config/host-keys/one", "one " + " ".join(f.read().split()[:2]) + "\n")
            else:
                os.unlink(w.path("config/host-keys/one"))
            r = subprocess.run(["/usr/bin/ssh", "-v", "-F", w.path("laptop/config"), "-p", "2222", "-l", pwd.getpwuid(os.getuid()).pw_name, "-i",
                                w.path("tools/laptop_key"), "-o", "BatchMode=yes", "one.boxery", "true"], env=w.laptop,
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(r.returncode, status, (name, r.stderr))
            self.assertEqual(bool(re.search("(?m)^(Host key verification|KnownHostsCommand) failed", r.stderr)), status == 255, r.stderr)
            if not name:
                self.assertIn("no host key is pinned for 'one'; it has not been started", r.stderr)
            self.assertRegex(r.stderr, r"Executing proxy command: exec /usr/bin/ssh .*-W '?\[127\.99\.0\.1\]:2222'? vmhost")
        with open(w.path("asked"), encoding="ascii") as f:
            self.assertLessEqual({"ls --json", "known-hosts one"}, set(f.read().splitlines()))

    def test_kill_boxery(self):
        for word in STAGES:
            o = self.stage(word)
            if word == "leased":
                until(lambda: self.emu.runners())  # gh goes on without it
            o.process.kill()
            self.over(o, -signal.SIGKILL, left=1)
            self.forget()

    def test_kill_ssh(self):
        for word in STAGES:
            o = self.stage(word)
            with open(self.w.path("tools/ssh.pids"), encoding="ascii") as f:
                os.kill(int(f.read().split()[-1]), signal.SIGKILL)
            self.over(o, LOST[word], left=BUSY[word])
            self.forget()


class Frozen(Base):
    """The connection stands still, and nobody is told; both ends are what they are, on a clock that only the test moves."""
    ssh = True

    def setUp(self):
        self.folder_of_clock = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder_of_clock.cleanup)
        self.clock = Clock(os.path.join(self.folder_of_clock.name, "clock"))
        self.there = {"LD_PRELOAD": CLOCK, "BOXERY_TEST_CLOCK": self.clock.path}
        super().setUp()

    def all_beat(self):
        """Both have just heard of each other."""
        def beats():
            return [self.w.link(name).count(b'"beat"') for name in ("link.c2h", "link.h2c")]
        before = beats()
        self.clock.advance(15)
        until(lambda: all(a > b for a, b in zip(beats(), before)))
        time.sleep(0.3)

    def freeze(self, how):
        with open(self.w.path("tools/ssh.pids"), encoding="ascii") as f:
            os.kill(int(f.read().split()[-1]), how)

    def test_119_and_121_seconds(self):
        o = self.w.once(env={**self.there, "BOXERY_TEST_CLOCK_MONOTONIC": "1"})
        o.await_word("listening")
        self.all_beat()
        self.freeze(signal.SIGSTOP)
        self.clock.advance(117)
        time.sleep(0.6)  # and what it all takes: 119, nearly
        self.assertIsNone(o.process.poll(), o.text())
        self.assertEqual((self.w.state("one"), len(self.pids("boxery-runners"))), ("DELIVERED", 1))
        heard = len(self.w.link("link.h2c"))
        self.freeze(signal.SIGCONT)
        until(lambda: len(self.w.link("link.h2c")) > heard)  # what has waited comes through
        time.sleep(0.5)
        self.all_beat()
        self.freeze(signal.SIGSTOP)
        self.clock.advance(121)
        self.w.await_state("one", "READY", timeout=20)  # though no connection has ended
        self.assertEqual(o.wait(), 8, o.text())
        self.assertIn("silent for two minutes", o.text())
        self.freeze(signal.SIGKILL)
        self.holds_nothing()


class Kill(Base):
    def test_kill_once(self):
        for word in STAGES:
            o = self.stage(word)
            for p in self.pids("boxery-runners"):
                os.kill(p, signal.SIGKILL)
            self.over(o, LOST[word], left=BUSY[word])
            self.forget()

    def test_end_once(self):
        """SIGTERM: it says so, nobody has interrupted anything at this end, and what is said of a job is no guess."""
        for word, outcome in (("listening", "guest died"), ("running", "unknown")):
            o = self.stage(word)
            for p in self.pids("boxery-runners"):
                os.kill(p, signal.SIGTERM)
            self.over(o, LOST[word], left=BUSY[word])
            self.assertEqual(o.result()[0]["outcome"], outcome)
            self.assertIn("the host ends boxery's process", o.text())
            self.forget()

    def kill_keeper(self):
        self.w.keeper.kill()
        self.w.keeper.wait()
        self.w.keeper = None

    def answers(self):
        try:
            return bool(self.w.vms())
        except (OSError, Gone):
            return False

    renewals = 0

    def renewed(self):
        try:
            return [e for e in self.w.history(name="one") if e["kind"] == "renewed"][self.renewals:]
        except (OSError, Gone):
            return []

    def own_keeper(self):
        """The one that the host's end has started makes room for the test's."""
        until(lambda: self.pids("boxery-keeper") and self.answers(), 30)
        self.w.call("QUIT")
        until(lambda: not self.pids("boxery-keeper"))
        self.w.start()

    def test_kill_keeper_early(self):
        """The next keeper, which the host's end starts, puts the VM back."""
        self.w.script("deliver", "slow 20000")  # or the run may be further than the word that was waited for
        for word in ("leased", "registered"):
            o = self.stage(word)
            self.kill_keeper()
            until(lambda: self.pids("boxery-keeper"), 30)
            self.over(o, 14)
            self.forget()
            self.own_keeper()

    def test_keeper_dies_in_the_delivery(self):
        """The host's end sees it and says so; nobody can say whether the guest has the secret, so its life is over."""
        for point in ("filter-checked", "deliver-spawned", "deliver-result"):
            self.w.end()
            self.w.start(kill=point)
            o = self.w.once()
            until(lambda: self.w.keeper.poll() is not None, 30)
            self.w.keeper = None
            until(lambda: self.pids("boxery-keeper"), 30)
            self.over(o, 14)
            self.assertEqual(o.result()[0]["outcome"], "delivery failed")
            self.forget()
            self.own_keeper()

    def test_kill_keeper_before_the_job(self):
        """The guest has its configuration, so it goes on listening, and the job that comes is done."""
        for word in ("delivered", "listening"):
            self.renewals += len(self.renewed())
            o = self.stage(word)
            self.kill_keeper()
            until(lambda: self.pids("boxery-keeper"), 30)
            until(self.renewed, 30)
            self.emu.job(REPO, LABELS, "true")
            self.over(o, 0)
            self.forget()
            self.own_keeper()
        self.w.script("deliver", None)

    def test_kill_keeper_in_the_job(self):
        """A job is worth more than a keeper: it goes on, and the lease is held by the new connection."""
        go = self.w.path("guest/go")
        for killed in (False, True):
            self.renewals += len(self.renewed())
            o = self.stage("running", script=f"while [ ! -e {go} ]; do sleep 0.1; done")
            self.kill_keeper()
            until(lambda: self.pids("boxery-keeper"), 30)
            until(self.renewed, 30)
            if killed:
                os.kill(self.pids("boxery-runners")[0], signal.SIGKILL)
                self.over(o, 15, left=1)
            else:
                self.w.write("guest/go", "")
                self.over(o, 0)
                os.unlink(go)
            self.forget()
            self.own_keeper()

    def test_kill_keeper_and_boxery(self):
        """The host's end stays until a keeper is there that takes the VM back."""
        o = self.stage("running")
        self.kill_keeper()
        o.process.kill()
        until(lambda: self.pids("boxery-keeper") and self.answers(), 30)
        self.over(o, -signal.SIGKILL, left=1)
        self.forget()
        self.own_keeper()

    def test_kill_once_and_keeper(self):
        """At the same moment: the next keeper, whoever starts it, waits for the holder for a while and then ends the lease."""
        for word in ("registered", "running"):
            o = self.stage(word)
            once = self.pids("boxery-runners")
            os.kill(self.w.keeper.pid, signal.SIGSTOP)  # it must not see the other one go
            for p in once:
                os.kill(p, signal.SIGKILL)
            self.kill_keeper()
            self.w.start()
            self.over(o, LOST[word], left=BUSY[word])
            self.forget()


class Host:
    """The host's end alone, the test being the controller."""

    def __init__(self, w, clock=None):
        env = {**w.laptop}
        if clock:
            env.update(LD_PRELOAD=CLOCK, BOXERY_TEST_CLOCK=clock.path)
        self.process = subprocess.Popen([w.path("bin/boxery-runners"), "--once"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        w.started.append(self.process)
        self.clock, self.got = clock, []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.got.append(json.loads(line))

    def say(self, kind, **more):
        self.raw(json.dumps({"type": kind, **more}).encode() + b"\n")

    def raw(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def hear(self, kind, timeout=20):
        until(lambda: [m for m in self.got if m["type"] == kind] or self.process.poll() is not None, timeout)
        if self.process.poll() is not None:
            self.reader.join(timeout)  # what it said last is still on its way
        found = [m for m in self.got if m["type"] == kind]
        assert found, (kind, self.got, self.process.poll())
        return found[-1]

    def hello(self, **more):
        self.say("hello", **{"protocol": 1, "oldest": 1, "version": "0", **more})
        return self

    def lease(self):
        self.hear("hello")
        self.say("lease", pool="default", scope=REPO, wait_ms=0, ttl_ms=3600000)
        return self.hear("leased")

    def ended(self, timeout=20):
        status = self.process.wait(timeout)
        self.reader.join(5)
        return status


class Peers(Base):
    """What either end does with one that is slow, silent, broken, of another version, or hostile."""

    def back(self):
        self.w.await_state("one", "READY")
        self.assertEqual([x for x in self.w.leases().values() if x["open"]], [])

    def test_silence(self):
        """119 seconds are patience, 121 are the end."""
        h = Host(self.w, Clock(self.w.path("clock"))).hello()
        h.lease()
        h.clock.advance(117)
        time.sleep(0.5)  # and what it all takes: 119, nearly
        self.assertIsNone(h.process.poll())
        self.assertEqual(self.w.state("one"), "LEASED")
        h.say("beat")
        time.sleep(0.5)
        h.clock.advance(117)
        time.sleep(0.5)
        self.assertIsNone(h.process.poll())
        h.clock.advance(4)
        self.assertEqual(h.ended(), 8)
        self.back()

    def test_end_of_input(self):
        h = Host(self.w).hello()
        h.lease()
        h.process.stdin.close()
        self.assertEqual(h.ended(), 8)
        self.back()

    def test_beats(self):
        h = Host(self.w, Clock(self.w.path("clock"))).hello()
        h.hear("hello")
        for _ in range(3):
            before = len([m for m in h.got if m["type"] == "beat"])
            h.clock.advance(15)
            until(lambda: len([m for m in h.got if m["type"] == "beat"]) > before)
        h.process.stdin.close()
        h.ended()

    def test_bad_controllers(self):
        jit = json.dumps({"type": "deliver", "runner_id": 1, "jit": "x" * 70000}).encode()
        for what in (b"hello\n", b"{}\n", b"[]\n", b'{"type":"lease"\n', b'{"type":"beat","a":' + b"[" * 50 + b"]" * 50 + b"}\n", b"\0\n", b"x" * 200000,
                     b'{"type":"lease","pool":"default","scope":"octo/private"}\n',  # twice
                     b'{"type":"deliver","jit":5}\n', b'{"type":"deliver","jit":"short"}\n', jit + b"\n",
                     b'{"type":"leased"}\n', b'{"type":"hello","protocol":1,"oldest":1}\n'):
            h = Host(self.w).hello()
            h.lease()
            h.raw(what)
            self.assertNotIn(h.ended(), (0, None), what[:60])
            self.assertTrue([m for m in h.got if m["type"] == "error"], what[:60])
            self.back()
        self.assertEqual(self.w.delivered(), [])

    def test_half_a_message(self):
        h = Host(self.w).hello()
        h.lease()
        h.raw(b'{"type":"deliver","runner_id":1,"jit":"eyJ')
        h.process.stdin.close()
        self.assertEqual(h.ended(), 8)
        self.back()
        self.assertEqual(self.w.delivered(), [])

    def test_before_its_time(self):
        for first in ({"type": "lease", "pool": "default", "scope": REPO}, {"type": "deliver", "jit": "x"}, {"type": "busy", "job": "x"}):
            h = Host(self.w)
            h.hear("hello")
            h.say(**{"kind": first.pop("type"), **first})
            self.assertNotEqual(h.ended(), 0)
            self.assertIn("boxery on the other machine", h.hear("error")["text"])
        for scope, pool in (("", "default"), ("../x", "default"), ("o/r", "../x"), ("o/r/x", "default")):
            h = Host(self.w).hello()
            h.hear("hello")
            h.say("lease", scope=scope, pool=pool)
            self.assertEqual(h.ended(), 2)
        self.back()

    def test_a_reader_that_does_not(self):
        """The controller takes nothing: what waits for it is bounded, and then it is gone."""
        w = self.w
        p = subprocess.Popen([w.path("bin/boxery-runners"), "--once"], env=w.laptop, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        p.stdin.write(b'{"type":"hello","protocol":1,"oldest":1}\n')
        p.stdin.flush()
        p.stdout.readline()
        p.stdin.write(b'{"type":"lease","pool":"default","scope":"octo/private","ttl_ms":60000,"follow":true}\n')
        p.stdin.flush()
        self.assertIn(b"leased", p.stdout.readline())
        # The emulator is asked by hand; the guest then floods its console.
        status, _, made = self.emu.rest("POST", f"/repos/{REPO}/actions/runners/generate-jitconfig",
                                        {"name": next(iter(w.leases("github-runner-local").values()))["runner_name"], "runner_group_id": 1,
                                         "labels": LABELS})
        self.assertEqual(status, 201)
        p.stdin.write(json.dumps({"type": "deliver", "runner_id": made["runner"]["id"], "jit": made["encoded_jit_config"]}).encode() + b"\n")
        p.stdin.flush()
        until(lambda: w.state("one") == "DELIVERED")
        with open(w.path("images/console/one.log"), "ab") as f:
            for _ in range(40):
                f.write(b"flood " * 60 + b"\n" + b"\xff\x00\x1b[31m" * 2000 + b"\n")
                f.flush()
        time.sleep(1)
        with open(f"/proc/{p.pid}/statm", encoding="ascii") as f:
            self.assertLess(int(f.read().split()[1]) * 4096, 64 << 20)
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()
        self.back()

    def test_versions(self):
        h = Host(self.w).hello(protocol=7, oldest=1, version="9.9", news={"a": 1})
        h.say("from the future", x=1)
        h.lease()
        h.process.stdin.close()
        h.ended()
        self.back()
        for more, words in (({"protocol": 9, "oldest": 5, "version": "9.9"}, "is too old for"), ({"protocol": 0}, "does not say which protocol")):
            h = Host(self.w).hello(**more)
            self.assertIn(words, h.hear("error")["text"])
            self.assertEqual(h.ended(), 7 if "oldest" in more else 5)
        self.back()


HOSTS = {
    "garbage": (b"Welcome to this host!\n", 8),
    "deep": (b'{"type":"hello","protocol":1,"oldest":1,"x":' + b"[" * 99 + b"]" * 99 + b"}\n", 8),
    "endless": (b"x" * 300000, 8),
    "half": (b'{"type":"hel', 8),
    "newer": (b'{"type":"hello","protocol":9,"oldest":9,"version":"9.9"}\n', 7),
    "error": (b'{"type":"error","status":4,"text":"\\u001b[31mno"}\n', 4),
    "nothing": (b"", 8),
}


class BadHosts(Base):
    """boxery with a host's end that the test plays."""

    def play(self, text, name="boxery-host"):
        self.w.write("answer", "")
        with open(self.w.path("answer"), "wb") as f:
            f.write(text)
        if os.path.exists(self.w.path("bin", name)):
            os.unlink(self.w.path("bin", name))
        self.w.write("bin/" + name, f"#!/bin/sh\ncat {self.w.path('answer')}\nread line\nsleep 0.2\nexit 0\n")
        os.chmod(self.w.path("bin", name), 0o755)

    def setup_here(self, *args):
        return subprocess.run([self.w.path("bin/boxery"), "setup", *args], env=self.w.laptop, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)

    def hello(self, **more):
        return json.dumps({"type": "hello", **{"protocol": 1, "oldest": 1, "version": "1.0", "arch": "arm", "host": "12345678", **more}}).encode() + b"\n"

    def test_a_version_that_draws(self):
        self.play(self.hello(version="\x1b]0;mine\x07"))
        r = self.setup_here(".")
        self.assertIn(".: boxery \\x1b]0;mine\\x07, arm\n", r.stdout)

    def test_an_architecture(self):
        """It becomes a label, so it is one that GitHub's runner is there for."""
        for arch in ("riscv64", "", "X64", "x64,production", "\x1b[2J", 64, None):
            self.play(self.hello(arch=arch))
            words = "the host says that its architecture is '%s', and GitHub's runner is there for x64, arm64 and arm" % (
                arch.replace("\x1b", "\\x1b") if isinstance(arch, str) else "")
            r = self.setup_here(".")
            self.assertEqual(r.returncode, 7, r.stdout + r.stderr)
            self.assertIn(words, r.stderr)
            o = self.w.once()
            self.assertEqual(o.wait(), 7, o.text())
            self.assertIn(words, o.text())
        self.assertEqual((self.setup_here().stdout, self.emu.runners()), ("", []))

    def test_a_hello_among_others(self):
        """Several messages come with one read."""
        self.play(b'{"type":"beat"}\n{"type":"from the future"}\n{"type":"progress","text":"soon"}\n' + self.hello() + b'{"type":"beat"}\n')
        r = self.setup_here(".")
        self.assertEqual((r.returncode, r.stdout.split("\n")[0]), (0, ".: boxery 1.0, arm"), r.stderr)

    def test_ten_at_once(self):
        """Each reads what is remembered and writes it anew: one after the other."""
        self.play(self.hello(), "ssh")
        folder = self.w.path("laptop/.config/boxery") if "BOXERY_CONFIG_DIR" not in self.w.laptop else self.w.laptop["BOXERY_CONFIG_DIR"]
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(os.path.join(folder, "controller.json.lock"), "w", encoding="ascii") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            p = [subprocess.Popen([self.w.path("bin/boxery"), "setup", f"host-{i}"], env=self.w.laptop, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) for i in range(10)]
            self.w.started += p
            until(lambda: all(self.waits_for_a_lock(x.pid) for x in p), 30)
            self.assertFalse(os.path.exists(os.path.join(folder, "controller.json")))
        self.assertEqual([x.wait(60) for x in p], [0] * 10, [x.stdout.read() for x in p])
        self.assertEqual(sorted(line.split()[-4] for line in self.setup_here().stdout.splitlines()), sorted(f"host-{i}" for i in range(10)))

    @staticmethod
    def waits_for_a_lock(pid):
        with open("/proc/locks", encoding="ascii") as f:
            return any("->" in line and f" {pid} " in line for line in f)

    def test_what_they_say(self):
        for name, (text, status) in HOSTS.items():
            self.play(text)
            if text.endswith((b"\n", b"x")):  # the others are waited for
                r = self.setup_here(".")
                self.assertNotEqual(r.returncode, 0, name)
                self.assertNotIn("\x1b", r.stdout + r.stderr)
            o = self.w.once()
            self.assertEqual(o.wait(), status, (name, o.text()))
            self.assertNotIn("\x1b", o.text())
            self.assertEqual([r for r in self.emu.runners() if not r["foreign"]], [], name)

    def test_a_status_of_its_own(self):
        """A host says what is wrong with itself, not how a job has ended or that somebody pressed Ctrl-C here."""
        for said, status in ((1, 1), (9, 9), (0, 1), (10, 1), (12, 1), (15, 1), (130, 1), (255, 1), (-1, 1), ("9", 1)):
            self.play(json.dumps({"type": "error", "status": said, "text": "no"}).encode() + b"\n")
            o = self.w.once()
            self.assertEqual(o.wait(), status, (said, o.text()))

    def test_what_it_says_to_people(self):
        """Its standard error draws nothing, and a flood of lines is cut off."""
        self.play(b'{"type":"progress","text":"wave"}\n' * 20000 + b'{"type":"error","status":4,"text":"no"}\n')
        path = self.w.path("bin/boxery-host")
        with open(path, encoding="ascii") as f:
            rest = f.read().split("\n", 1)[1]
        self.w.write("bin/boxery-host", "#!/bin/sh\nprintf 'first\\tpart\\r\\n\\033]0;mine\\007\\233last\\n' >&2\n" + rest)
        o = self.w.once()
        self.assertEqual(o.wait(60), 4, o.text())
        self.assertIn("first\tpart\n\\x1b]0;mine\\x07\\x9blast\n", o.text())
        self.assertNotIn("\x1b", o.text())
        self.assertLess(o.text().count("wave"), 2000)
        self.assertRegex(o.text(), r"\([0-9]+ more lines left out\)")

    def test_a_silent_host(self):
        """119 seconds are patience here too."""
        self.play(b'{"type":"hello","protocol":1,"oldest":1,"version":"x","arch":"x64","host":"12345678"}\n')
        self.w.write("bin/boxery-host", f"#!/bin/sh\ncat {self.w.path('answer')}\nwhile read line; do :; done\n")
        clock = Clock(self.w.path("clock"))
        o = self.w.once("--wait", "1h", env={"LD_PRELOAD": CLOCK, "BOXERY_TEST_CLOCK": clock.path, "BOXERY_TEST_CLOCK_MONOTONIC": "1"})
        time.sleep(2)
        clock.advance(117)
        time.sleep(1)
        self.assertIsNone(o.process.poll(), o.text())
        clock.advance(3)
        self.assertEqual(o.wait(), 8, o.text())
        self.assertIn("silent for two minutes", o.text())

    def test_somebody_elses_name(self):
        """A host has no say in which runners of the repository are deleted."""
        status, _, _ = self.emu.rest("POST", f"/repos/{REPO}/actions/runners/generate-jitconfig",
                                     {"name": "production-1", "runner_group_id": 1, "labels": LABELS})
        self.assertEqual(status, 201)
        for name in ("production-1", "boxery-local-", "boxery-local-1/../2", "boxery-local-1&per_page=1", "boxery-local-" + "1" * 60, ""):
            self.play(b"")
            self.w.write("bin/boxery-host", "#!/bin/sh\necho '%s'\nwhile read line; do case $line in *'\"lease\"'*) echo '%s';; esac; done\n" % (
                self.hello().decode().strip(), json.dumps({"type": "leased", "vm": "one", "lease": "l", "runner": name})))
            o = self.w.once()
            self.assertEqual(o.wait(), 8, (name, o.text()))
            self.assertIn("is not boxery-local-", o.text())
            self.assertEqual([(r["name"], r["ended"]) for r in self.emu.runners()], [("production-1", None)])

    def test_a_name_that_is_taken(self):
        """It has the right form, and another host's runner has it: that one stays, whatever GitHub says to the registration."""
        name = "boxery-local-87654321-1"
        self.play(b"")
        self.w.write("bin/boxery-host", "#!/bin/sh\necho '%s'\nwhile read line; do case $line in *'\"lease\"'*) echo '%s';; *release*) exit;; esac; done\n" % (
            self.hello().decode().strip(), json.dumps({"type": "leased", "vm": "one", "lease": "l", "runner": name})))
        theirs = {"name": name, "runner_group_id": 1, "labels": LABELS}
        mint = f"/repos/{REPO}/actions/runners/generate-jitconfig"
        self.assertEqual(self.emu.rest("POST", mint, theirs)[0], 201)
        for fault in (None, {"status": 409, "body": {"message": "Already exists"}}, {"status": 502, "body": "bad gateway"}):
            if fault:
                self.emu.fault("POST", "generate-jitconfig", "answer", **fault)
            o = self.w.once()
            self.assertEqual(o.wait(60), 4, o.text())
            self.assertIn(f"there is a runner {name} already", o.text())
            self.assertEqual([(r["name"], r["ended"]) for r in self.emu.runners()], [(name, None)])
        self.emu.call("DELETE", "faults")
        # It comes between the question and the registration.
        self.emu.fault("GET", "runners\\?name=", "answer", status=200, body={"total_count": 0, "runners": []})
        o = self.w.once()
        self.assertEqual((o.wait(60), o.result()[0]["outcome"]), (4, "mint conflict"), o.text())
        self.assertEqual([(r["name"], r["ended"]) for r in self.emu.runners()], [(name, None)])
        # Nobody knows whether it is there.
        self.emu.fault("GET", "runners\\?name=", "answer", status=502, body="bad gateway")
        o = self.w.once()
        self.assertEqual(o.wait(60), 1, o.text())
        self.assertIn("is free is not known", o.text())
        self.assertEqual([(r["name"], r["ended"]) for r in self.emu.runners()], [(name, None)])

    def test_lies_after_the_lease(self):
        """A registration that was made is deleted whatever the host says next."""
        begin = (b'{"type":"hello","protocol":3,"oldest":1,"version":"x","arch":"x64","host":"12345678"}\n'
                 b'{"type":"leased","vm":"one","lease":"l","runner":"boxery-local-12345678-%d"}\n')
        for i, (more, status) in enumerate(((b"garbage\n", 8), (b'{"type":"delivered"}\n{"type":"ended","clean":true}\n{"type":"reset","ok":true}\n', 14),
                                            (b'{"type":"error","status":7,"text":"no"}\n', 7))):
            # Its lease comes when it is asked for.
            self.w.write("bin/answer1", "")
            hello, leased = (begin % (i + 1)).splitlines(True)
            for part, data in (("answer1", hello), ("answer2", leased), ("answer3", more)):
                with open(self.w.path("bin", part), "wb") as f:
                    f.write(data)
            if os.path.exists(self.w.path("bin/boxery-host")):
                os.unlink(self.w.path("bin/boxery-host"))
            self.w.write("bin/boxery-host", f"#!/bin/sh\ncd {self.w.path('bin')}\ncat answer1\nwhile read line; do case $line in *'\"lease\"'*) cat answer2;; "
                         "*deliver*) cat answer3;; esac; done\n")
            os.chmod(self.w.path("bin/boxery-host"), 0o755)
            o = self.w.once()
            self.assertEqual(o.wait(60), status, o.text())
            self.assertEqual([r["ended"] for r in self.emu.runners() if not r["foreign"]][-1], "deleted")


if __name__ == "__main__":
    main()
