"""Start and end of the keeper: one per host, what it takes over, what it refuses, how a command starts it."""
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess

from keeper_world import ALL, BIND, LOOK, Case, Gone, Refused, WAIT, main, memfd, time, until

HOST = os.environ["BOXERY_HOST"]


class Start(Case):
    def test_second_keeper_ends_with_a_sentence(self):
        w = self.w.start()
        r = subprocess.run([w.path("bin/boxery-keeper")], env=w.env, capture_output=True, text=True, timeout=10, check=False)
        self.assertEqual(r.returncode, 4)
        self.assertIn("another keeper runs already", r.stderr)
        w.call("HELLO")

    def test_modes(self):
        w = self.w
        os.chmod(w.path("run"), 0o755)
        w.start()
        mode = {p: stat.S_IMODE(os.stat(w.path(p)).st_mode) for p in
                ("run", "run/keeper.sock", "state/boxery.db", "state/delivery-key", "state/admin-key")}
        self.assertEqual(mode, {"run": 0o700, "run/keeper.sock": 0o600, "state/boxery.db": 0o600, "state/delivery-key": 0o600,
                                "state/admin-key": 0o600})

    def test_keys_are_made_once(self):
        w = self.w.start()
        with open(w.path("state/delivery-key"), "rb") as f:
            key = f.read()
        w.kill()
        os.unlink(w.path("state/delivery-key.pub"))
        w.start()
        with open(w.path("state/delivery-key"), "rb") as f:
            self.assertEqual(f.read(), key)
        w.pool_vm("one")
        w.deliver(w.lease()["lease"])

    def run_refused(self, pattern):
        w = self.w
        w.start(wait=False)
        status = w.keeper.wait(10)
        w.keeper = None
        self.assertNotEqual(status, 0)
        self.assertRegex(w.log(), pattern)
        return status

    def test_open_key_is_refused(self):
        w = self.w.start()
        w.kill()
        os.chmod(w.path("state/delivery-key"), 0o644)
        self.assertEqual(self.run_refused("delivery-key"), 6)

    def test_bad_settings_are_refused(self):
        self.w.write("config/host.env", "NONSENSE=1\n")
        self.assertEqual(self.run_refused("host.env:1: .*NONSENSE"), 5)

    def test_newer_database_is_refused_and_not_touched(self):
        w = self.w.start()
        w.kill()
        db = sqlite3.connect(w.path("state/boxery.db"))
        db.execute("PRAGMA user_version = 99")
        db.close()
        self.run_refused("newer")
        db = sqlite3.connect(w.path("state/boxery.db"))
        self.assertEqual(db.execute("PRAGMA user_version").fetchone(), (99,))
        db.close()

    def test_stale_socket(self):
        w = self.w.start()
        w.kill()
        self.assertTrue(os.path.exists(w.path("run/keeper.sock")))
        w.start()
        w.call("HELLO")

    def test_arguments_are_refused(self):
        r = subprocess.run([self.w.path("bin/boxery-keeper"), "-x"], env=self.w.env, capture_output=True, text=True, timeout=10,
                           check=False)
        self.assertEqual(r.returncode, 2)
        self.assertIn("takes no arguments", r.stderr)

    def test_notify(self):
        w = self.w
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(w.path("notify"))
            s.settimeout(10)
            w.env["NOTIFY_SOCKET"] = w.path("notify")
            w.start()
            self.assertEqual(s.recv(100), b"READY=1")
            self.assertEqual(w.end(), 0)
            self.assertEqual(s.recv(100), b"STOPPING=1")


