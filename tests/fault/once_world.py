"""A world for `boxery runners once`: the real boxery, boxery-host, boxery-runners, Debian's gh, the emulator over TLS, the real
keeper (with short times) and stand-ins for its children. What a guest would do, a thread does: it waits for a delivery, runs the
stand-in runner with the JIT config that the emulator gave out, writes its output where a console would be, and powers off.

Without sshd the host is this machine; with `ssh=True` a real sshd listens on loopback and its link is recorded.
"""
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from keeper_world import Case, Gone, World, enter_namespace, until

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "emulator"))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import canary  # noqa: E402
from emu.client import Emulator  # noqa: E402
from journal import Journal  # noqa: E402

# Run by a script with `&`, SIGINT would be ignored by all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
BUILD = os.environ.get("BOXERY_BUILD", os.path.join(HERE, "..", "..", "build"))
RUNNER = os.path.join(HERE, "..", "emulator", "runner")
REPO = "octo/private"
LABELS = ["self-hosted", "linux", "x64", "boxery"]
TOKEN = "gho_" + os.urandom(18).hex()

# Stands in PATH as ssh: the real one, and what goes through it is written down.
SSH = """#!/usr/bin/python3
import os, subprocess, sys, threading
folder = {folder!r}
argv = ["/usr/bin/ssh", "-F", folder + "/ssh_config"] + sys.argv[1:]
if os.isatty(0):
    os.execv(argv[0], argv)
p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
with open(folder + "/ssh.pids", "a") as f:
    f.write("%d %d\\n" % (os.getpid(), p.pid))
def copy(source, to, name, end):
    with open(folder + "/" + name, "ab", 0) as record:
        while data := os.read(source, 65536):
            record.write(data)
            try:
                os.write(to, data)
            except OSError:
                break
    if end:
        p.stdin.close()
threading.Thread(target=copy, args=(0, p.stdin.fileno(), "link.c2h", True), daemon=True).start()
copy(p.stdout.fileno(), 1, "link.h2c", False)
sys.exit(p.wait() if p.returncode is None else p.returncode)
"""


class Guests(threading.Thread):
    """Every life that gets a secret runs a runner."""

    def __init__(self, w):
        super().__init__(daemon=True)
        self.w, self.over, self.seen, self.running, self.lock = w, False, 0, {}, threading.Lock()

    def run(self):
        while not self.over:
            lines = self.w.delivered()
            for name, _ in lines[self.seen:]:
                threading.Thread(target=self.one, args=(name,), daemon=True).start()
            self.seen = len(lines)
            time.sleep(0.05)

    def registration(self, name, generation):
        """Asked of the keeper, which may just have been killed; a guest does not need it for what it has."""
        end = time.monotonic() + 30
        while True:
            try:
                return self.w.runner_of(name)
            except (OSError, Gone):
                if self.over or self.w.running(name) != generation or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def one(self, name):
        generation = self.w.running(name)
        try:
            runner = self.registration(name, generation)
            with open(self.w.path("images/console", name + ".log"), "ab") as console:
                p = subprocess.Popen([os.path.join(self.w.runner_home(name), "bin/Runner.Listener"), "run"], cwd="/", stdin=subprocess.DEVNULL,
                                     stdout=console, stderr=console, start_new_session=True,
                                     env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CURL_CA_BUNDLE": self.w.emu.ca, "STANDIN_RETRY_SECONDS": "1",
                                          "ACTIONS_RUNNER_INPUT_JITCONFIG": runner["encoded_jit_config"], "HOME": self.w.runner_home(name)})
            with self.lock:
                self.running[name] = p
            while p.poll() is None and self.w.running(name) == generation:
                time.sleep(0.05)
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            if self.w.running(name) == generation:
                self.w.stop_domain(name)
        except (OSError, LookupError) as e:
            if not self.over:
                print("guest", name, repr(e), file=sys.stderr)

    def kill(self, name, how="crashed"):
        """The VM dies, and the runner with it. how: as libvirt says it."""
        self.w.script("STOPPED-" + name, "once " + how)
        self.w.stop_domain(name)
        self.running[name].wait(30)  # its own thread sees that and kills it; nobody else does: the number may be another's by then


