"""Standby: READY VMs wait paused, a lease wakes one, and what becomes of both when that does not work."""
import os

from keeper_world import ALL, BIND, COLD, LOOK, PAUSED, RUNNING, WAIT, WARM, Case, main, time, until

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGhYQ0hhdGVzdGtleXRlc3RrZXl0ZXN0a2V5dGVzdA me@there"
NONE = 0xFFFFFFFF


class Standby(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def kinds(self, **which):
        return [e["kind"] for e in self.w.history(**which)]

    def paused(self, name):
        with open(self.w.path("world/domains", name), encoding="utf-8") as f:
            return f.read().split()[1] == "1"

    def key_file(self, name):
        try:
            with open(self.w.path("config/host-keys", name), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def closed(self):
        return {x["vm"]: x for x in self.w.call("LEASES", flags=ALL)["document"]["leases"] if not x["open"]}

    def again(self, name, generation):
        """READY in this life."""
        until(lambda: (v := self.w.vms()[name])["state"] == "READY" and v["generation"] == generation)
        return self.w.vms()[name]

    def test_a_lease_wakes(self):
        w = self.w
        w.pool_vm("one")
        v = w.vms()["one"]
        self.assertEqual((v["state"], v["waits"], v["host_key"], v["running"], self.paused("one")), ("READY", "paused", "", True, True))
        self.assertIsNone(self.key_file("one"))
        r = w.lease()
        self.assertEqual((r["name"], r["generation"], r["address"], r["host_key"]),
                         ("one", 1, "127.77.0.10", "ssh-ed25519 AAAA+one+1"))
        self.assertFalse(self.paused("one"))
        self.assertEqual(self.key_file("one"), "one,127.77.0.10 ssh-ed25519 AAAA+one+1\n")
        v = w.vms()["one"]
        self.assertEqual((v["state"], v["waits"], v["host_key"], v["work"]), ("LEASED", "", r["host_key"], ""))
        history = w.history(lease=r["lease"])
        self.assertEqual([e["kind"] for e in history], ["LEASE", "resume", "begin", "check"])
        self.assertEqual({(e["vm"], e["generation"]) for e in history}, {("one", 1)})
        w.deliver(r["lease"])
        self.assertEqual(w.delivered(), [("one", 1)])
        w.stop_domain("one")
        v = self.again("one", 2)
        self.assertEqual((v["waits"], v["host_key"], self.key_file("one")), ("paused", "", None))  # nothing of the old life
        self.assertEqual(w.lines("starts.log"), ["one 1 warm standby", "one 2 warm standby"])
        self.assertEqual(w.lease()["host_key"], "ssh-ed25519 AAAA+one+2")

    def test_settings(self):
        w = self.w
        w.call("POOL_SET", pool="default", standby=RUNNING)
        w.pool_vm("one")
        self.assertEqual((w.vms()["one"]["waits"], w.vms()["one"]["host_key"]), ("running", "ssh-ed25519 AAAA+one+1"))
        w.call("POOL_SET", pool="default", start=COLD)
        w.kill()
        w.start()  # not forgotten
        w.call("RELEASE", lease=w.lease(wait_ms=5000)["lease"])
        self.assertEqual(self.again("one", 2)["waits"], "running")
        w.call("POOL_SET", pool="default", standby=PAUSED)  # of a cold start there is nothing to wait in
        w.call("RELEASE", lease=w.lease()["lease"])
        self.again("one", 3)
        w.call("POOL_SET", pool="default", start=WARM)
        w.call("RELEASE", lease=w.lease()["lease"])
        self.assertEqual(self.again("one", 4)["waits"], "paused")
        self.assertEqual(w.lines("starts.log"), ["one 1 warm", "one 2 cold", "one 3 cold", "one 4 warm standby"])
        self.assertEqual(w.ops("WAKE"), [])
        w.call("POOL_SET", pool="default", start=COLD, standby=RUNNING)
        w.call("POOL_SET", pool="default", start=NONE, standby=NONE)
        pool = w.call("POOLS")["document"]["pools"][0]
        self.assertEqual((pool["start"], pool["standby"]), ("warm", "paused"))
        for values in ({"start": 3}, {"standby": 3}):
            self.refused(22, "start warm or cold, and wait paused or running", w.call, "POOL_SET", pool="default", **values)

    def test_the_next_one_when_it_fails(self):
        w = self.w
        w.pool_vm("one", "two")
        for i, how in enumerate(("fail 5 agent it does not answer", "hang", "noresult", "crash", "garbage", "flood", "late",
                                 "badkey", "badaddress", "nokey", "twice", "dead 200", "drop 1", "drop 200")):
            with self.subTest(how):
                w.script("WAKE-one", "once " + how)
                w.lease(name="two", holder="other")  # so that `one` is the only one there is
                c = w.client()
                seq = c.send("LEASE", holder="me", pool="default", ttl_ms=60000, wait_ms=9000)
                w.await_state("one", "LEASED", "RESETTING", "COLD", "STARTING", "READY")
                until(lambda: w.ops("WAKE", "one") and "one could not be woken" in " ".join(self.heard(c)))
                w.call("RELEASE", lease=[x for x, row in w.leases().items() if row["vm"] == "two"][0])
                r = c.reply(seq)
                ended = self.closed().get("one") or [x for x in w.leases().values() if x["vm"] == "one" and x["end_reason"]][0]
                self.assertEqual(ended["outcome"], "wake-failed")
                self.assertRegex(ended["end_reason"], "^WAKE_FAILED: ")
                w.call("RELEASE", lease=r["lease"])
                for name in ("one", "two"):
                    until(lambda: w.vms()[name]["state"] == "READY" and w.vms()[name]["attempts"] == 0)
                # After the failure a cold start, which leaves nothing to be woken; then a warm one.
                if w.vms()["one"]["waits"] == "running":
                    generation = w.vms()["one"]["generation"]
                    self.assertEqual([x for x in w.lines("starts.log") if x.startswith("one ")][-1].split()[2], "cold")
                    w.call("RELEASE", lease=w.lease(name="one")["lease"])
                    self.again("one", generation + 1)
                self.assertEqual(w.vms()["one"]["waits"], "paused", i)
                # A warm life that works: the next failure is the first again.
                generation = w.vms()["one"]["generation"]
                w.call("RELEASE", lease=w.lease(name="one")["lease"])
                self.again("one", generation + 1)

    def heard(self, c):
        """Progress so far, without waiting for the answer."""
        c.socket.settimeout(0.02)
        try:
            while True:
                a = c.receive()
                assert a["kind"] == 64, a
                c.progress.append(a["text"])
        except TimeoutError:
            pass
        finally:
            c.socket.settimeout(10)
        return c.progress

    def test_another_one_at_once(self):
        w = self.w
        w.pool_vm("one", "two")
        w.script("WAKE-one", "once fail 5 agent it does not answer")
        self.assertEqual(w.lease(holder="me")["name"], "two")  # without any --wait
        self.assertRegex(self.again("one", 2)["waits"], "running")
        self.assertEqual([x.split()[2:] for x in w.lines("starts.log") if x.startswith("one ")], [["warm", "standby"], ["cold"]])
        v = self.w.vms()["one"]
        self.assertEqual((v["attempts"], v["reason"]), (0, ""))

    def test_nobody_else_is_ready(self):
        w = self.w
        w.pool_vm("one")
        w.script("WAKE-one", "once fail 5 agent it does not answer")
        self.refused(11, "one could not be woken: it does not answer; no VM of pool default is ready: 1 RESETTING", w.lease)
        self.again("one", 2)
        self.assertIn("WAKE_FAILED", self.kinds(name="one"))
        self.assertEqual(self.closed()["one"]["end_reason"], "WAKE_FAILED: it does not answer")
        w.call("RELEASE", lease=w.lease()["lease"])
        self.again("one", 3)
        w.script("WAKE-one", "once crash")
        r = w.lease(wait_ms=5000)  # the same VM, in its next life
        self.assertEqual((r["name"], r["generation"]), ("one", 4))
        w.call("RELEASE", lease=r["lease"])
        self.again("one", 5)
        w.script("WAKE-one", "once noresult")
        w.script("START-one", "hang")
        self.refused(11, "one could not be woken: .*status 3.*; no VM of pool default is ready", w.lease, wait_ms=300)

    def test_only_so_many_are_tried(self):
        w = self.w
        w.pool_vm("a", "b", "c", "d")
        w.script("WAKE", "fail 5 agent no")
        text = self.refused(11, "could not be woken: no; no more than 3 VMs are tried", w.lease)
        self.assertRegex(text, "^c ")
        self.assertEqual(w.vms()["d"]["waits"], "paused")

    def test_three_failures(self):
        w = self.w
        w.pool_vm("one")
        w.script("WAKE-one", "fail 5 agent no")
        w.script("START-one", "fail 5 boot no kernel")
        self.refused(11, "could not be woken", w.lease)
        v = w.await_state("one", "BROKEN")
        self.assertEqual((v["attempts"], v["step"], v["reason"], v["lease"]), (3, "boot", "no kernel", ""))
        w.script("START-one", None)
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        self.assertEqual(w.lines("starts.log")[-1].split()[2:], ["warm", "standby"])
        # Two starts that failed, one that did not, and a wake-up that fails: READY in between is not living.
        w.script("START-one", "once fail 5 boot no kernel")
        generation = w.vms()["one"]["generation"]
        self.refused(11, "could not be woken", w.lease)
        self.assertEqual(self.again("one", generation + 2)["waits"], "running")

    def start_kinds(self):
        return [x.split()[2] for x in self.w.lines("starts.log")]

    def warm_failures(self):
        v = self.w.vms()["one"]
        return v["warm_failures"], v["cold_only"], v["attempts"]

    def cold_life(self, generation):
        """It is READY after a failure; its cold life works."""
        self.assertEqual(self.again("one", generation)["waits"], "running")
        self.w.call("RELEASE", lease=self.w.lease()["lease"])
        return self.again("one", generation + 1)

    def test_wake_that_never_works(self):
        """... ends: three times a cold life comes between, then there are only cold ones."""
        w = self.w
        w.pool_vm("one")
        w.script("WAKE-one", "fail 5 agent it does not answer")
        for i in (1, 2, 3):
            self.refused(11, "one could not be woken: it does not answer", w.lease)
            v = self.cold_life(2 * i)
            self.assertEqual(v["waits"], "running" if i == 3 else "paused")
            self.assertEqual(self.warm_failures(), (i, i == 3, 0))
            self.assertEqual(v["warm_reason"], "agent: it does not answer")
        self.assertEqual(self.start_kinds(), ["warm", "cold", "warm", "cold", "warm", "cold", "cold"])
        self.assertEqual(w.lines("dropped.log"), ["one 1", "one 3", "one 5"])  # no image is tried twice
        self.assertEqual(self.kinds(name="one").count("cold-only"), 1)
        self.assertEqual(w.log().count("is started cold from now on"), 1)
        self.assertIn("3 warm starts in a row have failed, the last in step agent: it does not answer; 'boxery-host pool repair one'",
                      w.log())
        w.kill()
        w.start()  # not forgotten
        w.call("RELEASE", lease=w.lease(wait_ms=5000)["lease"])
        self.assertEqual(self.again("one", 8)["waits"], "running")
        # An admin has mended it.
        w.script("WAKE-one", None)
        w.call("POOL_REPAIR", name="one")
        self.assertEqual(self.warm_failures(), (0, False, 0))
        self.refused(114, "nothing to repair", w.call, "POOL_REPAIR", name="one")
        w.call("RELEASE", lease=w.lease()["lease"])
        self.assertEqual(self.again("one", 9)["waits"], "paused")
        w.call("RELEASE", lease=w.lease()["lease"])
        self.assertEqual(self.again("one", 10)["waits"], "paused")
        self.assertEqual(w.lines("dropped.log"), ["one 1", "one 3", "one 5"])

    def test_warm_start_that_never_works(self):
        w = self.w
        w.pool_vm("one")
        for i in (1, 2, 3):
            w.script("START-one", "once fail 5 restore it cannot be restored")
            w.call("RELEASE", lease=w.lease()["lease"])  # the first time of a warm life, then of cold ones
            self.assertEqual(self.again("one", 2 * i + 1)["waits"], "running")
            self.assertEqual(self.warm_failures(), (i, i == 3, 0))
        self.assertEqual(w.lines("dropped.log"), ["one 2", "one 4", "one 6"])
        w.call("RELEASE", lease=w.lease()["lease"])
        self.assertEqual(self.again("one", 8)["waits"], "running")
        self.assertEqual(self.start_kinds(), ["warm", "cold", "cold", "cold", "cold"])  # the failed ones came to nothing

    def test_what_counts_as_a_warm_failure(self):
        w = self.w
        w.pool_vm("one")
        w.script("WAKE-one", "once fail 5 agent no")
        self.refused(11, "could not be woken", w.lease)
        self.assertEqual(self.cold_life(2)["waits"], "paused")
        self.assertEqual(self.warm_failures(), (1, False, 0))
        w.script("WAKE-one", "once fail 111 connect not now")  # libvirt's failure, not the VM's
        self.refused(11, "could not be woken", w.lease)
        self.assertEqual(self.again("one", 4)["waits"], "paused")
        self.assertEqual(self.warm_failures(), (1, False, 0))
        w.call("RELEASE", lease=w.lease()["lease"])  # it wakes: all is well again
        self.again("one", 5)
        self.assertEqual(self.warm_failures(), (0, False, 0))

    def test_who_asked_first_comes_first(self):
        w = self.w
        w.pool_vm("one")
        w.script("WAKE-one", "once drop 300")
        first, second = w.client(), w.client()
        a = first.send("LEASE", holder="first", pool="default", ttl_ms=60000, wait_ms=9000)
        w.await_state("one", "LEASED")
        b = second.send("LEASE", holder="second", pool="default", ttl_ms=60000, wait_ms=9000)
        r = first.reply(a)
        self.assertEqual(r["generation"], 2)
        w.call("RELEASE", lease=r["lease"])
        self.assertEqual(second.reply(b)["generation"], 3)

    def waking(self, how="once hang", **values):
        w = self.w
        w.script("WAKE-one", how)
        c = w.client()
        values.setdefault("ttl_ms", 60000)
        seq = c.send("LEASE", holder="h", pool="default", **values)
        until(lambda: w.vms()["one"]["work"] == "WAKE")
        return c, seq, w.vms()["one"]["lease"]

    def test_the_end_comes_meanwhile(self):
        w = self.w
        w.pool_vm("one")
        c, seq, lease = self.waking()
        self.refused(16, "not awake yet", w.deliver, lease)
        w.call("RELEASE", lease=lease)
        self.refused(125, "ended before its lease began: RELEASE", c.reply, seq)
        self.again("one", 2)
        c, seq, lease = self.waking(ttl_ms=150)
        self.refused(125, "ended before its lease began: its lease has expired", c.reply, seq)
        self.again("one", 3)
        c, seq, lease = self.waking(flags=BIND)
        c.close()
        self.again("one", 4)
        self.assertRegex(self.closed()["one"]["end_reason"], "^HOLDER_LOST")
        c, seq, lease = self.waking("once slow 200")
        c.close()  # seen when it is awake
        self.again("one", 5)
        self.assertEqual(w.leases(), {})
        # None of this was the VM's failure.
        self.assertEqual({x.split()[2] for x in w.lines("starts.log")}, {"warm"})
        c, seq, lease = self.waking()
        w.call("POOL_REMOVE", name="one", flags=1)
        self.refused(125, "it is removed from its pool", c.reply, seq)

    def test_files_go_meanwhile(self):
        w = self.w
        w.pool_vm("one")
        c, seq, _ = self.waking()
        w.write("world/trouble/one", "run/one.qcow2 is gone\n")
        self.refused(11, "one could not be woken: run/one.qcow2 is gone", c.reply, seq)
        os.unlink(w.path("world/trouble/one"))
        self.assertEqual(self.again("one", 2)["waits"], "running")

    def test_key(self):
        w = self.w
        w.pool_vm("one", "two")
        w.script("WAKE-one", "once fail 5 agent no")
        r = w.lease(text=KEY)
        self.assertEqual((r["name"], r["host_key"]), ("two", "ssh-ed25519 AAAA+two+1"))
        self.assertEqual(w.lines("grants.log"), [f"two 1 {KEY}"])
        self.assertEqual(self.kinds(lease=r["lease"]), ["LEASE", "resume", "begin", "check", "DELIVER", "delivered"])

    def test_keeper_restarts(self):
        w = self.w
        w.pool_vm("one")
        w.kill()
        w.start()
        r = w.lease(wait_ms=5000)
        self.assertEqual((r["generation"], r["host_key"]), (1, "ssh-ed25519 AAAA+one+1"))
        w.call("RELEASE", lease=r["lease"])
        self.again("one", 2)
        self.waking()
        w.kill()
        w.start()  # nobody was answered
        self.assertEqual(self.again("one", 3)["attempts"], 0)
        self.assertEqual(w.leases(), {})

    def test_keeper_ends_meanwhile(self):
        w = self.w
        w.pool_vm("one")
        c, seq, _ = self.waking("once slow 300")
        self.assertEqual(w.end(), 0)
        self.assertEqual(c.reply(seq)["host_key"], "ssh-ed25519 AAAA+one+1")  # what had begun was done
        w.start()
        self.again("one", 2)
        c, seq, _ = self.waking("once drop 200")
        self.assertEqual(w.end(), 0)
        self.refused(125, "the keeper is ending", c.reply, seq)
        w.start()

    def test_paused_is_not_lived(self):
        w = self.w
        w.pool_vm("one")
        time.sleep(0.6)  # longer than a short life
        w.stop_domain("one")
        v = self.again("one", 2)
        self.assertIn("SHORT_LIFE", self.kinds(name="one"))
        self.assertEqual(v["waits"], "running")
        time.sleep(0.6)
        w.stop_domain("one")
        self.assertEqual(self.again("one", 3)["waits"], "paused")  # that one had lived

    def test_standby_nobody_asked_for(self):
        w = self.w
        w.call("POOL_SET", pool="default", standby=RUNNING)
        w.new("one")
        w.script("START-one", "once asleep")
        w.call("POOL_ADD", name="one", flags=WAIT)
        self.assertEqual(w.running("one"), 2)
        self.assertTrue(any("nobody has asked for that" in e["text"] for e in w.history(name="one")))
        w.script("START-one", "once nokey")
        w.call("RELEASE", lease=w.lease()["lease"])
        self.assertEqual(self.again("one", 4)["waits"], "running")
        self.assertTrue(any("host key: it is not" in e["text"] for e in w.history(name="one")))

    def test_broken_is_looked_at_asleep(self):
        w = self.w
        w.pool_vm("one")
        w.script("START-one", "fail 5 boot no")
        w.script("WAKE-one", "fail 5 agent no")
        self.refused(11, "could not be woken", w.lease)
        w.await_state("one", "BROKEN")
        before = len(w.ops("WAKE"))
        w.call("RELEASE", lease=w.lease(name="one", flags=LOOK)["lease"])
        self.assertEqual(len(w.ops("WAKE")), before)


class Beside(Case):
    host_env = "BOXERY_START_TIMEOUT=90s\n"  # far longer than a request is waited for: a start keeps its place

    def test_beside_starts_that_hang(self):
        w = self.w
        w.start()
        w.pool_vm("one")
        for name in ("two", "three"):
            w.new(name)
            w.script("START-" + name, "hang")
            w.call("POOL_ADD", name=name)
        until(lambda: len([x for x in w.ops("START") if x[1] != "one"]) == 2)  # both places are taken
        self.assertEqual(w.lease(name="one")["name"], "one")
        self.assertEqual([v["state"] for v in w.vms().values()], ["LEASED", "STARTING", "STARTING"])


if __name__ == "__main__":
    main()