class Adopt(Case):
    def restart(self):
        self.w.kill()
        self.w.start()

    def test_each_state(self):
        w = self.w.start()
        w.pool_vm("ready", "leased", "delivered", "busy", "bound")
        w.new("plain")
        w.call("START", name="plain")
        leases = {n: w.lease(name=n, flags=BIND if n == "bound" else 0, client=w.client())["lease"]
                  for n in ("leased", "delivered", "busy", "bound")}
        w.deliver(leases["delivered"])
        w.deliver(leases["busy"])
        w.deliver(leases["bound"])
        w.call("JOB_SEEN", lease=leases["busy"], text="j")
        self.restart()
        until(lambda: w.state("leased") == "READY" and w.running("leased") == 2)
        now = w.vms()
        self.assertEqual({n: (v["state"], v["generation"]) for n, v in now.items()}, {
            "ready": ("READY", 1), "leased": ("READY", 2), "delivered": ("DELIVERED", 1), "busy": ("BUSY", 1),
            "bound": ("DELIVERED", 1), "plain": ("PLAIN", 1)})
        self.assertTrue(now["plain"]["running"])
        self.refused(114, "ended before anything was delivered", w.call, "RELEASE", lease=leases["leased"])
        self.refused(114, "one secret", w.deliver, leases["busy"])
        w.call("RELEASE", lease=leases["busy"], text="success")
        w.stop_domain("delivered")
        w.call("RELEASE", lease=leases["bound"])
        until(lambda: {v["state"] for v in w.vms().values()} == {"READY", "PLAIN"})
        self.assertEqual([w.running(n) for n in ("delivered", "busy", "bound")], [2, 2, 2])

    def test_holders_that_come_back_and_that_do_not(self):
        w = self.w.start()
        w.pool_vm("back", "lost", "busy", "free")
        leases = {n: w.lease(name=n, flags=0 if n == "free" else BIND, client=w.client())["lease"] for n in ("back", "lost", "busy", "free")}
        for lease in leases.values():
            w.deliver(lease)
        w.call("JOB_SEEN", lease=leases["busy"], text="j")
        self.restart()
        holder = w.client()
        holder.call("RENEW", lease=leases["back"], flags=BIND, ttl_ms=60000)
        until(lambda: w.running("lost") == 2 and w.running("busy") == 2, 20)
        for name in ("lost", "busy"):
            self.refused(114, "has not come back", w.call, "RELEASE", lease=leases[name])
            self.assertIn("HOLDER_LOST", [x["kind"] for x in w.history(lease=leases[name])])
        self.assertEqual([w.state(n) for n in ("back", "free")], ["DELIVERED", "DELIVERED"])
        holder.close()
        until(lambda: w.running("back") == 2)
        self.assertEqual(w.state("free"), "DELIVERED")

    def test_stopped_while_no_keeper_ran(self):
        w = self.w.start()
        w.pool_vm("ready", "busy")
        lease = w.lease(name="busy")["lease"]
        w.deliver(lease)
        w.kill()
        w.stop_domain("ready")
        w.stop_domain("busy")
        w.start()
        until(lambda: w.running("ready") == 2 and w.running("busy") == 2)
        self.refused(114, "STOPPED", w.call, "RELEASE", lease=lease)

    def edit(self, sql, *values):
        """With the keeper dead; the row is one that no check of the database's finds, and that no program of ours can have written."""
        db = sqlite3.connect(self.w.path("state/boxery.db"))
        db.execute(sql, values)
        db.commit()
        db.close()

    def unreadable_event(self, lease):
        self.edit("INSERT INTO events (vm_id, wall_us, boot_us, vm, lease, generation, kind, text, took_us)"
                  " SELECT vm_id, 1, 1, vm, lease, generation, ?, '', 0 FROM events WHERE lease = ? LIMIT 1", "\u00e9" * 31, lease)

    def start_unreadable(self):
        """A keeper that finds a VM whose delivery it cannot read back; returns the lease."""
        w = self.w.start()
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.deliver(lease)
        w.kill()
        self.unreadable_event(lease)
        w.start()
        return lease

    def test_delivery_that_cannot_be_read_back(self):
        """Nobody can say whether its guest has the secret: not kept for ever."""
        w = self.w.start()
        w.pool_vm("one", "two")
        lease = w.lease(name="one")["lease"]
        w.deliver(lease)
        w.deliver(w.lease(name="two")["lease"])
        w.kill()
        self.unreadable_event(lease)
        w.start()
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")
        ended = [x for x in w.call("LEASES", flags=ALL)["document"]["leases"] if x["lease"] == lease][0]
        self.assertRegex(ended["end_reason"], "^DOUBT: what the database has of its lease could not be read 3 times in a row")
        self.assertEqual(w.log().count("the history of its delivery cannot be read"), 3)
        self.assertEqual((w.state("two"), w.running("two")), ("DELIVERED", 1))

    def test_delivery_that_can_be_read_later(self):
        self.start_unreadable()
        w = self.w
        until(lambda: "the history of its delivery cannot be read" in w.log())
        w.kill()
        self.edit("DELETE FROM events WHERE took_us = 0 AND wall_us = 1")
        w.start()
        time.sleep(0.8)  # longer than all tries
        self.assertEqual((w.state("one"), w.running("one")), ("DELIVERED", 1))

    def test_job_that_runs_says_that_it_was_delivered(self):
        lease = self.start_unreadable()
        w = self.w
        w.call("JOB_SEEN", lease=lease, text="build")
        time.sleep(0.8)
        self.assertEqual((w.state("one"), w.running("one")), ("BUSY", 1))

    def test_lease_that_cannot_be_read_back(self):
        w = self.w.start()
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.deliver(lease)
        w.kill()
        self.edit("UPDATE leases SET job = ? WHERE id = ?", "\u00e9" * 127, lease)
        w.start()
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")

    def test_another_generation_runs(self):
        w = self.w.start()
        w.pool_vm("one")
        w.kill()
        w.write("world/domains/one", "5 0\n")
        w.write("world/settings/one", "6 0\n")
        w.start()
        until(lambda: w.running("one") == 6)
        self.assertEqual(w.await_state("one", "READY")["generation"], 6)
        self.assertIn("was an older copy of it put back?", w.log())

    def test_unconfirmed_is_not_leased(self):
        w = self.w.start()
        w.pool_vm("one", "two")
        lease = w.lease(name="two")["lease"]
        w.deliver(lease)
        w.kill()
        w.libvirt(False)
        w.start()
        self.refused(11, "libvirt does not answer", w.lease)
        self.refused(11, "not confirmed", w.lease, name="one")
        self.assertEqual((w.state("one"), w.state("two")), ("READY", "DELIVERED"))
        c = w.client()
        seq = c.send("LEASE", holder="h", pool="default", wait_ms=10000, ttl_ms=10000)
        time.sleep(0.2)
        w.libvirt(True)
        self.assertEqual(c.reply(seq)["name"], "one")
        self.assertEqual((w.running("one"), w.running("two")), (1, 1))

    def test_interrupted_work(self):
        for verb, state in (("START", "STARTING"), ("RESET", "RESETTING"), ("CAPTURE", "ADDING")):
            with self.subTest(verb):
                name = "vm-" + verb.lower()
                w = self.w
                if not w.keeper:
                    w.start()
                w.new(name)
                w.script(f"{verb}-{name}", "hang")
                c = w.client()
                c.send("POOL_ADD", name=name, flags=WAIT)
                w.await_state(name, state)
                w.kill()
                w.script(f"{verb}-{name}", None)
                w.start()
                if verb == "CAPTURE":
                    self.assertEqual(w.state(name), "PLAIN")
                    w.call("POOL_ADD", name=name, flags=WAIT)
                v = w.await_state(name, "READY")
                self.assertEqual(v["attempts"], 0)

    def test_expired_while_no_keeper_ran(self):
        w = self.w.start()
        w.pool_vm("one")
        w.deliver(w.lease(ttl_ms=400)["lease"])
        w.kill()
        time.sleep(0.5)
        w.start()
        until(lambda: w.running("one") == 2)
        self.assertTrue(any(e["kind"] == "EXPIRED" for e in w.history(name="one")))

    def test_expiry_goes_on(self):
        w = self.w.start()
        w.pool_vm("one")
        w.deliver(w.lease(ttl_ms=1200)["lease"])
        self.restart()
        self.assertEqual(w.state("one"), "DELIVERED")
        until(lambda: w.running("one") == 2)

    def test_host_was_restarted(self):
        w = self.w.start()
        w.pool_vm("ready", "busy")
        lease = w.lease(name="busy")["lease"]
        w.deliver(lease)
        self.assertEqual(w.end(), 0)
        db = sqlite3.connect(w.path("state/boxery.db"))
        other = "00000000-0000-0000-0000-000000000000"
        db.execute("UPDATE vms SET since_boot_id = ?", (other,))
        db.execute("UPDATE leases SET boot_id = ?", (other,))
        db.commit()
        db.close()
        w.stop_domain("ready")
        w.stop_domain("busy")
        w.libvirt(False)  # libvirtd comes up later than we do
        w.start()
        until(lambda: w.state("busy") in ("RESETTING", "BROKEN"))
        w.libvirt(True)
        for name in ("ready", "busy"):
            if w.await_state(name, "READY", "BROKEN")["state"] == "BROKEN":
                w.call("POOL_REPAIR", name=name, flags=WAIT)
        self.assertTrue(any("the host was restarted" in e["text"] for e in w.history(lease=lease)))

    def test_host_was_restarted_while_somebody_looked(self):
        """The clock of the other boot says nothing about what is left of the lease."""
        w = self.w.start()
        w.script("START-one", "fail 5 agent no")
        w.new("one")
        w.call("POOL_ADD", name="one")
        w.await_state("one", "BROKEN")
        lease = w.lease(name="one", flags=LOOK)["lease"]
        self.assertEqual(w.end(), 0)
        db = sqlite3.connect(w.path("state/boxery.db"))
        other = "00000000-0000-0000-0000-000000000000"
        db.execute("UPDATE vms SET since_boot_id = ?", (other,))
        db.execute("UPDATE leases SET boot_id = ?, expires_boot_us = expires_boot_us + 1000000 * 86400 * 100", (other,))
        db.commit()
        db.close()
        w.start()
        left = w.leases()[lease]["expires_in_ms"]
        self.assertTrue(0 < left <= 6 * 3600 * 1000, left)
        self.restart()
        self.assertLess(w.leases()[lease]["expires_in_ms"], left)  # counted anew once only
        w.script("START-one", None)
        w.call("RELEASE", lease=lease)
        w.await_state("one", "READY")


