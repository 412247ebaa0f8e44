#!/usr/bin/python3
"""Speaks vm/proto.h to boxery-vm, in the keeper's place.

    vmctl.py [--world DIR] [--program PATH] VERB [NAME] [key=value]...
    vmctl.py --world /tmp/w new a slot=0 cpus=2 memory_mib=1024 disk_gib=4 image=debian

As a module: Vm(world=..., program=...).call("start", "a", generation=1, ...) -> Answer; .watch() -> Watch.
"""
import ctypes
import os
import select
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORLD = os.path.join(HERE, "world")
MAGIC, VERSION = 0x59584F42, 1
VERBS = {v: i + 1 for i, v in enumerate("check new start reset stop capture remove filter list watch grant wake uninstall patch settle".split())}
STEP, ENTRY, EVENT, RESULT = 32, 33, 34, 35
EVENTS = {1: "snapshot", 2: "stopped", 3: "disconnected", 4: "console-cut", 5: "unguarded"}
PLAIN, FORCE, EVIDENCE, HALT, WARM, STANDBY, DROP_MEMORY, TRIAL, FRESH = 1, 2, 4, 8, 16, 32, 64, 128, 256


class Head(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint32), ("version", ctypes.c_uint16), ("type", ctypes.c_uint16),
                ("length", ctypes.c_uint32), ("seq", ctypes.c_uint32)]


