"""A database that cannot be read or written: a sentence, nothing lost, and the way back as docs/operations.md tells it."""
import ctypes
import os
import shutil
import sqlite3
import subprocess
import sys

from keeper_world import SKIP, Case, Refused, main, time, until

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, RDONLY, REMOUNT, BIND, REC, PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18


def mount(source, target, kind, flags, options=None):
    if LIBC.mount(source.encode(), target.encode(), kind, flags, options) != 0:
        raise OSError(ctypes.get_errno(), target)


class Database(Case):
    def setUp(self):
        super().setUp()
        self.mounted = []
        self.db = self.w.path("state/boxery.db")

    def tearDown(self):
        super().tearDown()
        for path in self.mounted:
            LIBC.umount2(path.encode(), 2)

    def mount(self, *what):
        mount(*what)
        self.mounted.append(what[1])

    def refused_start(self, status, pattern):
        w = self.w
        w.start(wait=False)
        self.assertEqual(w.keeper.wait(10), status)
        w.keeper = None
        line = w.log().splitlines()[-1]
        self.assertRegex(line, pattern)
        return line

    def pool(self):
        w = self.w.start()
        w.pool_vm("one", "two")
        w.deliver(w.lease(name="two")["lease"])
        self.assertEqual(w.end(), 0)
        w.start()  # makes the copy
        w.call("RELEASE", lease=w.lease(name="one", wait_ms=5000)["lease"])
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")
        self.assertEqual(w.end(), 0)

    def take_way_back(self):
        """docs/operations.md, word by word."""
        w = self.w
        os.mkdir(w.path("aside"))
        for name in os.listdir(w.path("state")):
            if name in ("boxery.db", "boxery.db-wal", "boxery.db-shm"):
                shutil.move(w.path("state", name), w.path("aside", name))
        shutil.copy(self.db + ".last-good", self.db)
        os.chmod(self.db, 0o600)
        w.start()
        # "two" goes on with its job; "one" has moved on since the copy, so it is reset, and no life is given out twice.
        self.assertEqual(w.state("two"), "DELIVERED")
        until(lambda: w.running("one") > 2)
        self.assertEqual(w.await_state("one", "READY")["generation"], w.running("one"))
        self.assertIn("was an older copy of it put back?", w.log())

    def test_damaged(self):
        self.pool()
        with open(self.db, "r+b") as f:
            f.seek(4096 * 2)
            f.write(b"\xa5" * 9000)
        with open(self.db, "rb") as f:
            before = f.read()
        line = self.refused_start(1, "boxery.db is damaged .* was left as it is. Way back: move it")
        self.assertIn(".last-good", line)
        with open(self.db, "rb") as f:
            self.assertEqual(f.read(), before)
        self.take_way_back()

    def test_cut_short(self):
        self.pool()
        os.truncate(self.db, 5000)
        self.refused_start(1, "is damaged")
        self.take_way_back()

    def test_a_command_shows_the_whole_way_back(self):
        self.pool()
        os.truncate(self.db, 5000)
        host = [shutil.copy(os.environ["BOXERY_HOST"], self.w.path("bin/boxery-host")), "ls"]
        r = subprocess.run(host, env=self.w.env, capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(r.returncode, 8)
        self.assertRegex(r.stderr, r"is damaged \(.*Way back: .* copy boxery\.db\.last-good .* VMs that have moved on are reset")
        os.unlink(self.db + ".last-good")
        r = subprocess.run(host, env=self.w.env, capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(r.returncode, 8)
        self.assertRegex(r.stderr, "there is no copy of it: move it and its -wal file aside to begin without any VM")
        self.assertNotIn("last-good", r.stderr)

    def test_a_command_names_who_has_it_open(self):
        self.pool()
        host = [shutil.copy(os.environ["BOXERY_HOST"], self.w.path("bin/boxery-host")), "ls"]
        other = subprocess.Popen([sys.executable, "-c", "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
                                  "db.execute('BEGIN EXCLUSIVE')\nprint('open', flush=True)\nsys.stdin.read()", self.db],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        other.stdout.readline()
        r = subprocess.run(host, env=self.w.env, capture_output=True, text=True, timeout=30, check=False)
        self.assertRegex(r.stderr, rf"boxery.db is open in another process \(pid {other.pid}, python.*\); only one keeper may have it: "
                                   "end that process first")
        other.communicate(timeout=10)
        r = subprocess.run(host, env=self.w.env, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.w.call("QUIT")

    def test_missing(self):
        self.pool()
        os.rename(self.db, self.db + ".away")
        self.refused_start(1, "is missing, but there is .*last-good from its last clean start")
        self.assertFalse(os.path.exists(self.db))
        self.take_way_back()

    def test_newer(self):
        self.pool()
        with sqlite3.connect(self.db) as db:
            db.execute("PRAGMA user_version = 7")
        db.close()
        with open(self.db + ".last-good", "rb") as f:
            good = f.read()
        self.refused_start(1, "is of version 7, this program knows versions up to 6: it was not touched; use the newer program")
        with open(self.db + ".last-good", "rb") as f:
            self.assertEqual(f.read(), good)
        with sqlite3.connect(self.db) as db:
            db.execute("PRAGMA user_version = 6")
        db.close()
        self.w.start()
        self.assertEqual(self.w.state("two"), "DELIVERED")

    def test_read_only(self):
        self.pool()
        state = self.w.path("state")
        self.mount(state, state, None, BIND)
        mount("", state, None, BIND | REMOUNT | RDONLY)
        self.refused_start(1, "boxery.db cannot be written: check its file system, owner and mode")
        LIBC.umount2(state.encode(), 2)
        self.mounted.clear()
        self.w.start()
        self.assertEqual({n: v["state"] for n, v in self.w.vms().items()}, {"one": "READY", "two": "DELIVERED"})

    def fill(self):
        with open(self.w.path("state/filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"\0" * 4096)
            except OSError:
                pass

    def test_full_disk(self):
        w = self.w
        self.mount("none", w.path("state"), b"tmpfs", 0, b"size=2m,mode=700")
        w.start()
        w.pool_vm("one", "two")
        lease = w.lease(name="two")["lease"]
        self.fill()
        with self.assertRaises(Refused) as r:
            for _ in range(2000):
                w.call("NOTE", lease=lease, text="x" * 60)
                w.call("RENEW", lease=lease, ttl_ms=60000)
        self.assertEqual(r.exception.code, -28)
        self.assertRegex(r.exception.text, "there is no room for .*boxery.db; nothing was changed: make room")
        self.refused(28, "no room", w.call, "RELEASE", lease=lease)
        self.refused(28, "no room", w.lease, name="one")
        self.assertEqual({n: v["state"] for n, v in w.vms().items()}, {"one": "READY", "two": "LEASED"})
        w.stop_domain("two")
        time.sleep(0.6)
        self.assertEqual((w.state("two"), w.running("two")), ("LEASED", 0))  # it cannot be recorded, so nothing is done
        os.unlink(w.path("state/filler"))
        until(lambda: w.running("two") == 2)  # by itself
        w.await_state("two", "READY")
        # And a start on a full disk reads, and changes nothing.
        self.assertEqual(w.end(), 0)
        self.fill()
        w.start()
        self.assertEqual({n: v["state"] for n, v in w.vms().items()}, {"one": "READY", "two": "READY"})
        os.unlink(w.path("state/filler"))
        w.call("RELEASE", lease=w.lease(name="one", wait_ms=5000)["lease"])
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")


if __name__ == "__main__":
    if LIBC.unshare(NEWNS) != 0:
        print("skipped: no right to make a mount namespace")
        sys.exit(SKIP)
    mount("", "/", None, REC | PRIVATE)
    main()