class End(Case):
    def test_running_work_is_finished(self):
        w = self.w.start()
        w.new("one")
        w.script("START", "slow 500")
        w.client().send("POOL_ADD", name="one")
        w.await_state("one", "STARTING")
        w.end()
        w.start()
        self.assertEqual(w.state("one"), "READY")
        self.assertEqual(w.running("one"), 1)

    def test_hanging_work_is_not_waited_for(self):
        w = self.w.start()
        w.new("one")
        w.script("START", "hang")
        w.client().send("POOL_ADD", name="one")
        w.await_state("one", "STARTING")
        begin = time.monotonic()
        self.assertEqual(w.end(), 0)
        self.assertLess(time.monotonic() - begin, 2.5)
        until(lambda: not w.children())

    def test_second_signal_ends_at_once(self):
        w = self.w.start()
        w.new("one")
        w.script("START", "hang")
        w.client().send("POOL_ADD", name="one")
        w.await_state("one", "STARTING")
        w.keeper.terminate()
        time.sleep(0.2)
        begin = time.monotonic()
        w.keeper.terminate()
        w.keeper.wait(5)
        self.assertLess(time.monotonic() - begin, 0.7)
        w.keeper = None

    def test_vms_are_left_alone(self):
        w = self.w.start()
        w.pool_vm("one", "two")
        w.deliver(w.lease(name="two")["lease"])
        waiting = w.client()
        seq = waiting.send("LEASE", holder="h", name="two", wait_ms=10000)
        time.sleep(0.1)
        w.keeper.terminate()
        with self.assertRaises((Refused, Gone)):
            waiting.reply(seq)
        self.assertEqual(w.keeper.wait(5), 0)
        w.keeper = None
        self.assertEqual((w.running("one"), w.running("two")), (1, 1))
        self.assertFalse(os.path.exists(w.path("run/keeper.sock")))

    def test_quit(self):
        w = self.w.start()
        w.call("QUIT")
        self.assertEqual(w.keeper.wait(5), 0)
        w.keeper = None

    def test_no_new_work_while_ending(self):
        w = self.w.start()
        w.new("one")
        w.script("START", "hang")
        c = w.client()
        w.client().send("POOL_ADD", name="one")
        w.await_state("one", "STARTING")
        w.keeper.terminate()
        time.sleep(0.2)
        c.call("LIST")
        self.refused(125, "the keeper is ending", c.call, "NEW", name="two", image="debian-12")
        self.assertEqual(w.keeper.wait(5), 0)
        w.keeper = None

    def test_delivery_is_finished(self):
        w = self.w.start()
        w.pool_vm("one")
        w.script("deliver", "slow 400")
        lease = w.lease()["lease"]
        c = w.client()
        seq = c.send("DELIVER", memfd(b"x" * 100), lease=lease)
        w.await_state("one", "DELIVERED")
        w.keeper.terminate()
        c.reply(seq)
        self.assertEqual(w.keeper.wait(5), 0)
        w.start()
        self.assertEqual(w.state("one"), "DELIVERED")