class Request(ctypes.Structure):
    _fields_ = [("head", Head), ("name", ctypes.c_char * 41), ("generation", ctypes.c_uint64),
                ("slot", ctypes.c_uint32), ("cpus", ctypes.c_uint32), ("memory_mib", ctypes.c_uint32),
                ("disk_gib", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("timeout_ms", ctypes.c_uint32),
                ("image", ctypes.c_char * 41), ("key_line", ctypes.c_char * 1024), ("clean_of", ctypes.c_char * 41),
                ("start_cpus", ctypes.c_uint32), ("start_memory_mib", ctypes.c_uint32),
                ("disk_mib_per_s", ctypes.c_uint32), ("disk_iops", ctypes.c_uint32), ("net_kib_per_s", ctypes.c_uint32)]


class Step(ctypes.Structure):
    _fields_ = [("head", Head), ("step", ctypes.c_char * 32), ("took_us", ctypes.c_uint64), ("text", ctypes.c_char * 512)]


class Entry(ctypes.Structure):
    _fields_ = [("head", Head), ("name", ctypes.c_char * 41), ("generation", ctypes.c_uint64),
                ("running", ctypes.c_uint32), ("plain", ctypes.c_uint32), ("stuck", ctypes.c_uint32), ("slot", ctypes.c_uint32),
                ("cpus", ctypes.c_uint32), ("memory_mib", ctypes.c_uint32), ("disk_gib", ctypes.c_uint32),
                ("address", ctypes.c_char * 46), ("trouble", ctypes.c_char * 512)]


class Event(ctypes.Structure):
    _fields_ = [("head", Head), ("kind", ctypes.c_int32), ("name", ctypes.c_char * 41), ("generation", ctypes.c_uint64),
                ("text", ctypes.c_char * 512)]


class Result(ctypes.Structure):
    _fields_ = [("head", Head), ("code", ctypes.c_int32), ("kvm", ctypes.c_uint32), ("warm", ctypes.c_uint32),
                ("standby", ctypes.c_uint32), ("step", ctypes.c_char * 32),
                ("host_key", ctypes.c_char * 512), ("address", ctypes.c_char * 46), ("text", ctypes.c_char * 512)]


TYPES = {STEP: Step, ENTRY: Entry, EVENT: Event, RESULT: Result}


def plain(m):
    """A message as a dict of Python values."""
    out = {}
    for name, _ in m._fields_:
        if name != "head":
            v = getattr(m, name)
            out[name] = v.decode("utf-8", "replace") if isinstance(v, bytes) else v
    return out


class Answer:
    def __init__(self):
        self.steps, self.entries, self.events, self.result = [], [], [], None

    @property
    def ok(self):
        return self.result is not None and self.result["code"] == 0

    @property
    def code(self):
        return None if self.result is None else self.result["code"]

    @property
    def text(self):
        return "" if self.result is None else self.result["text"]

    def entry(self, name):
        return next((e for e in self.entries if e["name"] == name), None)


class Vm:
    def __init__(self, world=None, program=None):
        self.world = world
        self.program = program or os.environ.get("BOXERY_VM") or "boxery-vm"

    def ahead(self):
        """A child that waits for its request: ask() it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [self.program]
        if self.world:
            command = [WORLD, "run", self.world, "--"] + command
        child = subprocess.Popen(command, preexec_fn=lambda: os.dup2(theirs.fileno(), 3), close_fds=False,
                                 stdin=subprocess.DEVNULL)
        theirs.close()
        return child, ours

    @staticmethod
    def ask(sock, verb, name="", **fields):
        q = Request()
        q.head = Head(MAGIC, VERSION, VERBS[verb], ctypes.sizeof(Request), 1)
        q.name = name.encode()
        for k, v in fields.items():
            setattr(q, k, v.encode() if isinstance(v, str) else v)
        sock.send(bytes(q))

    def spawn(self, verb, name="", **fields):
        child, ours = self.ahead()
        self.ask(ours, verb, name, **fields)
        return child, ours

    @staticmethod
    def receive(sock, timeout):
        """One message as (type, dict); None at the end of the stream; TimeoutError."""
        if not select.select([sock], [], [], max(0, timeout))[0]:
            raise TimeoutError
        try:
            data = sock.recv(8192)
        except ConnectionResetError:
            return None
        if not data:
            return None
        head = Head.from_buffer_copy(data)
        assert head.magic == MAGIC and head.length == len(data), "a malformed message"
        return head.type, plain(TYPES[head.type].from_buffer_copy(data))

    def collect(self, child, sock, timeout=300, on=None):
        a = Answer()
        until = time.monotonic() + timeout
        while True:
            m = self.receive(sock, until - time.monotonic())
            if m is None:
                break
            kind, value = m
            if on:
                on(kind, value)
            {STEP: a.steps, ENTRY: a.entries, EVENT: a.events}.get(kind, []).append(value)
            if kind == RESULT:
                a.result = value
                break
        sock.close()
        child.wait(30)
        return a

    def call(self, verb, name="", timeout=300, on=None, **fields):
        return self.collect(*self.spawn(verb, name, **fields), timeout=timeout, on=on)

    def watch(self):
        return Watch(self)


class Watch:
    """The long-lived child; events are dicts with `kind` as a word, entries have kind "entry"."""

    def __init__(self, vm):
        self.child, self.sock = vm.spawn("watch")

    def next(self, timeout=30):
        m = Vm.receive(self.sock, timeout)
        if m is None:
            return None
        kind, value = m
        value["kind"] = "entry" if kind == ENTRY else EVENTS[value["kind"]] if kind == EVENT else "result"
        return value

    def wait(self, kind, timeout=30, **fields):
        until = time.monotonic() + timeout
        while True:
            v = self.next(until - time.monotonic())
            if v is None:
                raise EOFError
            if v["kind"] == kind and all(v.get(k) == x for k, x in fields.items()):
                return v

    def close(self):
        self.sock.close()
        return self.child.wait(10)


def main(argv):
    world = program = None
    while argv and argv[0].startswith("--"):
        if argv[0] == "--world":
            world = argv[1]
        elif argv[0] == "--program":
            program = argv[1]
        else:
            sys.exit(__doc__)
        argv = argv[2:]
    if not argv or argv[0] not in VERBS:
        sys.exit(__doc__)
    verb, name, fields = argv[0], "", {}
    for a in argv[1:]:
        if "=" in a:
            k, v = a.split("=", 1)
            text = k in ("image", "key_line", "clean_of")
            fields[k] = v if text else int(v)
        else:
            name = a
    start = time.monotonic()

    def show(kind, v):
        if kind == STEP:
            print(f"{time.monotonic() - start:7.2f}  {v['step']:<14} {v['took_us'] / 1000:8.0f} ms  {v['text']}", flush=True)
        else:
            print(f"{time.monotonic() - start:7.2f}  {v}", flush=True)

    a = Vm(world, program).call(verb, name, timeout=10**9 if verb == "watch" else 600, on=show, **fields)
    return 0 if a.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