class OnceWorld(World):
    def __init__(self, emu, ssh=False, there=()):
        """there: more variables of who logs in to the host."""
        super().__init__()
        self.emu = emu
        self.env["BOXERY_TEST_PATIENT"] = "1"
        for name in ("boxery", "boxery-host", "boxery-runners"):
            shutil.copy(os.path.join(BUILD, name), self.path("bin", name))
        for folder in ("images/console", "tools", "laptop", "laptop/.config", "laptop/.config/gh", "guest"):
            os.mkdir(self.path(folder), 0o700)
        os.chmod(self.root, 0o755)
        self.login(TOKEN)
        # What a shell at the laptop has: a home.
        self.laptop = {"HOME": self.path("laptop"), "PATH": f"{self.path('tools')}:{self.path('bin')}:/usr/bin:/bin", "SSL_CERT_FILE": emu.ca,
                       "LANG": "C.UTF-8"}
        self.sshd = None
        self.host_env = {**{k: v for k, v in self.env.items() if k.startswith("BOXERY_")}, **dict(there)}
        if ssh:
            self.start_sshd()
        else:
            self.laptop.update(self.host_env)
        self.guest = Guests(self)
        self.guest.start()
        self.started = []

    def login(self, token):
        host = self.emu.url.split("//")[1]
        path = self.path("laptop/.config/gh/hosts.yml")
        if token is None:
            os.unlink(path)
            return
        with open(path, "w", encoding="ascii") as f:
            f.write(f'"{host}":\n    user: octocat\n    oauth_token: {token}\n    git_protocol: https\n')
        os.chmod(path, 0o600)

    def runner_home(self, name):
        home = self.path("guest", name)
        if not os.path.exists(home):
            shutil.copytree(RUNNER, home)
        return home

    def runner_of(self, vm):
        leases = [x for x in self.leases("github-runner-local").values() if x["vm"] == vm and x["open"]]
        name = leases[-1]["runner_name"]
        return next(r for r in self.emu.runners() if r["name"] == name)

    # the host as another machine
    def start_sshd(self):
        for name in ("host_key", "laptop_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path("tools", name)], check=True)
        user = pwd.getpwuid(os.getuid()).pw_name
        shutil.copy(self.path("tools/laptop_key.pub"), self.path("tools/authorized_keys"))
        environment = " ".join(f"{k}={v}" for k, v in sorted({**self.host_env, "PATH": self.path("bin") + ":/usr/bin:/bin"}.items()))
        with open(self.path("tools/sshd_config"), "w", encoding="ascii") as f:
            f.write(f"ListenAddress 127.99.0.1:2222\nHostKey {self.path('tools/host_key')}\nAuthorizedKeysFile {self.path('tools/authorized_keys')}\n"
                    f"StrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin prohibit-password\nSetEnv {environment}\n"
                    "AcceptEnv *\nPasswordAuthentication no\nMaxStartups 100\nLogLevel DEBUG1\n")
        self.write_known_hosts("host_key.pub")
        with open(self.path("tools/ssh_config"), "w", encoding="ascii") as f:
            f.write(f"Host vmhost\nHostName 127.99.0.1\nPort 2222\nUser {user}\nIdentityFile {self.path('tools/laptop_key')}\nIdentitiesOnly yes\n"
                    f"UserKnownHostsFile {self.path('tools/known_hosts')}\nStrictHostKeyChecking yes\nSendEnv *\nLogLevel ERROR\nConnectTimeout 5\n")
        with open(self.path("tools/ssh"), "w", encoding="ascii") as f:
            f.write(SSH.format(folder=self.path("tools")))
        os.chmod(self.path("tools/ssh"), 0o755)
        os.makedirs("/run/sshd", exist_ok=True)
        with open(self.path("sshd.log"), "w", encoding="ascii") as log:
            self.sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", self.path("tools/sshd_config")], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: subprocess.run(["bash", "-c", "exec 3<>/dev/tcp/127.99.0.1/2222"], stderr=subprocess.DEVNULL, check=False)
              .returncode == 0)

    def write_known_hosts(self, key):
        with open(self.path("tools", key), encoding="ascii") as f:
            line = " ".join(f.read().split()[:2])
        self.write("tools/known_hosts", f"[127.99.0.1]:2222 {line}\n")

    def link(self, name):
        try:
            with open(self.path("tools", name), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return b""

    # the command
    def once(self, *args, repo=REPO, env=None, **more):
        command = [self.path("bin/boxery"), "runners", "once"]
        command += ["--host", "vmhost"] if self.sshd else []
        command += ["--repo", repo] if repo else []
        p = subprocess.Popen(command + ["--json"] + list(args), env={**self.laptop, **(env or {})}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.path("laptop"), **more)
        self.started.append(p)
        return Once(p)

    def __exit__(self, *_):
        self.close()

    def close(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()
            for pipe in (p.stdin, p.stdout, p.stderr):
                with contextlib.suppress(OSError):
                    if pipe:
                        pipe.close()
        self.guest.over = True
        self.guest.join()
        for p in self.guest.running.values():
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        if self.sshd:
            self.sshd.terminate()
            self.sshd.wait()
        super().close()


class Once:
    """One `boxery runners once --json` and what it has said so far."""

    def __init__(self, process):
        self.process, self.events, self.err = process, [], []
        self.readers = [threading.Thread(target=self.read, args=x, daemon=True)
                        for x in ((process.stdout, self.events, json.loads), (process.stderr, self.err, str))]
        for t in self.readers:
            t.start()

    @staticmethod
    def read(source, to, parse):
        for line in source:
            to.append(parse(line))

    def words(self):
        return [e["event"] for e in self.events if e["event"] not in ("note", "output")]

    def await_word(self, word, timeout=30):
        until(lambda: word in self.words() or self.process.poll() is not None, timeout)
        if word not in self.words():
            raise AssertionError(f"no '{word}': {self.events} {self.err}")
        return next(e for e in self.events if e["event"] == word)

    def wait(self, timeout=60):
        status = self.process.wait(timeout)
        for t in self.readers:
            t.join(10)
        return status

    def result(self):
        return [e for e in self.events if e["event"] == "result"]

    def text(self):
        return "".join(self.err) + "\n".join(str(e.get("text", "")) for e in self.events)


class OnceCase(Case):
    journal = None  # what anybody in this namespace logs to the system; main() makes it
    ssh, there = False, {}
    pool = ("one",)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="boxery-once-")
        cls.emu = Emulator.start(os.path.join(cls.folder.name, "emulator"), "--listen", "127.0.0.1:0", token=TOKEN)

    @classmethod
    def tearDownClass(cls):
        cls.emu.stop()
        cls.folder.cleanup()

    def new_github(self):
        """Nothing is registered, queued or running; a runner that is gone is soon seen to be offline."""
        self.emu.reset()
        self.emu.settings(poll_seconds=1, assign_delay_ms=0, offline_after=4)
        self.emu.repo(REPO)

    def setUp(self):
        self.new_github()
        self.emu.call("DELETE", "requests")
        self.journal.forget()
        self.w = OnceWorld(self.emu, self.ssh, self.there)
        self.w.start()
        self.w.pool_vm(*self.pool)
        for name in self.pool:
            self.w.write(f"images/console/{name}.log", "booting\n")

    # what must hold when it is over
    def holds_nothing(self, vm="one", registered=0):
        """
        The VM is READY again, no lease is open, no process of a run is left, no secret is where it must not be. GitHub has no
        registration any more, or so many, and of those nobody is there.
        """
        self.w.await_state(vm, "READY", timeout=40)
        self.assertEqual([x for x in self.w.leases().values() if x["open"]], [])
        left = self.registered()
        self.assertEqual(len(left), registered, left)
        until(lambda: all(r["state"] in ("offline", "busy") for r in self.registered()), 20)
        until(lambda: not [p for p in self.w.children() if "boxery-runners" in self.exe(p)])
        self.secrets_are_nowhere()

    clean = holds_nothing

    def registered(self):
        return [r for r in self.emu.runners() if not r["foreign"] and r["state"] != "gone"]

    @staticmethod
    def exe(pid):
        try:
            return os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return ""

    def needles(self):
        return [n for r in self.emu.runners() if not r["foreign"] for n in r["needles"]]

    def secrets_are_nowhere(self, may_know=()):
        """argv and environment of every process, every file of the host (logs, database and deleted pages in it), the system's log, both
        directions of the link. Only gh knows the token; only the guest, the emulator and the memory of those in between know a JIT config."""
        needles = self.needles()
        runners = {p.pid for p in self.w.guest.running.values()}
        here = [x for x in canary.in_processes(needles + [TOKEN], skip=runners | {self.emu.process.pid}) if not self.is_guest(x[0])]
        self.assertEqual([x for x in here if x[1] not in ("gh", *may_know)], [])
        host = [x for x in canary.in_files(self.w.root, needles + [TOKEN], lambda p: "/laptop/.config/gh/" in p or "/guest/" in p or
                                           "/tools/link." in p)]
        self.assertEqual(host, [])
        log = self.journal.read()
        self.assertEqual([n for n in needles + [TOKEN] if n.encode() in log], [], "in the system's log")
        for name in ("link.c2h", "link.h2c"):
            self.assertNotIn(TOKEN.encode(), self.w.link(name), f"the token crossed the link ({name})")

    @staticmethod
    def is_guest(pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                return b"STANDIN_RETRY_SECONDS" in f.read()
        except OSError:
            return True


def main():
    enter_namespace()
    OnceCase.journal = Journal()
    unittest.main(verbosity=2)


__all__ = ["BUILD", "Case", "LABELS", "Once", "OnceCase", "REPO", "TOKEN", "canary", "enter_namespace", "json", "main", "os", "re", "signal", "subprocess",
           "sys", "threading", "time", "until"]