class Command(Case):
    """boxery-host, which starts a keeper when it finds none (client_start.c)."""

    def setUp(self):
        super().setUp()
        shutil.copy(HOST, self.w.path("bin/boxery-host"))

    def host(self, *words):
        return subprocess.run([self.w.path("bin/boxery-host"), *words], env=self.w.env, capture_output=True, text=True,
                              timeout=20, check=False)

    def quit(self):
        pid = None
        for p in self.w.children():
            if os.readlink(f"/proc/{p}/exe") == self.w.path("bin/boxery-keeper"):
                pid = p
        self.w.call("QUIT")
        if pid:
            until(lambda: pid not in self.w.children())

    def test_starts_one(self):
        w = self.w
        self.assertEqual(self.host("keeper", "status").returncode, 8)
        r = self.host("ls")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.host("keeper", "status").returncode, 0)
        self.assertEqual(stat.S_IMODE(os.stat(w.path("state/keeper.log")).st_mode), 0o600)
        self.assertEqual(os.getsid(0) in {os.getsid(p) for p in w.children()}, False)
        self.quit()
        self.assertEqual(self.host("keeper", "status").returncode, 8)

    def test_many_commands_start_one(self):
        with_keeper = [subprocess.Popen([self.w.path("bin/boxery-host"), "ls"], env=self.w.env, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE) for _ in range(8)]
        self.assertEqual([(p.wait(20), p.stderr.read()) for p in with_keeper], [(0, b"")] * 8)
        for p in with_keeper:
            p.stderr.close()
        keepers = [p for p in self.w.children() if os.readlink(f"/proc/{p}/exe") == self.w.path("bin/boxery-keeper")]
        self.assertEqual(len(keepers), 1)
        self.quit()

    def keepers(self):
        return [p for p in self.w.children() if os.readlink(f"/proc/{p}/exe") == self.w.path("bin/boxery-keeper")]

    def hanging(self):
        """A keeper that takes a while to end."""
        w = self.w
        self.assertEqual(self.host("ls").returncode, 0)
        w.new("one")
        w.script("START", "hang")
        w.call("POOL_ADD", name="one")
        w.await_state("one", "STARTING")

    def test_stop_returns_when_it_has_ended(self):
        self.hanging()
        r = self.host("keeper", "stop")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual(self.keepers(), [])
        self.assertEqual(self.host("keeper", "stop").stdout, "no keeper runs\n")
        r = self.host("ls")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.quit()

    def test_started_while_one_is_ending(self):
        self.hanging()
        first = self.keepers()
        self.w.call("QUIT")
        r = self.host("ls")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(len(self.keepers()), 1)
        self.assertNotEqual(self.keepers(), first)
        self.quit()

    def test_socket_is_gone(self):
        w = self.w
        self.assertEqual(self.host("ls").returncode, 0)
        first = self.keepers()
        os.unlink(w.path("run/keeper.sock"))
        r = subprocess.run([w.path("bin/boxery-host"), "ls"], env=w.env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(r.returncode, 8)
        self.assertIn(f"a keeper (pid {first[0]}) runs, but its socket is gone; 'boxery-host keeper stop' ends it", r.stderr)
        self.assertEqual(self.keepers(), first)
        r = self.host("keeper", "stop")
        self.assertEqual((r.returncode, r.stdout, r.stderr), (0, "", ""))
        self.assertEqual(self.keepers(), [])
        with open(w.path("state/keeper.log"), encoding="utf-8") as f:
            self.assertIn("ending; VMs and running jobs are left alone", f.read())
        r = self.host("ls")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.quit()

    def test_says_why_none_came_up(self):
        w = self.w
        w.start()
        w.kill()
        os.chmod(w.path("state/delivery-key"), 0o640)
        r = self.host("ls")
        self.assertEqual(r.returncode, 8)
        self.assertIn("has ended", r.stderr)
        self.assertIn("delivery-key", r.stderr)

    def test_log_is_bounded_while_it_runs(self):
        w = self.w
        self.assertEqual(self.host("ls").returncode, 0)
        path = w.path("state/keeper.log")
        inode = os.stat(path).st_ino
        for turn in ("first", "second"):
            with open(path, "a", encoding="ascii") as f:  # as its children do
                f.write((turn + " " * 90 + "\n") * 1000)
            until(lambda: os.path.getsize(path) < 2000)
            with open(path + ".1", encoding="ascii") as f:
                text = f.read()
            self.assertEqual(text.count(turn), 1000)
        self.assertNotIn("first", text)
        self.assertEqual((os.stat(path).st_ino, stat.S_IMODE(os.stat(path + ".1").st_mode)), (inode, 0o600))
        w.new("one")
        with open(path, encoding="ascii") as f:
            self.assertIn("was made from image", f.read())
        self.quit()

    def test_refusals_reach_the_person(self):
        r = self.host("start", "nosuch")
        self.assertEqual(r.returncode, 3)
        self.assertIn("no VM 'nosuch'", r.stderr)
        r = self.host("new", "one", "--memory", "900000000")
        self.assertNotEqual(r.returncode, 0)
        r = self.host("new", "one", "--memory", "1000000")
        self.assertEqual(r.returncode, 7, r.stderr)
        self.assertRegex(r.stderr, r"the host has \d+ MiB")
        self.quit()


if __name__ == "__main__":
    main()
