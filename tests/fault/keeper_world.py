"""A world for one test of boxery-keeper: its own folders, the real keeper (built with kill points and short times), stand-ins
for boxery-vm and boxery-deliver beside it, and somebody who listens where guests' sshd would.

The tests run in a network namespace of their own (enter_namespace()), so that port 22 of 127.77.0.x is theirs.
"""
import ctypes
import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from proto import MAGIC, VERSION, Layout, memfd, until  # noqa: E402

SKIP = 77
SPARE = "boxery-vm-spare"  # what a child is called that waits for its request
SPARES = 2  # KEEPER_SPARES
BINARIES = os.environ.get("BOXERY_FAULT_BINARIES", "")  # folder with the three executables

TYPES = ("HELLO NEW LIST START STOP REMOVE POOL_ADD POOL_REMOVE POOL_REPAIR LEASE LEASES REGISTER DELIVER JOB_SEEN RELEASE "
         "OUTCOME HISTORY SUBSCRIBE CHECK FILTER QUIT NOTE POOL_SET "
         "POOLS POOL_KEEP RENEW UNINSTALL POOL_PATCH").split()
TYPE = {name: i + 1 for i, name in enumerate(TYPES)}
PROGRESS, REPLY, EVENT = 64, 65, 66
# POOL_ADD's count, POOL_SET's settings.
SETTINGS_FORMAT = "I I I I I I I I I I"
SETTINGS_NAMES = "count set_cpus set_memory_mib disk_mib_per_s disk_iops net_kib_per_s reserve_service reserve_local start standby"
REQUEST = Layout(0, "41s 41s 41s 48s 33s 141s I I I I I Q Q Q 1024s " + SETTINGS_FORMAT,
                 "name pool image holder lease scope flags registration cpus memory_mib disk_gib ttl_ms wait_ms runner_id text " +
                 SETTINGS_NAMES)
ANSWERS = {
    PROGRESS: Layout(PROGRESS, "512s", "text"),
    REPLY: Layout(REPLY, "i 41s 33s 65s 46s Q 512s 512s", "code name lease runner_name address generation text host_key"),
    EVENT: Layout(EVENT, "41s 33s Q i i i 512s", "name lease generation from to what text"),
}
FORCE, BIND, WAIT, ALL, LOOK = 1, 2, 4, 8, 16
WARM, COLD, PAUSED, RUNNING = 1, 2, 1, 2  # POOL_SET
STATES = "PLAIN COLD STARTING READY LEASED DELIVERED BUSY RESETTING BROKEN MAINTENANCE ADDING KEPT".split()
SECRET = b"eyJjYW5hcnkiOiAiYm94ZXJ5LWNhbmFyeS1qaXQtY29uZmlnLWZvci10aGUtZmF1bHQtdGVzdHMifQ=="


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code} ({os.strerror(-code)}): {text}")
        self.code, self.text = code, text


class Gone(Exception):
    """The keeper closed the connection."""


