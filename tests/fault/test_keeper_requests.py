"""What the keeper is asked: refusals with a sentence and nothing changed, malformed messages, limits, many at once."""
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading

from keeper_world import PROGRESS, REPLY, REQUEST, TYPE, BIND, Case, Client, Gone, Refused, WAIT, main, memfd, time, until

HOST = os.environ["BOXERY_HOST"]


class Requests(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def test_bad_input(self):
        w = self.w
        w.pool_vm("one")
        before = w.vms()
        none = "0" * 32
        for code, pattern, kind, values in (
                (22, "VM name", "NEW", {"name": "a/b", "image": "debian-12"}),
                (22, "VM name", "NEW", {"name": "", "image": "debian-12"}),
                (22, "VM name", "START", {"name": "../etc"}),
                (22, "image name", "NEW", {"name": "a", "image": "../x"}),
                (22, "base image", "NEW", {"name": "a"}),
                (17, "already", "NEW", {"name": "one", "image": "debian-12"}),
                (12, r"the host has \d+ MiB", "NEW", {"name": "a", "image": "debian-12", "memory_mib": 900000000}),
                (28, "the file system of .* has", "NEW", {"name": "a", "image": "debian-12", "disk_gib": 16000}),
                (22, "CPUs", "NEW", {"name": "a", "image": "debian-12", "cpus": 65}),
                (22, "at least", "NEW", {"name": "a", "image": "debian-12", "memory_mib": 1}),
                (22, "disk", "NEW", {"name": "a", "image": "debian-12", "disk_gib": 20000}),
                (2, "no VM 'nosuch'", "POOL_ADD", {"name": "nosuch"}),
                (2, "no VM 'nosuch'", "START", {"name": "nosuch"}),
                (2, "no VM 'nosuch'", "POOL_REMOVE", {"name": "nosuch"}),
                (2, "no VM 'nosuch'", "LEASE", {"name": "nosuch", "holder": "h"}),
                (2, "pool nosuch has no VM", "LEASE", {"pool": "nosuch", "holder": "h"}),
                (22, "pool name", "LEASE", {"pool": "No/Such", "holder": "h"}),
                (22, "holder", "LEASE", {"pool": "default"}),
                (22, "holder", "LEASE", {"pool": "default", "holder": "a b"}),
                (22, "at most 7 days", "LEASE", {"pool": "default", "holder": "h", "ttl_ms": 8 * 86400000}),
                (22, ".", "LEASE", {"pool": "default", "holder": "h", "scope": "no scope"}),
                (114, "already", "POOL_ADD", {"name": "one"}),
                (16, "pool default", "START", {"name": "one"}),
                (16, "pool default", "STOP", {"name": "one"}),
                (16, "pool rm one", "REMOVE", {"name": "one"}),
                (2, "no lease", "RELEASE", {"lease": none}),
                (2, "no lease", "REGISTER", {"lease": none, "registration": 1}),
                (2, "no lease", "OUTCOME", {"lease": none, "text": "x"}),
                (2, "no lease", "JOB_SEEN", {"lease": none, "text": "x"}),
                (2, "no lease", "NOTE", {"lease": none, "text": "x"}),
                (22, "lease id", "RELEASE", {"lease": "abc"}),
                (22, "lease id", "RELEASE", {"lease": "G" * 32}),
                (22, "lease id", "RELEASE", {}),
                (22, "registration", "REGISTER", {"lease": none, "registration": 4}),
                (22, "outcome", "OUTCOME", {"lease": none}),
        ):
            with self.subTest(kind, **values):
                self.refused(code, pattern, w.call, kind, **values)
        lease = w.lease()["lease"]
        w.call("REGISTER", lease=lease, registration=2, runner_id=5)
        self.refused(114, "already", w.call, "REGISTER", lease=lease, registration=1)
        self.refused(17, "5", w.call, "REGISTER", lease=lease, registration=2, runner_id=6)
        after = w.vms()
        self.assertEqual(list(after), ["one"])
        self.assertEqual(after["one"]["generation"], before["one"]["generation"])

    def test_small_things(self):
        w = self.w
        r = w.call("HELLO")
        self.assertRegex(r["name"], "^[0-9a-f]{8}$")
        self.assertRegex(r["text"], r"^\d")
        self.assertEqual(w.call("CHECK")["document"]["checks"], [
            {"name": "network", "ok": True, "text": "boxery is active"},
            {"name": "virt", "ok": True, "text": "software emulation: no /dev/kvm"}])
        w.script("CHECK", "fail 95 filter the host has no nftables")
        self.assertEqual(w.call("CHECK")["document"]["checks"],
                         [{"name": "filter", "ok": False, "text": "the host has no nftables"}])
        w.script("CHECK", "crash")
        self.refused(5, "signal 9", w.call, "CHECK")
        w.pool_vm("one")
        w.call("FILTER", name="one")
        w.script("FILTER", "fail 2 filter not there")
        self.refused(2, "not there", w.call, "FILTER", name="one")
        v = w.vms()["one"]
        self.assertEqual((v["pool"], v["cpus"], v["memory_mib"], v["disk_gib"], v["slot"], v["image"], v["work"], v["running"]),
                         ("default", 2, 2048, 20, 0, "debian-12", "", True))
        self.assertGreaterEqual(v["age_ms"], 0)
        events = w.history(name="one")
        self.assertEqual([e["kind"] for e in events][:4], ["NEW", "ADD", "MAINTAINED", "destroy"])
        self.assertEqual(w.history(lease="0" * 32), [])

    def raw(self, data, fds=()):
        """Sends bytes as they are; True when the keeper dropped the connection, False when it answered."""
        c = self.w.client(3)
        try:
            socket.send_fds(c.socket, [data], list(fds))
            c.receive()
            return False
        except (Gone, OSError):
            return True

    def test_malformed(self):
        good = REQUEST.pack(seq=1, kind=TYPE["LIST"])
        self.assertFalse(self.raw(good))
        for what, data in (("short", good[:-1]), ("long", good + b"x"), ("head only", good[:16]), ("one byte", b"x"),
                           ("magic", b"XXXX" + good[4:]), ("version", good[:4] + struct.pack("@H", 9) + good[6:]),
                           ("type 0", good[:6] + struct.pack("@H", 0) + good[8:]),
                           ("type 99", good[:6] + struct.pack("@H", 99) + good[8:]),
                           ("an answer", good[:6] + struct.pack("@H", 65) + good[8:]),
                           ("length", good[:8] + struct.pack("@I", 17) + good[12:]),
                           ("seq 0", good[:12] + struct.pack("@I", 0) + good[16:]), ("large", b"x" * 9000)):
            with self.subTest(what):
                self.assertTrue(self.raw(data))
        unended = bytearray(good)
        unended[16:16 + 41] = b"a" * 41
        c = self.w.client()
        c.socket.send(bytes(unended))
        self.assertEqual(c.receive()["code"], -74)

    def test_files_are_not_kept(self):
        good = REQUEST.pack(seq=1, kind=TYPE["LIST"])
        fd_folder = f"/proc/{self.w.keeper.pid}/fd"
        self.w.spares()
        before = len(os.listdir(fd_folder))
        r, w = os.pipe()
        self.assertFalse(self.raw(good, [r]))
        self.assertFalse(self.raw(good, [r, w, r, w]))
        self.assertTrue(self.raw(good, [r, w, r, w, r]))
        for _ in range(20):
            fd = memfd(b"x" * 100)
            with self.assertRaises(Refused):
                self.w.call("DELIVER", fd, lease="0" * 32)
            os.close(fd)
        for c in self.w.clients:
            c.close()
        until(lambda: len(os.listdir(fd_folder)) <= before)

    def test_requests_of_one_connection_are_served_in_order(self):
        w = self.w
        w.script("CHECK", "slow 200")
        c = w.client()
        first, second = c.send("CHECK"), c.send("HELLO")
        a = c.receive()
        while a["kind"] == 64:
            a = c.receive()
        self.assertEqual(a["seq"], first)
        self.assertEqual(c.receive()["seq"], second)

    def test_too_many_connections(self):
        w = self.w
        held = [w.client() for _ in range(256)]
        held[-1].call("HELLO")
        extra = w.client()
        try:
            extra.call("HELLO")
            self.fail("the 257th connection was served")
        except Refused as e:
            self.assertEqual(e.code, -16)
            self.assertIn("256 connections", e.text)
        except Gone:
            pass  # it was closed before the request was sent
        held[0].close()
        until(lambda: self.answers())

    def test_waiting_leases_leave_room(self):
        w = self.w
        w.pool_vm("one")
        held = w.lease()["lease"]
        waiting = [w.client() for _ in range(250)]
        for c in waiting:
            c.send("LEASE", holder="h", pool="default", ttl_ms=60000, wait_ms=60000)
        first = [(c, c.receive()) for c in waiting]
        refused = [(c, a) for c, a in first if a["kind"] != PROGRESS]
        for c, a in refused:
            self.assertEqual((a["kind"], a["code"]), (REPLY, -16))
            self.assertIn("ready: 1 LEASED; 224 wait for a VM already", a["text"])
            c.close()  # as a command does
        self.assertEqual(len(refused), 26)
        for args in (["pool", "ls"], ["release", held]):
            done = subprocess.run([HOST, *args], env=w.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        until(lambda: w.leases())  # whoever waited first has it

    def answers(self):
        try:
            self.w.call("HELLO")
            return True
        except (Refused, Gone):
            return False

    def test_two_hundred_at_once(self):
        w = self.w
        w.pool_vm("one", "two", "three")
        failures = []

        def work(i):
            try:
                c = Client(w.path("run/keeper.sock"), 60)
                lease = c.call("LEASE", holder=f"h{i}", pool="default", ttl_ms=60000, wait_ms=60000)["lease"]
                c.call("HISTORY", lease=lease)
                c.call("RELEASE", lease=lease, text="done")
                c.close()
            except Exception as e:  # noqa: BLE001
                failures.append(repr(e))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(200)]
        begin = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])
        self.assertLess(time.monotonic() - begin, 60)
        until(lambda: {v["state"] for v in w.vms().values()} == {"READY"})

    def test_two_hundred_commands_at_once(self):
        """Programs, not requests: each is answered, or refused with a sentence."""
        w = self.w
        w.pool_vm("one", "two", "three")
        kinds = ((["lease", "--wait", "120s", "--exec", "true"], 0), (["pool", "ls", "--json"], 0), (["lease", "ls"], 0),
                 (["pool", "show", "two"], 0), (["history", "one"], 0), (["release", "0" * 32], 3), (["lease", "nosuch"], 3),
                 (["new", "one"], 4))
        commands = [(subprocess.Popen([HOST, *args], env=w.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True), args, status)
                    for _ in range(25) for args, status in kinds]
        self.assertEqual(len(commands), 200)
        for p, args, status in commands:
            said = p.communicate(timeout=150)[1]
            self.assertEqual(p.returncode, status, (args, said))
            if status:
                self.assertRegex(said, r"(?m)^boxery-host: .{10,}$", args)
        until(lambda: {v["state"] for v in w.vms().values()} == {"READY"})
        self.assertEqual(w.leases(), {})

    def test_many_bound_holders_vanish(self):
        w = self.w
        w.pool_vm("one", "two")
        clients = [w.client() for _ in range(60)]
        for c in clients:
            c.send("LEASE", holder="h", pool="default", ttl_ms=60000, wait_ms=60000, flags=BIND)
        time.sleep(0.2)
        for c in clients:
            c.close()
        until(lambda: {v["state"] for v in w.vms().values()} == {"READY"}, 20)
        self.assertEqual(w.leases(), {})

    def test_add_while_busy(self):
        w = self.w
        w.script("NEW", "slow 300")
        c = w.client()
        seq = c.send("NEW", name="one", image="debian-12")
        until(lambda: "one" in w.vms())
        self.refused(16, "under way", w.call, "POOL_ADD", name="one")
        self.refused(16, "under way", w.call, "START", name="one")
        self.refused(16, "under way", w.call, "REMOVE", name="one")
        self.refused(17, "already", w.new, "one")
        c.reply(seq)
        w.call("POOL_ADD", name="one", flags=WAIT)

    def test_commit_fails(self):
        """A database that cannot be written changes nothing, and is tried again."""
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        # As root no permission stops a write; a full disk would, and a limit on file sizes is one.
        resource.prlimit(w.keeper.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with self.assertRaises(Refused) as r:
            w.call("RELEASE", lease=lease)
        self.assertTrue(r.exception.text)
        w.stop_domain("one")
        time.sleep(0.5)
        self.assertEqual(w.running("one"), 0)
        resource.prlimit(w.keeper.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        # The next listing says again that it has stopped. A child that was started ahead meanwhile has the limit too, and fails once.
        until(lambda: w.running("one") >= 2)
        w.await_state("one", "READY")
        self.assertTrue(any(e["kind"] == "STOPPED" for e in w.history(lease=lease)))

    def database_full(self, full):
        """A limit on file sizes that the database is over already, and the log is not."""
        limit = resource.RLIM_INFINITY
        if full:
            limit = os.path.getsize(self.w.path("keeper.log")) + 32768
            self.assertGreater(os.path.getsize(self.w.path("state/boxery.db-wal")), limit)
        resource.prlimit(self.w.keeper.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def watcher_held(self, pattern, what):
        """Nothing can be recorded while `what` happens and the keeper hears of it; then the disk has room again, and the keeper
        hears nothing more until the watcher, which is returned, goes on."""
        w = self.w
        until(lambda: len(w.children(spares=False)) == 1)
        watcher = w.children(spares=False)[0]
        self.database_full(True)
        what()
        until(lambda: re.search(pattern + ".* could not be recorded", w.log()))
        os.kill(watcher, signal.SIGSTOP)
        time.sleep(0.1)
        self.database_full(False)
        return watcher

    def test_doubt_that_cannot_be_recorded(self):
        """... is not forgotten: the VM is not handed out, and gets no secret."""
        w = self.w
        w.pool_vm("one")
        watcher = self.watcher_held("in state READY", lambda: w.stop_domain("one"))
        self.refused(11, "has not confirmed it", w.lease, name="one")
        os.kill(watcher, signal.SIGCONT)
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")
        lease = w.lease()["lease"]
        watcher = self.watcher_held("in state LEASED", lambda: w.write("world/trouble/one", "its disk was replaced"))
        self.refused(116, "its disk was replaced", w.deliver, lease)
        os.unlink(w.path("world/trouble/one"))
        os.kill(watcher, signal.SIGCONT)
        w.call("RELEASE", lease=lease)
        w.await_state("one", "READY")

    def test_expiry_that_cannot_be_recorded(self):
        """... while an operation is under way is tried again all the same."""
        w = self.w
        w.pool_vm("one")
        w.script("GRANT", "slow 1000")
        c = w.client()
        seq = c.send("LEASE", holder="tester", pool="default", ttl_ms=300, text="ssh-ed25519 " + "A" * 40)
        until(lambda: w.ops("GRANT"))
        self.database_full(True)
        until(lambda: "EXPIRED in state DELIVERED could not be recorded" in w.log())
        self.database_full(False)
        try:
            c.reply(seq)
        except Refused:
            pass
        until(lambda: w.running("one") == 2)


if __name__ == "__main__":
    main()
