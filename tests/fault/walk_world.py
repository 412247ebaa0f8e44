"""A host whose guests are libvirt's test driver: a real libvirtd, the real keeper, boxery-vm-testdriver, and a clock that only
the test moves. For the random walk and for the measurements with a hundred and a thousand VMs.

enter() puts the running script into a private world (tests/lib/world) and runs it there; World is then made inside.
"""
import ctypes
import hashlib
import os
import platform
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
from virtual_clock import Clock  # noqa: E402
from keeper_world import BINARIES, SPARE, Client, until  # noqa: E402

WORLD = os.path.join(HERE, "../lib/world")
URI = "test+unix:///default"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SKIP = 77
BASE_DISK = "test disk on nothing\n"


def enter(name):
    """Returns the world's folder when it runs inside; otherwise runs this script in a new world and exits with its status."""
    if "BOXERY_WALK" in os.environ:
        return os.environ["BOXERY_WALK"]
    if os.geteuid() != 0 or not shutil.which("libvirtd") or not shutil.which("tini"):
        print("skipped: a world needs root, libvirtd and tini")
        sys.exit(SKIP)
    folder = tempfile.mkdtemp(prefix=f"boxery-{name}-")
    status = 1
    try:
        subprocess.run([WORLD, "start", folder], check=True)
        inside = subprocess.Popen([WORLD, "run", folder, "--", "env", "BOXERY_WALK=" + folder, sys.executable, *sys.argv])
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, lambda *_: inside.kill())
        status = inside.wait()
    finally:
        subprocess.run([WORLD, "stop", folder], check=False)
        if status and os.environ.get("BOXERY_KEEP_WORLDS"):
            print("kept:", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if status < 0 else status)


class Libvirt:
    """One held connection: the test driver's domains live as long as there is one. Also what others do to our domains."""

    def __init__(self):
        lib = self.lib = ctypes.CDLL("libvirt.so.0")
        for name in ("virConnectOpen", "virDomainGetName", "virDomainGetXMLDesc", "virDomainLookupByName", "virDomainCreateXML"):
            getattr(lib, name).restype = ctypes.c_void_p
        self.free = ctypes.CDLL(None).free
        self.silence = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
        lib.virInitialize()
        lib.virSetErrorFunc(None, self.silence)
        self.conn = None

    def open(self):
        self.close()
        end = time.monotonic() + 30
        while not self.conn:
            self.conn = self.lib.virConnectOpen(URI.encode())
            if not self.conn:
                if time.monotonic() > end:
                    raise TimeoutError("libvirtd does not answer")
                time.sleep(0.02)

    def close(self):
        if self.conn:
            self.lib.virConnectClose(ctypes.c_void_p(self.conn))
        self.conn = None

    def domains(self):
        """name -> XML of every running domain."""
        array = ctypes.POINTER(ctypes.c_void_p)()
        n = self.lib.virConnectListAllDomains(ctypes.c_void_p(self.conn), ctypes.byref(array), 1)
        if n < 0:
            raise ConnectionError("libvirt lists no domains")
        out = {}
        for i in range(n):
            d = ctypes.c_void_p(array[i])
            name = ctypes.string_at(self.lib.virDomainGetName(d)).decode()
            xml = self.lib.virDomainGetXMLDesc(d, 0)
            if xml:  # gone meanwhile otherwise
                out[name] = ctypes.string_at(xml).decode()
                self.free(ctypes.c_void_p(xml))
            self.lib.virDomainFree(d)
        self.free(array)
        return out

    def destroy(self, name):
        d = self.lib.virDomainLookupByName(ctypes.c_void_p(self.conn), name.encode())
        if not d:
            return False
        done = self.lib.virDomainDestroy(ctypes.c_void_p(d)) == 0
        self.lib.virDomainFree(ctypes.c_void_p(d))
        return done

    def suspend(self, name):
        d = self.lib.virDomainLookupByName(ctypes.c_void_p(self.conn), name.encode())
        if d:
            self.lib.virDomainSuspend(ctypes.c_void_p(d))
            self.lib.virDomainFree(ctypes.c_void_p(d))

    def create(self, xml):
        d = self.lib.virDomainCreateXML(ctypes.c_void_p(self.conn), xml.encode(), 0)
        if d:
            self.lib.virDomainFree(ctypes.c_void_p(d))
        return bool(d)


def generation(xml):
    """Of a domain of ours; 0 of any other."""
    m = re.search(r"<vm [^>]*\bgeneration=['\"](\d+)", xml)
    return int(m[1]) if m else 0