def enter_namespace():
    """A network namespace with nothing but loopback; without the right to make one the tests are skipped."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000) != 0:
        print("skipped: no right to make a network namespace:", os.strerror(ctypes.get_errno()))
        sys.exit(SKIP)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING


class Client:
    def __init__(self, path, timeout=10):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(timeout)
        self.seq = 0
        self.progress, self.events = [], []

    def send(self, kind, secret=None, **values):
        self.seq += 1
        data = REQUEST.pack(seq=self.seq, kind=TYPE[kind], **values)
        fds = [] if secret is None else [secret]
        try:
            socket.send_fds(self.socket, [data], fds)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Gone from e
        return self.seq

    def receive(self):
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 8192, 4)
        except ConnectionResetError as e:
            raise Gone from e
        if not data:
            raise Gone
        kind = struct.unpack_from("@IHH", data)[2]
        out = ANSWERS[kind].unpack(data)
        if fds:
            with os.fdopen(fds[0], "rb") as f:
                f.seek(0)
                out["document"] = json.loads(f.read())
        return out

    def reply(self, seq):
        while True:
            a = self.receive()
            if a["kind"] == PROGRESS:
                assert a["seq"] == seq, a
                self.progress.append(a["text"])
            elif a["kind"] == EVENT:
                self.events.append(a)
            else:
                assert a["seq"] == seq, a
                if a["code"] < 0:
                    raise Refused(a["code"], a["text"])
                assert a["code"] == 0, a
                return a

    def call(self, kind, secret=None, **values):
        return self.reply(self.send(kind, secret, **values))

    def close(self):
        self.socket.close()


class World:
    def __init__(self, host_env="", pools=True):
        self.root = tempfile.mkdtemp(prefix="boxery-fault-")
        try:
            self.make(host_env)
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise

    def make(self, host_env):
        for folder in ("bin", "world", "world/domains", "world/settings", "world/clean", "world/run",
                       "world/broken", "world/trouble", "world/twins", "world/script", "config", "state",
                       "run", "images", "home"):
            os.mkdir(self.path(folder), 0o700)
        for name in ("boxery-keeper", "boxery-vm", "boxery-deliver"):
            shutil.copy(os.path.join(BINARIES, "fault-" + name), self.path("bin", name))
        usual = [x for x in ("BOXERY_START_TIMEOUT=2s\n", "BOXERY_PARALLEL=2\n") if x.split("=")[0] not in host_env]
        self.write("config/host.env", "".join(usual) + host_env +
                   f"BOXERY_IMAGE_DIR={self.path('images')}\nBOXERY_CACHE_DIR={self.path('cache')}\n")
        self.env = {"PATH": os.environ["PATH"], "HOME": self.path("home"), "LANG": "C.UTF-8",
                    "BOXERY_CONFIG_DIR": self.path("config"), "BOXERY_STATE_DIR": self.path("state"),
                    "BOXERY_RUNTIME_DIR": self.path("run"), "BOXERY_TEST_WORLD": self.path("world"), "BOXERY_DEBUG": "1"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.memory(800000)
        self.env["BOXERY_TEST_MEMINFO"] = self.path("meminfo")
        self.keeper = None
        self.clients = []
        self.guests = socket.socket()
        self.guests.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.guests.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # a second world in the same namespace
        self.guests.bind(("0.0.0.0", 22))
        self.guests.listen(128)

    def memory(self, total_mib, available_mib=None):
        """What the host has, from now on."""
        self.write("meminfo.new", f"MemTotal: {total_mib * 1024} kB\nMemFree: 1 kB\n"
                   f"MemAvailable: {(total_mib if available_mib is None else available_mib) * 1024} kB\n")
        os.rename(self.path("meminfo.new"), self.path("meminfo"))

    def has(self, folder, name):
        return os.path.exists(self.path("world", folder, name))

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)

    def lines(self, name):
        try:
            with open(self.path("world", name), encoding="utf-8") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def log(self):
        with open(self.path("keeper.log"), encoding="utf-8") as f:
            return f.read()

    def script(self, what, how):
        """How VERB, or VERB-NAME, or deliver behaves from now on; None: well."""
        path = self.path("world/script", what)
        if how is None:
            if os.path.exists(path):
                os.unlink(path)
            return
        self.write("world/script/.new", how + "\n")
        os.rename(self.path("world/script/.new"), path)

    def libvirt(self, up):
        if up:
            os.unlink(self.path("world/down"))
        else:
            self.write("world/down", "")

    def stop_domain(self, name):
        """What a guest's poweroff or crash looks like."""
        os.unlink(self.path("world/domains", name))

    def running(self, name):
        """Generation of the domain, 0 when there is none."""
        try:
            with open(self.path("world/domains", name), encoding="utf-8") as f:
                return int(f.read().split()[0])
        except FileNotFoundError:
            return 0

    # the keeper
    def start(self, kill=None, wait=True, stdin=None):
        env = dict(self.env)
        if kill:
            env["BOXERY_TEST_KILL"] = kill
        with open(self.path("keeper.log"), "a", encoding="utf-8") as log:
            # restore_signals: SIGXFSZ stays ignored, so that a limit on file sizes can play a full disk.
            self.keeper = subprocess.Popen([self.path("bin/boxery-keeper")], env=env, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, restore_signals=False)
        if wait:
            self.await_socket()
        return self

    def await_socket(self):
        def answers():
            if self.keeper.poll() is not None:
                return True
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                return s.connect_ex(self.path("run/keeper.sock")) == 0
        until(answers)

    def kill(self):
        """kill -9; its children have to go with it."""
        if self.keeper:
            self.keeper.kill()
            self.keeper.wait()
            self.keeper = None
        until(lambda: not self.children())

    def children(self, spares=True):
        """Every process that runs one of this world's programs, but the keeper; or only those that have something to do."""
        out = []
        for pid in os.listdir("/proc"):
            try:
                exe = os.readlink(f"/proc/{pid}/exe")
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    comm, state = f.read().split("(", 1)[1].rsplit(")", 1)
                    state = state.split()[0]
            except (OSError, IndexError):
                continue
            if comm == SPARE and not spares:
                continue
            if exe.startswith(self.path("bin")) and state != "Z" and (not self.keeper or int(pid) != self.keeper.pid):
                out.append(int(pid))
        return out

    def spares(self):
        """The children that were started ahead, once all are there."""
        found = []

        def all_there():
            found[:] = set(self.children()) - set(self.children(spares=False))
            return len(found) == SPARES
        until(all_there)
        return found

    def end(self, timeout=10):
        """SIGTERM; the exit status."""
        self.keeper.terminate()
        status = self.keeper.wait(timeout)
        self.keeper = None
        return status

    def client(self, timeout=10):
        c = Client(self.path("run/keeper.sock"), timeout)
        self.clients.append(c)
        return c

    def call(self, kind, secret=None, timeout=10, **values):
        c = Client(self.path("run/keeper.sock"), timeout)
        try:
            return c.call(kind, secret, **values)
        finally:
            c.close()

    # shorthand
    def vms(self):
        return {v["name"]: v for v in self.call("LIST")["document"]["vms"]}

    def state(self, name):
        return self.vms()[name]["state"]

    def await_state(self, name, *states, timeout=10):
        until(lambda: self.state(name) in states, timeout)
        return self.vms()[name]

    def leases(self, holder=""):
        return {x["lease"]: x for x in self.call("LEASES", holder=holder)["document"]["leases"]}

    def history(self, **which):
        return self.call("HISTORY", **which)["document"]["events"]

    def new(self, name, **values):
        return self.call("NEW", name=name, image="debian-12", **values)

    def pool_vm(self, *names, pool="default"):
        """VMs made, captured, READY."""
        for name in names:
            self.new(name)
            self.call("POOL_ADD", name=name, pool=pool, flags=WAIT)

    def lease(self, holder="tester", client=None, **values):
        values.setdefault("ttl_ms", 60000)
        if "name" not in values:
            values.setdefault("pool", "default")
        return client.call("LEASE", holder=holder, **values) if client else self.call("LEASE", holder=holder, **values)

    def deliver(self, lease, client=None, data=SECRET, seal=True):
        fd = memfd(data, seal=seal)
        try:
            return (client or self).call("DELIVER", fd, lease=lease)
        finally:
            os.close(fd)

    def delivered(self):
        """(name, generation) of every life that got a secret, in order."""
        out = []
        for line in self.lines("deliveries.log"):
            _, name, generation = line.split(" ", 1)[1].split("+")
            out.append((name.replace("/", "-"), int(generation)))
        return out

    def ops(self, verb, name=None):
        return [x.split() for x in self.lines("ops.log") if x.split()[0] == verb and (not name or x.split()[1] == name)]

    def close(self):
        for c in self.clients:
            c.close()
        if self.keeper:
            self.kill()
        self.guests.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # what must hold at every time, whatever happened
    def check_invariants(self, t):
        given = self.delivered()
        t.assertEqual(len(given), len(set(given)), f"a life got two secrets: {given}")
        with open(self.path("keeper.log"), "rb") as f:
            t.assertNotIn(SECRET[:40], f.read(), "the secret is in the log")

    def check_database(self, t):
        """With the keeper ended."""
        db = sqlite3.connect(self.path("state/boxery.db"))
        try:
            t.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            t.assertEqual(db.execute("SELECT vm, count(*) FROM leases WHERE open = 1 GROUP BY vm HAVING count(*) > 1")
                          .fetchall(), [])
            for kind, text, vm in db.execute("SELECT kind, text, vm FROM events ORDER BY id"):
                m = re.match(r"([A-Z]+) -> ([A-Z]+)", text)
                if not m:
                    continue
                if m[2] == "READY":
                    t.assertEqual((m[1], kind), ("STARTING", "STARTED"), vm)
                if m[2] == "LEASED":
                    t.assertEqual((m[1], kind), ("READY", "LEASE"), vm)
            with open(self.path("state/boxery.db"), "rb") as f:
                t.assertNotIn(SECRET[:40], f.read(), "the secret is in the database")
        finally:
            db.close()


