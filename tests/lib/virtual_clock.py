"""The clocks that a test moves: the other half of tests/fault/walk_clock.c."""
import ctypes
import mmap
import struct
import time


class Clock:
    """What walk_clock.c adds to CLOCK_BOOTTIME, and to the wall clock."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as f:
            f.write(bytes(24))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 24)
        self.changes = ctypes.c_uint32.from_buffer(self.map, 8)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.offset = 0

    def now(self):
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.offset

    def set(self, offset, followed=True):
        """followed: a process is there that acts upon it; waits until it has."""
        self.offset = offset
        struct.pack_into("@q", self.map, 0, int(offset * 1000000))
        self.changes.value += 1
        self.libc.syscall(202, ctypes.byref(self.changes), 1, 0x7fffffff, None, None, 0)  # futex, FUTEX_WAKE
        end = time.monotonic() + 0.5
        while followed and struct.unpack_from("@I", self.map, 12)[0] != self.changes.value and time.monotonic() < end:
            time.sleep(0.0002)

    def advance(self, seconds, followed=True):
        self.set(self.offset + seconds, followed)

    def set_wall(self, seconds):
        """What is added to the wall clock from now on. No timer counts on it."""
        struct.pack_into("@q", self.map, 16, int(seconds * 1000000))
