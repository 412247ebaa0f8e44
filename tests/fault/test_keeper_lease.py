"""Leases for anyone: keys, renewals, reservations, VMs that are looked at or kept when their lease has ended."""
import os
import sqlite3
import subprocess

from keeper_world import ALL, BIND, FORCE, LOOK, SECRET, STATES, Case, Gone, WAIT, main, time, until

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGhYQ0hhdGVzdGtleXRlc3RrZXl0ZXN0a2V5dGVzdA me@there"
NONE = 0xFFFFFFFF
DAY = 86400000


class Lease(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def kinds(self, **which):
        return [e["kind"] for e in self.w.history(**which)]

    def test_key(self):
        w = self.w
        w.pool_vm("one")
        r = w.lease(text=KEY)
        self.assertEqual((r["name"], r["host_key"]), ("one", "ssh-ed25519 AAAA+one+1"))
        self.assertEqual(w.lines("grants.log"), [f"one 1 {KEY}"])
        self.assertEqual(w.state("one"), "DELIVERED")
        self.refused(114, "one secret", w.deliver, r["lease"])
        w.kill()
        w.start()  # somebody works in it
        self.assertEqual((w.state("one"), w.running("one")), ("DELIVERED", 1))
        w.call("RELEASE", lease=r["lease"])
        until(lambda: w.running("one") == 2)
        self.assertIn("delivered", self.kinds(lease=r["lease"]))

    def test_key_refused(self):
        w = self.w
        w.pool_vm("one")
        for code, pattern, text in ((22, "not an ssh public key", "hello"), (22, "not an ssh public key", "ssh-ed25519 short"),
                                    (22, "not an ssh public key", 'command="x" ' + KEY), (22, "one line", KEY + "\n" + KEY),
                                    (22, "one line", KEY + "\x1b")):
            with self.subTest(text):
                self.refused(code, pattern, w.lease, text=text)
        for holder in ("github-runner", "github-runner-local"):
            self.refused(1, "nobody's ssh key", w.lease, holder=holder, text=KEY)
        self.assertEqual((w.state("one"), w.lines("grants.log")), ("READY", []))

    def test_key_that_does_not_get_in(self):
        w = self.w
        w.pool_vm("one")
        for i, (how, code, pattern) in enumerate((("fail 5 agent it does not answer", 5, "did not take the ssh key: it does not"),
                                                  ("crash", 5, "signal 9"), ("noresult", 5, "status 3"),
                                                  ("hang", 110, "was killed"), ("late", 5, "without a result"))):
            with self.subTest(how):
                w.script("GRANT", how)
                self.refused(code, pattern, w.lease, text=KEY)
                until(lambda: w.running("one") == i + 2)
                w.await_state("one", "READY")
        self.assertEqual(w.leases(), {})

    def test_end_while_the_key_is_put_in(self):
        w = self.w
        w.pool_vm("one")
        w.script("GRANT", "once hang")
        c = w.client()
        seq = c.send("LEASE", holder="h", pool="default", ttl_ms=60000, text=KEY)
        w.await_state("one", "DELIVERED")
        w.stop_domain("one")
        self.refused(125, "ended before its lease began", c.reply, seq)
        until(lambda: w.running("one") == 2)
        w.script("GRANT", "once slow 300")
        w.await_state("one", "READY")
        c.send("LEASE", holder="h", pool="default", ttl_ms=60000, text=KEY)
        w.await_state("one", "DELIVERED")
        c.close()  # the holder goes: nobody knows of the lease
        until(lambda: w.running("one") == 3)
        w.await_state("one", "READY")
        self.assertEqual(w.leases(), {})

    def test_renew(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease(ttl_ms=700)["lease"]
        w.call("RENEW", lease=lease, ttl_ms=60000)
        time.sleep(0.9)
        self.assertEqual(w.state("one"), "LEASED")
        self.assertIn("renewed", self.kinds(lease=lease))
        w.call("RENEW", lease=lease, ttl_ms=50)  # does not shorten it
        time.sleep(0.2)
        self.assertGreater(w.leases()[lease]["expires_in_ms"], 30000)
        for ttl in (0, 8 * DAY, 10 * 365 * DAY):
            self.refused(22, "more than 0 and at most 7 days", w.call, "RENEW", lease=lease, ttl_ms=ttl)
            if ttl:
                self.refused(22, "at most 7 days", w.lease, ttl_ms=ttl)
        w.call("RENEW", lease=lease, ttl_ms=100, flags=FORCE)
        until(lambda: w.running("one") == 2)
        self.refused(114, "EXPIRED", w.call, "RENEW", lease=lease, ttl_ms=1000)
        self.refused(2, "no lease", w.call, "RENEW", lease="0" * 32, ttl_ms=1000)

    def test_holder_that_does_not_read_its_events(self):
        """It misses those of others and keeps its lease; of its own lease's end it learns by the end of the connection."""
        w = self.w
        w.pool_vm("one", "two")
        c = w.client()
        c.call("SUBSCRIBE")
        lease = w.lease(name="one", flags=BIND, client=c)["lease"]
        idle = w.client()
        idle.call("SUBSCRIBE")
        while "a client was dropped: it subscribed" not in w.log():
            w.call("RELEASE", lease=w.lease(name="two", wait_ms=10000)["lease"])
        w.await_state("two", "READY")
        self.assertEqual((w.state("one"), list(w.leases()), w.log().count("was dropped")), ("LEASED", [lease], 1))
        w.call("RELEASE", lease=lease)
        until(lambda: w.running("one") == 2)
        with self.assertRaises(Gone):
            while True:
                c.receive()

    def test_runners_lease_without_delivery_ends(self):
        w = self.w
        w.pool_vm("one", "two")
        w.lease(holder="github-runner", name="one")
        mine = w.lease(name="two")["lease"]
        until(lambda: w.running("one") == 2)
        self.assertTrue(any(e["kind"] == "DEADLINE" and "nothing was delivered" in e["text"] for e in w.history(name="one")))
        w.call("RELEASE", lease=mine)  # a person's has only its ttl

    def test_lost_before_its_holder_heard_of_it(self):
        """Killed with the lease committed and not answered: nobody will ever say what became of it, so the keeper does."""
        w = self.w
        w.pool_vm("one")
        w.kill()
        w.start(kill="after-LEASE")
        with self.assertRaises(Gone):
            w.lease(holder="github-runner", scope="octo/box")
        w.kill()
        w.start()
        until(lambda: w.running("one") == 2)
        (lease,) = w.call("LEASES", flags=ALL)["document"]["leases"]
        self.assertEqual((lease["holder"], lease["registration"], lease["outcome"]), ("github-runner", "none", "not-delivered"))
        self.assertRegex(lease["end_reason"], "^INTERRUPTED: ")

    def test_timeline_begins_with_who(self):
        w = self.w
        w.pool_vm("one")
        r = w.lease(holder="github-runner", scope="octo/box")
        event = w.history(lease=r["lease"])[0]
        self.assertEqual((event["kind"], event["text"]),
                         ("LEASE", f"READY -> LEASED: github-runner for octo/box, runner {r['runner_name']}"))

    def test_reservations(self):
        w = self.w
        w.pool_vm("a", "b", "c")
        w.call("POOL_SET", pool="default", reserve_service=1, reserve_local=1)
        first = w.lease(holder="me")["lease"]
        text = self.refused(11, "no VM of pool default is free for me: 2 READY, 1 LEASED, and 2 are reserved", w.lease, holder="me")
        self.assertIn("reserved for others", text)
        self.refused(11, "reserved for others", w.lease, holder="me", name="c")
        service = [w.lease(holder="github-runner")["lease"]]
        self.refused(11, "1 are reserved", w.lease, holder="github-runner")
        # First come, first served within what each may take: `once` does not wait behind those who may not.
        waiting = w.client()
        seq = waiting.send("LEASE", holder="me", pool="default", ttl_ms=60000, wait_ms=60000)
        local = w.lease(holder="github-runner-local", wait_ms=1000)["lease"]
        w.call("RELEASE", lease=first)
        self.assertEqual(waiting.reply(seq)["name"], "a")  # both have theirs, so nothing is held back
        w.call("RELEASE", lease=local)
        w.await_state("c", "READY")
        self.refused(11, "1 are reserved", w.lease, holder="me")
        pool = w.call("POOLS")["document"]["pools"][0]
        self.assertEqual((pool["name"], pool["vms"], pool["leased"], pool["reserve_service"], pool["reserve_local"]),
                         ("default", 3, 2, 1, 1))
        # Taken back: whoever waits is let through.
        seq = waiting.send("LEASE", holder="me", pool="default", ttl_ms=60000, wait_ms=60000)
        time.sleep(0.1)
        w.call("POOL_SET", pool="default", reserve_local=NONE)
        self.assertEqual(waiting.reply(seq)["name"], "c")
        w.call("RELEASE", lease=service[0])

    def broken(self, name="one"):
        w = self.w
        w.pool_vm(name)
        w.script("START-" + name, "late")
        w.call("RELEASE", lease=w.lease(name=name)["lease"])
        return w.await_state(name, "BROKEN")

    def test_look_at_a_broken_vm(self):
        w = self.w
        self.broken()
        r = w.lease(name="one", flags=LOOK)
        v = w.vms()["one"]
        self.assertEqual((v["state"], v["lease"], v["holder"], v["attempts"]), ("MAINTENANCE", r["lease"], "tester", 3))
        self.assertEqual(r["generation"], v["generation"])
        self.refused(16, "being looked at by tester", w.lease, name="one", flags=LOOK)
        self.refused(16, "being looked at", w.call, "POOL_REPAIR", name="one")
        self.refused(16, "is leased", w.call, "POOL_REMOVE", name="one")
        w.call("RENEW", lease=r["lease"], ttl_ms=90000)
        w.kill()
        w.start()
        time.sleep(0.2)
        self.assertEqual(w.vms()["one"]["lease"], r["lease"])
        w.script("START-one", None)
        w.call("RELEASE", lease=r["lease"])
        self.assertEqual(w.await_state("one", "READY")["attempts"], 0)
        self.refused(114, "READY, not BROKEN", w.lease, name="one", flags=LOOK)
        self.refused(22, "by its name", w.lease, flags=LOOK)

    def test_look_ends_with_time_and_connection(self):
        w = self.w
        self.broken("one")
        w.lease(name="one", flags=LOOK, ttl_ms=200)
        w.await_state("one", "BROKEN", timeout=20)  # as before: three more attempts
        kinds = self.kinds(name="one")
        self.assertIn("EXPIRED", kinds[kinds.index("INSPECT"):])
        c = w.client()
        w.lease(name="one", flags=LOOK | BIND, client=c)
        w.script("START-one", None)
        c.close()
        w.await_state("one", "READY")
        self.assertIn("HOLDER_LOST", self.kinds(name="one"))

    def test_look_ends_when_keeper_and_holder_are_gone(self):
        w = self.w
        self.broken()
        c = w.client()
        r = w.lease(name="one", flags=LOOK | BIND, client=c)
        time.sleep(4)  # longer than a holder is waited for: this one is there
        self.assertEqual(w.vms()["one"]["lease"], r["lease"])
        w.script("START-one", None)
        w.kill()
        c.close()
        w.start()
        self.assertEqual(w.vms()["one"]["state"], "MAINTENANCE")
        w.await_state("one", "READY")
        self.assertIn("HOLDER_LOST", self.kinds(name="one"))

    def test_evidence(self):
        w = self.w
        v = self.broken()
        self.assertEqual(v["evidence"], "/images/broken/one.qcow2")
        self.assertTrue(w.has("broken", "one"))
        self.assertFalse(w.has("run", "one"))
        self.assertIn("its overlay is /images/broken/one.qcow2", w.log())
        w.kill()
        w.start()
        self.assertEqual(w.vms()["one"]["evidence"], "/images/broken/one.qcow2")
        r = w.lease(name="one", flags=LOOK)
        self.assertEqual(r["text"], "/images/broken/one.qcow2")
        self.assertTrue(w.has("broken", "one"))
        w.script("START-one", None)
        w.call("RELEASE", lease=r["lease"])
        v = w.await_state("one", "READY")
        self.assertEqual((v["evidence"], w.has("broken", "one")), ("", False))

    def test_no_evidence_of_a_failing_reset(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.deliver(lease)
        w.script("RESET", "fail 5 destroy no")
        w.call("RELEASE", lease=lease)
        v = w.await_state("one", "BROKEN")
        self.assertEqual((v["evidence"], w.has("broken", "one")), ("", False))

    def test_keep(self):
        w = self.w
        w.pool_vm("one")
        self.refused(22, "only a VM with a lease", w.call, "POOL_KEEP", name="one", ttl_ms=1000)
        self.refused(114, "not kept", w.call, "POOL_KEEP", name="one")
        lease = w.lease(holder="github-runner")["lease"]
        w.deliver(lease)
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        self.refused(22, "at most 7 days", w.call, "POOL_KEEP", name="one", ttl_ms=8 * DAY)
        w.kill()
        w.start()  # not forgotten
        until(lambda: w.vms()["one"]["running"])  # its watch has seen the domain
        w.stop_domain("one")
        v = w.await_state("one", "KEPT")
        self.assertGreater(v["kept_for_ms"], 50000)
        self.assertRegex(v["evidence"], r"/run/one\.qcow2$")
        until(lambda: "halted" in self.kinds(lease=lease))
        self.assertTrue(w.has("run", "one"))
        row = w.leases()[lease]
        self.assertEqual((row["state"], row["end_reason"]), ("KEPT", "STOPPED: the domain has stopped: shutdown"))
        self.refused(114, "is kept to be looked at", w.call, "RELEASE", lease=lease)
        self.refused(114, "is kept to be looked at", w.call, "JOB_SEEN", lease=lease, text="x")
        self.refused(114, "ended", w.call, "RENEW", lease=lease, ttl_ms=1000)
        self.refused(16, "kept to be looked at", w.call, "POOL_REMOVE", name="one")
        w.kill()
        w.start()
        self.assertEqual(w.state("one"), "KEPT")
        self.assertGreater(w.vms()["one"]["kept_for_ms"], 50000)
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        self.assertEqual(w.running("one"), 2)
        self.assertEqual(w.leases(), {})
        self.assertEqual([x["end_reason"] for x in w.call("LEASES", flags=ALL)["document"]["leases"]],
                         ["STOPPED: the domain has stopped: shutdown"])

    def test_kept_is_published_with_what_ended_the_lease(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        c = w.client()
        c.call("SUBSCRIBE")
        w.call("RELEASE", lease=lease)
        c.call("HELLO")
        self.assertEqual([(STATES[e["from"]], STATES[e["to"]], e["what"], e["lease"]) for e in c.events],
                         [("LEASED", "KEPT", 6, lease)])  # RELEASE
        w.call("POOL_REPAIR", name="one", flags=WAIT)

    def test_keep_ends(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=300)
        w.call("RELEASE", lease=lease)
        self.assertEqual(w.state("one"), "KEPT")
        until(lambda: w.running("one") == 2)
        self.assertIn("DEADLINE", self.kinds(name="one"))
        # Taken back before and after; put off; by the one who released it, with force; by removal.
        w.await_state("one", "READY")
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.call("POOL_KEEP", name="one")
        w.call("RELEASE", lease=lease)
        until(lambda: w.running("one") == 3)
        w.await_state("one", "READY")
        lease = w.lease(ttl_ms=300)["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=300)
        w.await_state("one", "KEPT")
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        time.sleep(0.5)
        self.assertEqual(w.state("one"), "KEPT")
        w.call("POOL_KEEP", name="one")
        until(lambda: w.running("one") == 4)
        lease = w.lease(wait_ms=5000)["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.call("RELEASE", lease=lease, text="seen")
        w.call("RELEASE", lease=lease, flags=FORCE)
        until(lambda: w.running("one") == 5)
        lease = w.lease(wait_ms=5000)["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.call("RELEASE", lease=lease)
        w.call("POOL_REMOVE", name="one", flags=FORCE)
        self.assertEqual((w.vms(), w.has("run", "one")), ({}, False))

    def test_a_doubt_is_not_kept(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.script("deliver", "fail 5 no")
        self.refused(5, "no", w.deliver, lease)
        until(lambda: w.running("one") == 2)

    def test_kept_vm_that_runs_or_cannot_be_halted(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.call("RELEASE", lease=lease)
        w.await_state("one", "KEPT")
        until(lambda: w.running("one") == 0)
        w.write("world/domains/one", "1 0\n")  # somebody starts it
        until(lambda: w.running("one") == 0)
        self.assertEqual(w.state("one"), "KEPT")
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.script("RESET", "once fail 5 destroy no")
        w.call("RELEASE", lease=lease)
        until(lambda: w.running("one") == 3)

    def test_host_was_restarted_while_it_was_kept(self):
        import sqlite3
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("POOL_KEEP", name="one", ttl_ms=60000)
        w.call("RELEASE", lease=lease)
        until(lambda: "halted" in self.kinds(lease=lease))
        self.assertEqual(w.end(), 0)
        db = sqlite3.connect(w.path("state/boxery.db"))
        db.execute("UPDATE vms SET since_boot_id = '00000000-0000-0000-0000-000000000000', since_boot_us = 1")
        db.commit()
        db.close()
        w.start()
        v = w.vms()["one"]
        self.assertEqual(v["state"], "KEPT")
        self.assertGreater(v["kept_for_ms"], 50000)
        self.assertTrue(w.has("run", "one"))
        w.call("POOL_REPAIR", name="one", flags=WAIT)

    def test_more_leases_than_an_answer_holds(self):
        """Closed ones that GitHub could not be asked about stay; the answer has its limit, and says what it leaves off."""
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.deliver(lease)
        w.kill()
        db = sqlite3.connect(w.path("state/boxery.db"))
        db.execute("""
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2600)
            INSERT INTO leases (id, vm_id, vm, pool, holder, scope, runner_name, generation, registration, runner_id, open, bound,
              opened_wall_us, delivered_wall_us, closed_wall_us, closed_order, expires_boot_us, boot_id, job, outcome, outcome_final,
              end_reason)
            SELECT printf('%032x', i), NULL, printf('%040d', 0), printf('%040d', 0), printf('%.47c', 'h'), printf('%.140c', 's'),
              printf('%064d', i), 1 << 62, iif(i % 2, 'made', 'gone'), 1 << 62, 0, 0, 1, 1, 1, i, 1 << 62, '', printf('%.127c', '"'),
              printf('%.63c', '"'), 1, printf('%.511c', '"') FROM n""")
        db.commit()
        db.close()
        w.start()
        for flags, left_off in ((0, 1300 + 1 - 1500), (ALL, 2600 + 1 - 1500)):
            answer = w.call("LEASES", flags=flags)["document"]
            rows = answer["leases"]
            self.assertEqual(answer["left_off"], max(left_off, 0))
            self.assertEqual(len(rows), min(1500, 1301 if flags == 0 else 2601))
            self.assertIn(lease, [x["lease"] for x in rows])
            self.assertEqual(len([x for x in rows if x["registration"] == "made"]), 1300)
            self.assertEqual([x["lease"] for x in rows][-1], "%032x" % (2599 if flags == 0 else 2600))
        self.assertEqual([x["lease"] for x in w.call("LEASES", name="one")["document"]["leases"]], [lease])
        host = subprocess.run([os.environ["BOXERY_HOST"], "lease", "ls", "--all"], env=w.env, capture_output=True, text=True, check=True)
        self.assertEqual(host.stderr, "1101 older closed leases are not listed.\n")
        self.assertEqual(len(host.stdout.splitlines()), 1 + 1500)

    def test_released_twice_foreign_and_expired(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease(ttl_ms=100)["lease"]
        until(lambda: w.running("one") == 2)
        self.refused(114, "EXPIRED", w.call, "RELEASE", lease=lease)
        self.refused(114, "EXPIRED", w.call, "RELEASE", lease=lease)
        self.refused(116, "nothing was delivered", w.deliver, lease, data=SECRET)
        with self.assertRaises(Gone):
            c = w.client()
            c.send("LEASE", holder="h", name="one", wait_ms=30000)
            w.end()
            while True:
                c.receive()


if __name__ == "__main__":
    main()