class Case(unittest.TestCase):
    host_env = ""

    def setUp(self):
        self.w = World(self.host_env)
        self.addCleanup(self.w.close)  # also when what else a test sets up fails

    def tearDown(self):
        if self.w.keeper and self.w.keeper.poll() is None:
            self.w.check_invariants(self)
            self.assertEqual(self.w.end(), 0)
            self.w.check_database(self)
        result = self._outcome.result
        failed = any(t is self or getattr(t, "test_case", None) is self for t, _ in result.failures + result.errors)
        if failed and os.environ.get("BOXERY_FAULT_LOG", "1") == "1" and os.path.exists(self.w.path("keeper.log")):
            sys.stderr.write(f"---- {self.id()}: the end of the keeper's log\n")
            sys.stderr.write("\n".join(self.w.log().splitlines()[-60:]) + "\n")
        self.w.close()

    def refused(self, code, pattern, call, *args, **values):
        with self.assertRaises(Refused) as r:
            call(*args, **values)
        self.assertEqual(-r.exception.code, code, r.exception.text)
        self.assertRegex(r.exception.text, pattern)
        return r.exception.text


def main():
    enter_namespace()
    unittest.main(verbosity=2)


__all__ = ["ALL", "REQUEST", "TYPE", "BIND", "COLD", "PAUSED", "RUNNING", "WARM", "Case", "Client", "FORCE", "LOOK", "Gone", "PROGRESS", "REPLY", "Refused", "SECRET", "SKIP", "STATES", "TYPES", "WAIT", "World", "main",
           "memfd", "random", "select", "signal", "time", "until", "MAGIC", "VERSION"]
