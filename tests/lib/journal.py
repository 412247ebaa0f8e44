"""The system's log, as far as programs of a test write there: syslog(3) and the journal, in a mount namespace of the test's own.

/dev and /run are made anew, /dev with all that was in it, so that nothing of the machine's own log is touched or read.
"""
import ctypes
import os
import select
import socket
import tempfile
import threading
import time

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MS_MOVE = 0x00020000, 4096, 16384, 1 << 18, 8192
DATAGRAMS = ("/dev/log", "/run/systemd/journal/socket")
STREAM = "/run/systemd/journal/stdout"


def mount(source, target, kind=None, flags=0):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def own_dev():
    """/dev, but for its log, on a file system of our own."""
    folder = tempfile.mkdtemp(prefix="boxery-dev-")
    mount("tmpfs", folder, "tmpfs")
    for name in os.listdir("/dev"):
        old, new = os.path.join("/dev", name), os.path.join(folder, name)
        if name == "log":
            continue
        if os.path.islink(old) or name == "ptmx":  # which looks for its pts beside itself
            os.symlink("pts/ptmx" if name == "ptmx" else os.readlink(old), new)
            continue
        if os.path.isdir(old):
            os.mkdir(new)
        else:
            with open(new, "wb"):
                pass
        mount(old, new, None, MS_BIND | MS_REC)
    os.chmod(folder, 0o755)
    mount(folder, "/dev", None, MS_MOVE)
    os.rmdir(folder)


class Journal(threading.Thread):
    """What is written from now on, by this process and its children. Before any other thread is started."""

    def __init__(self):
        super().__init__(daemon=True)
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "no mount namespace of its own")
        mount("none", "/", None, MS_REC | MS_PRIVATE)
        own_dev()
        mount("tmpfs", "/run", "tmpfs")
        os.chmod("/run", 0o755)
        os.makedirs(os.path.dirname(STREAM), 0o755)
        self.lock, self.content, self.sockets = threading.Lock(), b"", []
        for kind, paths in ((socket.SOCK_DGRAM, DATAGRAMS), (socket.SOCK_STREAM, (STREAM,))):
            for path in paths:
                s = socket.socket(socket.AF_UNIX, kind)
                s.bind(path)
                os.chmod(path, 0o666)
                self.sockets.append(s)
        self.sockets[-1].listen(64)
        self.start()

    def run(self):
        listener, open_ones = self.sockets[-1], list(self.sockets)
        while True:
            for s in select.select(open_ones, [], [])[0]:
                if s is listener:
                    open_ones.append(s.accept()[0])
                    continue
                data = s.recv(1 << 18)
                if not data and s.type == socket.SOCK_STREAM:
                    open_ones.remove(s)
                    s.close()
                with self.lock:
                    self.content += data + b"\n"

    def read(self):
        """All of it: what was written before this was called has been taken."""
        for path in DATAGRAMS:
            mark = os.urandom(16).hex().encode()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
                s.sendto(mark, path)
            while True:
                with self.lock:
                    if mark in self.content:
                        break
                time.sleep(0.01)
        with self.lock:
            return self.content

    def forget(self):
        with self.lock:
            self.content = b""