class World:
    def __init__(self, folder, keeper="walk-boxery-keeper", host_env="", clock=True):
        self.folder, self.root = folder, os.path.join(folder, "w")
        for part in ("", "bin", "config", "state", "run", "home", "faults", "deliver", "deliver/script", "images", "images/base",
                     "images/base/tiny"):
            os.makedirs(self.path(part), 0o700, exist_ok=True)
        for source, name in ((keeper, "boxery-keeper"), ("boxery-vm-testdriver", "boxery-vm"),
                             ("fault-boxery-deliver", "boxery-deliver")):
            shutil.copy(os.path.join(BINARIES, source), self.path("bin", name))
        for name in ("disk.qcow2", "vmlinuz", "initrd"):
            self.write("images/base/tiny/" + name, BASE_DISK if name == "disk.qcow2" else name)
        self.write("images/base/tiny/manifest.env", f"ARCH={platform.machine()}\nKERNEL=vmlinuz\nINITRD=initrd\n"
                   f"CMDLINE=root=/dev/vda\nDISK_SHA256={hashlib.sha256(BASE_DISK.encode()).hexdigest()}\n")
        self.write("config/host.env", f"BOXERY_LIBVIRT_URI={URI}\nBOXERY_IMAGE_DIR={self.path('images')}\n" + host_env)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.path("home"), "LANG": "C.UTF-8",
                    "BOXERY_CONFIG_DIR": self.path("config"), "BOXERY_STATE_DIR": self.path("state"),
                    "BOXERY_RUNTIME_DIR": self.path("run"), "BOXERY_TESTDRIVER": self.path("faults"),
                    "BOXERY_TEST_WORLD": self.path("deliver")}
        if os.environ.get("BOXERY_DEBUG"):
            self.env["BOXERY_DEBUG"] = "1"
        self.clock = Clock(self.path("clock")) if clock else None
        if clock:
            self.env.update(BOXERY_TEST_CLOCK=self.clock.path, LD_PRELOAD=os.path.join(BINARIES, "libwalk_clock.so"))
        self.keeper, self.armed = None, None
        self.boots = 0
        self.libvirt = Libvirt()
        self.libvirt.open()
        self.guests = socket.socket()
        self.guests.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.guests.bind(("0.0.0.0", 22))
        self.guests.listen(1024)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def drain(self):
        """Takes the connections that deliveries made, so that the queue of the listening socket never fills."""
        self.guests.setblocking(False)
        try:
            while True:
                self.guests.accept()[0].close()
        except BlockingIOError:
            pass

    # libvirtd

    def libvirtd_pid(self):
        with open(os.path.join(self.folder, "run/libvirtd.pid"), encoding="utf-8") as f:
            return int(f.read())

    def libvirtd_kill(self):
        """With it go all domains of the test driver."""
        pid = self.libvirtd_pid()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{pid}"), 10)
        self.libvirt.close()

    def libvirtd_start(self):
        for name in ("run/libvirtd.pid", "run/libvirt/libvirt-sock"):
            try:
                os.unlink(os.path.join(self.folder, name))
            except FileNotFoundError:
                pass
        with open(os.path.join(self.folder, "run/ctl"), "w", encoding="utf-8") as f:
            f.write("go\n")
        self.libvirt.open()

    def reboot(self):
        """What is left of a host after its power went: the files."""
        self.kill()
        if self.libvirt.conn:
            self.libvirtd_kill()
        self.boots += 1
        self.write("boot_id", f"{self.boots:08x}-0000-4000-8000-000000000000\n")
        if self.boots > 1:
            subprocess.run(["umount", BOOT_ID], check=True)
        subprocess.run(["mount", "--bind", self.path("boot_id"), BOOT_ID], check=True)
        self.clock.set(60 - time.clock_gettime(time.CLOCK_BOOTTIME), followed=False)
        self.libvirtd_start()

    # the keeper

    def start(self, kill=None, wait=True):
        env = dict(self.env)
        if kill:
            env["BOXERY_TEST_KILL"] = kill
        self.armed = kill
        with open(self.path("keeper.log"), "a", encoding="utf-8") as log:
            self.keeper = subprocess.Popen([self.path("bin/boxery-keeper")], env=env, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log)
        if wait:
            self.await_socket()
        return self

    def await_socket(self, timeout=30):
        def answers():
            if self.keeper.poll() is not None:
                return True
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                return s.connect_ex(self.path("run/keeper.sock")) == 0
        until(answers, timeout, 0.002)

    def kill(self):
        """kill -9; its children have to go with it."""
        if self.keeper:
            self.keeper.kill()
            self.keeper.wait()
            self.keeper = None
        until(lambda: not self.children(), 10, 0.001)

    def end(self, timeout=20):
        self.keeper.terminate()
        status = self.keeper.wait(timeout)
        self.keeper = None
        return status

    def children(self, name=None, spares=True):
        """pids of the keeper's children (of what is left of them without a keeper), oldest first; name: of boxery-NAME only; with or
        without those that wait for something to do."""
        out, bin_folder = [], self.path("bin") + "/"
        try:
            with open(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children", encoding="utf-8") as f:
                pids = f.read().split()
        except (AttributeError, OSError):
            pids = [p for p in os.listdir("/proc") if p.isdigit()]
        for pid in pids:
            try:
                exe = os.readlink(f"/proc/{pid}/exe")
                if not exe.startswith(bin_folder) or (self.keeper and int(pid) == self.keeper.pid):
                    continue
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    comm, stat = f.read().split("(", 1)[1].rsplit(")", 1)
                    stat = stat.split()
            except (OSError, IndexError):
                continue
            if stat[0] != "Z" and (spares or comm != SPARE) and (not name or exe.endswith("/boxery-" + name)):
                out.append((int(stat[19]), int(pid)))
        return [pid for _, pid in sorted(out)]

    def client(self, timeout=20):
        return Client(self.path("run/keeper.sock"), timeout)

    def call(self, kind, secret=None, timeout=20, **values):
        c = self.client(timeout)
        try:
            return c.call(kind, secret, **values)
        finally:
            c.close()

    def database(self):
        """With the keeper ended: it holds the lock otherwise."""
        return sqlite3.connect(self.path("state/boxery.db"))

    def close(self):
        self.kill()
        self.libvirt.close()
        self.guests.close()
