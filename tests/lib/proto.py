"""The project's own message protocol, from a test's side.

Messages are C structs over SOCK_SEQPACKET (linux/msg.h), children are born with their fds numbered from 3 on. The layouts
here are written down by hand; a program checks the exact length of what it gets, so a layout that has drifted fails loudly.
"""
import fcntl
import os
import re
import select
import signal
import socket
import struct
import tempfile
import time

MAGIC, VERSION = 0x59584F42, 1
HEAD = struct.Struct("@IHHII")
F_ADD_SEALS, ALL_SEALS = 1033, 0x1 | 0x2 | 0x4 | 0x8


class Layout:
    """A message struct: a format as of the struct module with native alignment, and the names of its fields."""

    def __init__(self, kind, fmt, names):
        # C pads a struct to its strictest member; all of ours begin with the head and have at most 8-byte members.
        self.struct = struct.Struct("@IHHII" + fmt.replace(" ", ""))
        align = 8 if re.search("[Qq]", fmt) else 4
        self.size = (self.struct.size + align - 1) // align * align
        self.kind, self.names = kind, names.split()

    def pack(self, seq=0, length=None, kind=None, **values):
        fields = []
        for name in self.names:
            value = values.pop(name, None)
            fields.append(value.encode() if isinstance(value, str) else value)
        assert not values, values
        kinds = re.findall(r"\d*[a-zA-Z]", self.struct.format[6:])
        fields = [(b"" if k.endswith("s") else 0) if v is None else v for k, v in zip(kinds, fields)]
        data = self.struct.pack(MAGIC, VERSION, kind or self.kind, length or self.size, seq, *fields)
        return data.ljust(self.size, b"\0")

    def unpack(self, data):
        assert len(data) == self.size, f"{len(data)} bytes instead of {self.size}"
        magic, version, kind, length, seq, *fields = self.struct.unpack(data[: self.struct.size])
        assert (magic, version, length) == (MAGIC, VERSION, len(data))
        out = {"kind": kind, "seq": seq}
        for name, value in zip(self.names, fields):
            out[name] = value.split(b"\0", 1)[0].decode() if isinstance(value, bytes) else value
        return out


DELIVER_REQUEST = Layout(1, "512s Q", "host_key timeout_ms")
DELIVER_RESULT = Layout(2, "i i i I I 512s", "code step exit_status handshake_ms total_ms text")
DELIVER_STEPS = ["starting", "handshake", "host-key", "auth", "exec", "sending", "waiting", "done"]

GITHUB_REQUEST = Layout(1, "141s 65s 1024s Q Q 65s 256s", "scope runner_name labels runner_id run_id group text")
GITHUB_REPLY = Layout(10, "i i i I I I I I Q Q I I I i I I Q Q 512s",
                      "code fault http_status is_private found online busy may_exist runner_id retry_after_ms "
                      "rate_remaining rate_limit rate_reset_s limit_kind calls calls_free group_id credential_expires text")
CONTROL_REQUEST = Layout(1, "141s", "scope")
CONTROL_REPLY = Layout(7, "i 512s", "code text")
CONTROL_VERBS = {"STATUS": 1, "EXPLAIN": 2, "PAUSE": 3, "DRAIN": 4, "RESUME": 5, "RELOAD": 6}
GITHUB_VERBS = {"HELLO": 1, "REPOSITORY": 2, "MINT": 3, "RUNNER": 4, "DELETE": 5, "JOBS": 6, "JOB_OF": 7, "DEPRECATION": 8,
                "GROUP": 9, "RUNNERS": 11}
GITHUB_FAULTS = ["none", "credential", "permission", "limit", "absent", "conflict", "invalid", "busy", "server", "network",
                 "public"]


def memfd(data, label="test", seal=True):
    fd = os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if seal:
        fcntl.fcntl(fd, F_ADD_SEALS, ALL_SEALS)
    return fd


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Child:
    """A process of ours with exactly the given fds as 3, 4, ...; its output is kept."""

    def __init__(self, program, fds=(), args=(), env=None):
        self.output = tempfile.TemporaryFile()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 40) for fd in fds]
        out = fcntl.fcntl(self.output.fileno(), fcntl.F_DUPFD_CLOEXEC, 40)
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, fd, 3 + i) for i, fd in enumerate(high)]
        if env is None:
            env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env.setdefault(name, os.environ[name])
        self.pid = os.posix_spawn(program, [program, *args], env, file_actions=actions)
        self.pidfd = os.pidfd_open(self.pid)
        self.status = None
        for fd in [*high, out]:
            os.close(fd)

    def wait(self, timeout=20):
        """Exit status, or minus the signal."""
        if self.status is None:
            if not select.select([self.pidfd], [], [], timeout)[0]:
                raise TimeoutError(f"process {self.pid} still runs after {timeout} s: {self.text()}")
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def text(self):
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors="replace")

    def proc(self, name):
        with open(f"/proc/{self.pid}/{name}", "rb") as f:
            return f.read()

    def proc_status(self, field):
        return re.search(rb"^%s:\s*(\S+)" % field.encode(), self.proc("status"), re.M)[1].decode()

    def memory_has(self, needle):
        """Where the bytes stand in the process's readable memory, as a line of its maps, or None."""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as mem:
            for line in self.proc("maps").decode().splitlines():
                span, rights, *_, = line.split()
                if line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                    continue
                start, end = (int(x, 16) for x in span.split("-"))
                if end - start > 1 << 30:  # a sanitizer's shadow; nothing of ours is that large
                    continue
                try:
                    mem.seek(start)
                    data = mem.read(end - start)
                except (OSError, ValueError):
                    continue
                if data and needle in data:
                    return f"{line} at {start + data.index(needle):#x}"
        return None

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        self.output.close()


def until(condition, timeout=10, step=0.02):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(step)
    raise TimeoutError("the condition did not come true")


class GitHub:
    """A running boxery-github and the socket to it."""

    def __init__(self, program, config_dir, env=None):
        ours, theirs = pair()
        self.sock = ours
        full = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "BOXERY_CONFIG_DIR": config_dir}
        full.update(env or {})
        self.child = Child(program, [theirs.fileno()], env=full)
        theirs.close()
        self.seq = 0

    def call(self, verb, timeout=60, **fields):
        """(reply, fds): the fault as a word in reply["fault"]."""
        self.seq += 1
        self.sock.send(GITHUB_REQUEST.pack(seq=self.seq, kind=GITHUB_VERBS[verb], **fields))
        self.sock.settimeout(timeout)
        data, fds, _, _ = socket.recv_fds(self.sock, 8192, 4)
        if not data:
            raise EOFError(f"boxery-github ended: {self.child.text()}")
        reply = GITHUB_REPLY.unpack(data)
        assert reply["seq"] == self.seq
        reply["fault"] = GITHUB_FAULTS[reply["fault"]]
        return reply, fds

    def close(self):
        self.sock.close()
        self.child.close()
