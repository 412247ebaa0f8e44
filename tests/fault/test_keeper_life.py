"""The life of VMs: starts, leases, deliveries, ends, failures."""
from keeper_world import BIND, FORCE, LOOK, PAUSED, RUNNING, STATES, Case, Gone, WAIT, main, memfd, time, until


class Life(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def test_one_job(self):
        w = self.w
        w.pool_vm("one")
        self.assertEqual(w.running("one"), 1)
        lease = w.lease(holder="github-runner", scope="owner/repo")
        self.assertEqual((lease["name"], lease["generation"], lease["address"]), ("one", 1, "127.77.0.10"))
        self.assertRegex(lease["runner_name"], r"^boxery-[0-9a-f]{8}-[0-9a-f]{16}$")
        w.call("REGISTER", lease=lease["lease"], registration=1)
        w.call("REGISTER", lease=lease["lease"], registration=2, runner_id=77)
        w.deliver(lease["lease"])
        self.assertEqual(w.state("one"), "DELIVERED")
        w.call("JOB_SEEN", lease=lease["lease"], text="build")
        self.assertEqual(w.state("one"), "BUSY")
        w.stop_domain("one")
        until(lambda: w.vms()["one"]["generation"] == 2 and w.state("one") == "READY")
        self.assertEqual(w.running("one"), 2)
        self.assertEqual(w.delivered(), [("one", 1)])
        swept = w.leases()[lease["lease"]]  # closed, but its registration is not known to be gone
        self.assertEqual((swept["open"], swept["registration"], swept["runner_id"], swept["job"]), (False, "made", 77, "build"))
        w.call("OUTCOME", lease=lease["lease"], text="success")
        self.refused(114, ".", w.call, "OUTCOME", lease=lease["lease"], text="failure")
        w.call("REGISTER", lease=lease["lease"], registration=3)
        self.assertEqual(w.leases(), {})
        w.call("NOTE", lease=lease["lease"], text="said later")
        self.assertEqual(w.history(lease=lease["lease"])[-1]["text"], "said later")
        kinds = [e["kind"] for e in w.history(lease=lease["lease"])]
        for kind in ("LEASE", "DELIVER", "delivered", "JOB_SEEN", "STOPPED", "RESET_DONE", "START", "STARTED"):
            self.assertIn(kind, kinds)
        self.assertLess(kinds.index("DELIVER"), kinds.index("delivered"))

    def test_host_key_file(self):
        self.w.call("POOL_SET", pool="default", standby=RUNNING)
        self.w.pool_vm("one")
        with open(self.w.path("config/host-keys/one"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "one,127.77.0.10 ssh-ed25519 AAAA+one+1\n")
        self.w.call("POOL_REMOVE", name="one")
        with self.assertRaises(FileNotFoundError):
            open(self.w.path("config/host-keys/one"), encoding="utf-8").close()

    def test_release_resets(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("RELEASE", lease=lease, text="released")
        self.refused(114, "has ended", w.call, "RELEASE", lease=lease)
        w.await_state("one", "READY")
        self.assertEqual(w.running("one"), 2)

    def test_expiry(self):
        w = self.w
        w.pool_vm("one")
        w.lease(ttl_ms=200)
        until(lambda: w.running("one") == 2)
        self.assertTrue(any(e["kind"] == "EXPIRED" for e in w.history(name="one")))

    def test_bound_lease_ends_with_its_connection(self):
        w = self.w
        w.pool_vm("one")
        c = w.client()
        w.lease(client=c, flags=BIND)
        time.sleep(0.2)
        self.assertEqual(w.state("one"), "LEASED")
        c.close()
        until(lambda: w.running("one") == 2)
        self.assertTrue(any(e["kind"] == "HOLDER_LOST" for e in w.history(name="one")))

    def test_bound_lease_of_a_busy_connection(self):
        """The connection ends while its next request waits."""
        w = self.w
        w.pool_vm("one")
        c = w.client()
        w.lease(client=c, flags=BIND)
        c.send("LEASE", holder="tester", pool="default", wait_ms=60000)
        time.sleep(0.1)
        c.close()
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")  # and not leased to the one that went

    def test_lessee_that_went_while_it_waited(self):
        w = self.w
        w.pool_vm("one")
        w.call("RELEASE", lease=w.lease()["lease"])
        for _ in range(10):  # the hang-up and the READY VM in any order
            c = w.client()
            c.send("LEASE", holder="h", pool="default", ttl_ms=60000, wait_ms=60000)
            c.close()
        until(lambda: w.state("one") == "READY" and not w.leases())
        w.call("RELEASE", lease=w.lease()["lease"])

    def test_waiting_lessees_in_order(self):
        w = self.w
        w.pool_vm("one")
        first = w.lease()["lease"]
        waiting = [w.client() for _ in range(3)]
        seqs = []
        for c in waiting:
            seqs.append(c.send("LEASE", holder="tester", pool="default", ttl_ms=60000, wait_ms=60000))
            time.sleep(0.05)
        w.call("RELEASE", lease=first)
        for c, seq in zip(waiting, seqs):
            lease = c.reply(seq)
            w.call("RELEASE", lease=lease["lease"])
        self.assertEqual([e["kind"] for e in w.history(name="one")].count("LEASE"), 4)

    def test_wait_in_vain(self):
        w = self.w
        w.pool_vm("one")
        w.lease()
        text = self.refused(11, "1 LEASED", w.lease, wait_ms=150)
        self.assertIn("pool default", text)
        self.refused(11, "LEASED", w.lease)
        self.refused(11, "one is LEASED", w.lease, name="one", wait_ms=50)

    def test_stop_in_every_state(self):
        w = self.w
        w.pool_vm("one")
        w.stop_domain("one")  # READY
        until(lambda: w.running("one") == 2)
        w.await_state("one", "READY")
        lease = w.lease()["lease"]  # LEASED
        w.stop_domain("one")
        until(lambda: w.running("one") == 3)
        self.refused(114, "STOPPED", w.call, "RELEASE", lease=lease)
        self.refused(116, "ended", w.deliver, lease)

    def test_stop_seen_only_in_a_listing(self):
        w = self.w
        w.pool_vm("one")
        w.script("WATCH", "deaf")
        w.stop_domain("one")
        until(lambda: w.running("one") == 2)

    def test_late_stop_of_an_old_life_ends_nothing(self):
        w = self.w
        w.pool_vm("one")
        w.call("RELEASE", lease=w.lease()["lease"])
        w.await_state("one", "READY")
        lease = w.lease()["lease"]
        for generation in (1, 0, 7):  # 0: a domain without one
            word = f"generation {generation} has stopped"
            before = w.log().count(word)
            w.script("WATCH", f"once stopped one {generation}")
            until(lambda: w.log().count(word) > before)
            self.assertEqual((w.state("one"), w.running("one")), ("LEASED", 2), generation)
        w.script("WATCH", "once stopped one 2")
        until(lambda: w.running("one") == 3)
        self.refused(114, "STOPPED", w.call, "RELEASE", lease=lease)

    def test_failing_starts_end_in_broken_and_repair(self):
        w = self.w
        w.script("START-bad", "fail 5 agent it does not answer")
        w.pool_vm("good")
        w.new("bad")
        text = self.refused(5, "BROKEN after 3 failures", w.call, "POOL_ADD", name="bad", flags=WAIT)
        self.assertIn("it does not answer", text)
        v = w.vms()["bad"]
        self.assertEqual((v["state"], v["attempts"], v["step"], v["reason"]), ("BROKEN", 3, "agent", "it does not answer"))
        self.assertEqual(len(w.ops("START", "bad")), 6)  # three times begin and failed
        self.assertEqual(w.state("good"), "READY")
        self.refused(11, "bad is BROKEN", w.lease, name="bad")
        w.script("START-bad", None)
        w.call("POOL_REPAIR", name="bad", flags=WAIT)
        self.assertEqual(w.vms()["bad"]["attempts"], 0)
        self.refused(114, "READY, not BROKEN", w.call, "POOL_REPAIR", name="bad")

    def test_failing_resets_end_in_broken_and_repair(self):
        for how in ("fail 30 destroy the image folder is read-only", "hang", "noresult", "crash", "garbage", "flood"):
            with self.subTest(how):
                w = self.w
                name = "vm-" + how.split()[0]
                w.pool_vm(name)
                w.script("RESET-" + name, how)
                w.call("RELEASE", lease=w.lease(name=name)["lease"])
                v = w.await_state(name, "BROKEN", timeout=20)
                self.assertEqual(v["attempts"], 3)
                self.assertEqual(v["lease"], "")
                self.assertTrue(v["reason"])
                w.script("RESET-" + name, None)
                w.call("POOL_REPAIR", name=name, flags=WAIT)
        self.assertEqual({v["state"] for v in self.w.vms().values()}, {"READY"})

    def test_start_that_does_not_end(self):
        w = self.w
        for how in ("hang", "noresult", "crash", "garbage", "flood", "late", "badkey", "badaddress", "twice"):
            with self.subTest(how):
                name = "vm-" + how
                w.call("POOL_SET", pool="default", standby=RUNNING if how == "badaddress" else PAUSED)
                w.new(name)
                w.script("START-" + name, "once " + how)
                w.call("POOL_ADD", name=name, flags=WAIT, timeout=20)
                self.assertEqual(w.vms()[name]["attempts"], 0)
                self.assertEqual(w.vms()[name]["generation"], 2)
                self.assertEqual(w.running(name), 2)

    def test_lingering_child_is_believed_and_ended(self):
        w = self.w
        w.script("START", "linger")
        w.pool_vm("one")
        until(lambda: len(w.children(spares=False)) == 1)  # the watch

    def test_short_lives_end_in_broken(self):
        w = self.w
        w.pool_vm("one")
        w.lease()  # it has lived: what fails from here on counts from nothing
        w.script("START", "shortlife 100")
        w.stop_domain("one")
        v = w.await_state("one", "BROKEN", timeout=20)
        self.assertEqual((v["attempts"], v["step"]), (3, "alive"))
        self.assertRegex(v["reason"], r"ready for only 0\.\d s: .*shutdown")
        self.assertTrue(w.has("broken", "one"))
        self.assertEqual(len(w.ops("START", "one")) // 2, 4)
        w.script("START", None)
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        self.assertFalse(w.has("broken", "one"))

    def test_long_lives_and_leases_end_a_row_of_failures(self):
        w = self.w
        w.pool_vm("one")
        for _ in range(4):
            life = w.await_state("one", "READY")["generation"]
            time.sleep(0.5)
            w.stop_domain("one")
            until(lambda: w.vms()["one"]["generation"] > life)
        w.await_state("one", "READY")
        for _ in range(4):
            lease = w.lease(wait_ms=5000)["lease"]
            w.call("RELEASE", lease=lease)
        v = w.await_state("one", "READY")
        self.assertEqual(v["attempts"], 0)

    def test_dead_before_its_start_has_ended(self):
        """Libvirt's word counts more than that of the start, which comes later."""
        w = self.w
        w.new("one")
        w.script("START", "once dead 150")
        w.call("POOL_ADD", name="one", flags=WAIT)
        failed = [e for e in w.history(name="one") if e["kind"] in ("START_FAILED", "STOPPED", "STARTED")]
        self.assertEqual([e["kind"] for e in failed], ["START_FAILED", "STARTED"])
        self.assertIn("alive: the domain stopped while it was started", failed[0]["text"])
        self.assertEqual(w.running("one"), 2)

    def test_failed_starts_and_short_lives_count_together(self):
        w = self.w
        w.new("one")
        w.script("START", "once fail 5 agent no")
        w.call("POOL_ADD", name="one")
        w.await_state("one", "READY")
        w.script("START", "once shortlife 100")
        w.stop_domain("one")
        v = w.await_state("one", "BROKEN")
        self.assertEqual([e["kind"] for e in w.history(name="one")].count("SHORT_LIFE"), 2)
        self.assertEqual(v["attempts"], 3)

    def test_one_hanging_vm_delays_nobody(self):
        w = self.w
        w.pool_vm("good", "bad")
        w.script("RESET-bad", "hang")
        w.script("START-bad", "hang")
        w.call("RELEASE", lease=w.lease(name="bad")["lease"])
        begin = time.monotonic()
        w.call("RELEASE", lease=w.lease(name="good")["lease"])
        until(lambda: w.running("good") == 2)
        self.assertLess(time.monotonic() - begin, 1.3)
        w.script("RESET-bad", None)
        w.script("START-bad", None)
        w.await_state("bad", "READY", timeout=20)

    def test_resets_do_not_wait_for_hanging_starts(self):
        w = self.w
        w.pool_vm("good", "bad", "worse")
        w.script("START-bad", "hang")
        w.script("START-worse", "hang")
        w.stop_domain("bad")
        w.stop_domain("worse")
        until(lambda: {w.state("bad"), w.state("worse")} == {"STARTING"})
        lease = w.lease(name="good")["lease"]
        begin = time.monotonic()
        w.call("RELEASE", lease=lease)
        until(lambda: w.running("good") == 0)
        self.assertLess(time.monotonic() - begin, 1.3)
        w.script("START-bad", None)
        w.script("START-worse", None)

    def test_parallel_starts_are_bounded(self):
        w = self.w
        w.script("START", "slow 150")
        for i in range(6):
            w.new(f"vm{i}")
        clients = [w.client() for _ in range(6)]
        seqs = [c.send("POOL_ADD", name=f"vm{i}", flags=WAIT) for i, c in enumerate(clients)]
        for c, seq in zip(clients, seqs):
            c.reply(seq)
        running = most = 0
        for line in w.lines("ops.log"):
            verb, _, _, what = line.split(" ")
            if verb == "START":
                running += 1 if what == "begin" else -1
                most = max(most, running)
        self.assertEqual(most, 2)

    def test_foreign_domains_are_left_alone(self):
        w = self.w
        w.write("world/domains/stranger", "7 0\n")
        w.pool_vm("one")
        until(lambda: "stranger" in w.log())
        time.sleep(0.3)
        self.assertEqual(w.running("stranger"), 7)
        self.assertEqual(w.log().count("is not in the database"), 1)

    def test_another_life_runs(self):
        """A domain of another generation than the recorded one is a doubt, also of a later one."""
        w = self.w
        w.pool_vm("one")
        lease = w.lease()
        w.script("WATCH", "deaf")
        w.write("world/domains/one", "9 0\n")
        until(lambda: w.state("one") == "READY" and w.running("one") > 9)
        self.assertNotIn(lease["lease"], w.leases())

    def test_domain_of_a_cold_vm(self):
        w = self.w
        w.pool_vm("one")
        w.script("START", "hang")
        w.stop_domain("one")
        until(lambda: w.state("one") == "STARTING")
        w.libvirt(False)
        until(lambda: w.state("one") in ("RESETTING", "BROKEN"), timeout=20)
        w.libvirt(True)
        w.script("START", None)
        until(lambda: w.state("one") in ("READY", "BROKEN"), timeout=20)

    def test_libvirt_down_starts_nothing(self):
        w = self.w
        w.pool_vm("one", "two")
        lease = w.lease(name="one")["lease"]
        w.libvirt(False)
        until(lambda: "does not answer" in w.log())
        starts = len(w.ops("START"))
        self.refused(11, "READY|libvirt", w.call, "LEASE", holder="tester", name="two")  # its reset could not succeed
        w.call("RELEASE", lease=lease)
        v = w.await_state("one", "BROKEN")
        self.assertEqual(v["step"], "connect")
        self.assertEqual(len(w.ops("START")), starts)
        self.assertEqual(w.state("two"), "READY")
        w.libvirt(True)
        w.call("POOL_REPAIR", name="one", flags=WAIT)

    def test_short_outage_breaks_nothing(self):
        """Three VMs are being reset, one is just starting, while libvirtd is restarted: none of it counts."""
        w = self.w
        names = ("one", "two", "three")
        w.pool_vm(*names, "four")
        leases = [w.lease(name=n)["lease"] for n in names]
        w.script("START-four", "once slow 200")
        w.stop_domain("four")
        until(lambda: w.state("four") == "STARTING")
        w.libvirt(False)
        for lease in leases:
            w.call("RELEASE", lease=lease)
        until(lambda: "does not answer" in w.log())
        until(lambda: w.state("four") == "RESETTING")
        time.sleep(0.3)  # longer than both waits between failures
        resets = len(w.ops("RESET"))
        self.assertEqual([w.state(n) for n in names], ["RESETTING"] * 3)
        w.libvirt(True)
        for name in (*names, "four"):
            self.assertEqual(w.await_state(name, "READY", "BROKEN")["state"], "READY", name)
            kinds = [e["kind"] for e in w.history(name=name)]
            self.assertNotIn("RESET_FAILED", kinds)
            self.assertNotIn("START_FAILED", kinds)
        self.assertLessEqual(resets, 2 * (4 + 1 + len(names)))  # two lines each; and nobody tried in vain again and again

    def test_libvirt_that_lists_and_refuses_starts(self):
        """It answers, so the outage is over each time; it is not waited for without end."""
        w = self.w
        w.pool_vm("one", "two")
        w.script("START-one", "fail 111 create Connection refused")
        w.call("RELEASE", lease=w.lease(name="one")["lease"])
        v = w.await_state("one", "BROKEN", timeout=30)
        self.assertEqual(v["step"], "create")
        self.assertEqual(v["reason"], "libvirt lists its domains, but has refused this VM more than 3 times in a row: Connection refused")
        kinds = [e["kind"] for e in w.history(name="one")]
        self.assertEqual((kinds.count("INTERRUPTED"), kinds.count("START_FAILED")), (3, 3))
        until(lambda: w.state("two") == "READY")
        w.script("START-one", None)
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        # One that works in between begins the row anew.
        w.script("START-one", "once fail 111 create Connection refused")
        w.call("RELEASE", lease=w.lease(name="one")["lease"])
        until(lambda: (v := w.vms()["one"])["state"] == "READY" and v["generation"] > 7)
        self.assertNotIn("START_FAILED", [e["kind"] for e in w.history(name="one")][len(kinds):])

    def test_libvirt_that_lists_and_refuses_resets(self):
        w = self.w
        w.pool_vm("one")
        w.script("RESET-one", "fail 111 destroy Connection refused")
        w.call("RELEASE", lease=w.lease()["lease"])
        v = w.await_state("one", "BROKEN", timeout=30)
        self.assertEqual((v["step"], v["lease"]), ("destroy", ""))
        self.assertRegex(v["reason"], "refused this VM more than 3 times in a row: Connection refused")
        w.script("RESET-one", None)
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        self.assertEqual(w.running("one"), w.vms()["one"]["generation"])

    def test_guest_of_a_broken_vm_is_ended_when_libvirt_is_back(self):
        w = self.w
        w.pool_vm("one", "two")
        lease = w.lease(name="one")["lease"]
        looked_at = w.lease(name="two")["lease"]
        w.libvirt(False)
        for x in (lease, looked_at):
            w.call("RELEASE", lease=x)
        for name in ("one", "two"):
            self.assertEqual(w.await_state(name, "BROKEN")["step"], "connect")
            self.assertEqual(w.running(name), 1)
        w.call("LEASE", name="two", holder="admin", flags=LOOK, ttl_ms=60000)
        w.script("RESET", "once fail 5 destroy not now")
        w.libvirt(True)
        until(lambda: (w.running("one"), w.running("two")) == (0, 0))
        self.assertEqual((w.state("one"), w.state("two")), ("BROKEN", "MAINTENANCE"))
        self.assertTrue(w.has("run", "one") and w.has("run", "two"), "their overlays are for an admin to look at")
        until(lambda: "halted" in [e["kind"] for e in w.history(name="one")])  # after the result, which comes after the act
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        self.assertEqual(w.running("one"), 2)

    def test_watch_dies(self):
        w = self.w
        w.pool_vm("one")
        for how in ("once crash", "once garbage"):
            w.script("WATCH", how)
            until(lambda: "boxery-vm WATCH" in w.log())
            time.sleep(0.3)
        w.script("WATCH", "once fail 12 watch no memory left")
        until(lambda: "boxery-vm WATCH has ended: no memory left; again in" in w.log())
        w.stop_domain("one")
        until(lambda: w.running("one") == 2)

    def test_removal(self):
        w = self.w
        w.pool_vm("one", "two")
        lease = w.lease(name="one")["lease"]
        self.refused(16, "is leased", w.call, "POOL_REMOVE", name="one")
        w.call("POOL_REMOVE", name="one", flags=FORCE)
        self.assertEqual(list(w.vms()), ["two"])
        self.assertEqual(w.running("one"), 0)
        self.refused(114, "ended", w.call, "RELEASE", lease=lease)
        w.script("REMOVE", "once fail 30 disk the image folder is read-only")
        self.refused(30, "read-only", w.call, "POOL_REMOVE", name="two")
        w.await_state("two", "READY")
        w.call("POOL_REMOVE", name="two")
        self.assertEqual(w.vms(), {})
        w.pool_vm("one")  # the name is free again

    def test_removal_goes_on_when_nobody_waits(self):
        w = self.w
        w.pool_vm("one")
        w.script("REMOVE", "hang")
        w.client().send("POOL_REMOVE", name="one")
        until(lambda: w.ops("REMOVE"))
        w.kill()
        w.script("REMOVE", "fail 5 disk stuck")
        w.start()
        until(lambda: len(w.ops("REMOVE")) >= 6)
        self.assertEqual((w.vms()["one"]["work"], w.running("one")), ("REMOVE", 0))
        self.assertEqual((w.vms()["one"]["step"], w.vms()["one"]["reason"]), ("remove", "stuck"))
        self.assertEqual(w.log().count("cannot be removed: stuck"), 1)
        self.assertEqual([e["text"] for e in w.history(name="one") if e["kind"] == "remove"], ["stuck"])
        w.script("REMOVE", "slow 300")
        w.call("POOL_REMOVE", name="one")  # joins it
        self.assertEqual(w.vms(), {})

    def test_who_waits_for_a_vm_that_is_removed(self):
        w = self.w
        w.new("one")
        w.script("START", "hang")
        c = w.client()
        seq = c.send("POOL_ADD", name="one", flags=WAIT)
        w.await_state("one", "STARTING")
        w.call("POOL_REMOVE", name="one", flags=FORCE)
        self.refused(2, "one was removed while it was waited for", c.reply, seq)

    def test_nothing_is_made_from_what_is_removed(self):
        w = self.w
        w.pool_vm("one")
        w.script("REMOVE", "slow 500")
        c = w.client()
        seq = c.send("POOL_REMOVE", name="one")
        until(lambda: w.ops("REMOVE"))
        self.refused(16, "one is being removed", w.call, "POOL_ADD", name="one", count=3)
        c.reply(seq)
        self.assertEqual(w.vms(), {})

    def test_removal_of_broken(self):
        w = self.w
        w.pool_vm("one")
        w.script("RESET", "fail 5 destroy no")
        w.call("RELEASE", lease=w.lease()["lease"])
        w.await_state("one", "BROKEN")
        w.call("POOL_REMOVE", name="one")
        self.assertEqual(w.vms(), {})

    def test_subscriber(self):
        w = self.w
        c = w.client()
        c.call("SUBSCRIBE")
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.call("RELEASE", lease=lease)
        w.await_state("one", "READY")
        c.send("HELLO")
        c.reply(c.seq)
        states = [STATES[e["to"]]
                  for e in c.events]
        self.assertEqual(states, ["ADDING", "RESETTING", "COLD", "STARTING", "READY", "LEASED", "RESETTING", "COLD",
                                  "STARTING", "READY"])
        self.assertEqual({e["lease"] for e in c.events[5:8]}, {lease})

    def test_slow_subscriber_is_dropped(self):
        w = self.w
        slow = w.client()
        slow.call("SUBSCRIBE")
        w.pool_vm("one", "two")
        end = time.monotonic() + 30
        while "does not read fast enough" not in w.log() and time.monotonic() < end:
            w.call("RELEASE", lease=w.lease(wait_ms=5000)["lease"])
        self.assertIn("does not read fast enough", w.log())
        with self.assertRaises(Gone):
            while True:
                slow.receive()

    def test_plain(self):
        w = self.w
        w.new("mine", cpus=1, memory_mib=512, disk_gib=5)
        c = w.client()
        r = c.call("START", name="mine")
        self.assertEqual((r["address"], r["name"]), ("127.77.0.10", "mine"))
        self.assertTrue(any("begin" in p for p in c.progress), c.progress)
        self.assertNotIn("\x1b", "".join(c.progress))
        self.refused(114, "runs already", w.call, "START", name="mine")
        self.refused(16, "is running", w.call, "POOL_ADD", name="mine")
        self.refused(16, "is running", w.call, "REMOVE", name="mine")
        self.refused(16, "in no pool", w.lease, name="mine")
        w.stop_domain("mine")  # its guest powers off
        until(lambda: not w.vms()["mine"]["running"])
        w.call("START", name="mine")
        self.assertEqual(w.vms()["mine"]["generation"], 2)
        w.call("STOP", name="mine")
        self.assertEqual(w.running("mine"), 0)
        w.script("START", "fail 5 agent no")
        self.refused(5, "no", w.call, "START", name="mine")
        self.assertEqual(w.state("mine"), "PLAIN")
        w.script("START", None)
        w.call("START", name="mine")
        w.call("REMOVE", name="mine", flags=FORCE)
        self.assertEqual((w.vms(), w.running("mine")), ({}, 0))

    def test_failed_new_leaves_nothing(self):
        w = self.w
        self.refused(2, "no such base image", w.call, "NEW", name="one", image="other")
        self.assertEqual(w.vms(), {})
        w.script("NEW", "crash")
        self.refused(5, "signal 9", w.new, "one")
        self.assertEqual(w.vms(), {})
        w.script("NEW", "late")
        self.refused(5, "without a result", w.new, "one")
        self.assertEqual((w.vms(), w.has("settings", "one")), ({}, False))
        w.script("REMOVE", "fail 5 disk stuck")
        self.refused(5, "could not be removed", w.new, "one")
        self.assertEqual(w.state("one"), "PLAIN")
        w.script("REMOVE", None)
        w.call("REMOVE", name="one")

    def test_new_leaves_what_was_there(self):
        """A database that does not know a VM whose files are there: neither taken over nor removed."""
        w = self.w
        w.write("world/settings/one", "5 1\n")
        w.write("world/clean/one", "1 0\n")
        self.refused(17, "there already", w.new, "one")
        self.refused(2, "no such base image", w.call, "NEW", name="one", image="other")
        w.script("NEW", "crash")
        self.refused(5, "signal 9", w.new, "one")
        w.script("NEW", "once fail 17 new slot 1 is taken")
        self.refused(17, "slot 1", w.new, "one")
        self.assertEqual((w.vms(), w.has("settings", "one"), w.has("clean", "one")), ({}, True, True))
        self.assertFalse([x for x in w.lines("ops.log") if x.startswith("REMOVE")])

    def test_failed_capture(self):
        w = self.w
        w.new("one")
        w.script("CAPTURE", "once fail 28 hash no space left")
        self.refused(5, "no space left", w.call, "POOL_ADD", name="one", flags=WAIT)
        self.assertEqual(w.state("one"), "PLAIN")
        w.call("POOL_ADD", name="one", pool="other")
        self.assertEqual(w.vms()["one"]["pool"], "other")
        w.await_state("one", "READY")
        self.refused(2, "pool default has no VM", w.lease)
        w.lease(pool="other")


class Deliver(Case):
    def setUp(self):
        super().setUp()
        self.w.start()
        self.w.pool_vm("one")

    def test_failures_after_the_commit_reset(self):
        for i, (how, code, pattern) in enumerate((("fail 111 host key differs", 111, "host key"), ("noresult", 5, "status 3"),
                                                  ("sentfail 110 no answer", 110, "no answer"), ("crash", 5, "signal 9"),
                                                  ("garbage", 74, "cannot be understood"), ("late", 5, "without a result"),
                                                  ("hang", 110, "was killed"))):
            with self.subTest(how):
                self.w.script("deliver", how)
                lease = self.w.lease()["lease"]
                self.refused(code, pattern, self.w.deliver, lease)
                until(lambda: self.w.running("one") == i + 2)
                self.w.await_state("one", "READY")
                self.assertTrue(any("DOUBT" == e["kind"] for e in self.w.history(lease=lease)))

    def test_failures_before_the_commit_keep_the_lease(self):
        w = self.w
        lease = w.lease()["lease"]
        for how, code in (("fail 95 filter not in force", 95), ("noresult", 5), ("hang", 110)):
            w.script("FILTER", how)
            self.refused(code, "filter is not in force", w.deliver, lease)
            self.assertEqual(w.state("one"), "LEASED")
        w.script("FILTER", None)
        w.guests.close()
        self.refused(111, "cannot connect", w.deliver, lease)
        self.assertEqual((w.state("one"), w.delivered()), ("LEASED", []))

    def test_one_secret_per_life(self):
        w = self.w
        lease = w.lease()["lease"]
        w.script("deliver", "slow 300")
        c = w.client()
        fd = memfd(b"x" * 100)
        seq = c.send("DELIVER", fd, lease=lease)
        time.sleep(0.1)
        self.refused(114, "one secret", w.deliver, lease)
        c.reply(seq)
        self.refused(114, "one secret", w.deliver, lease)
        w.call("JOB_SEEN", lease=lease, text="j")
        self.refused(114, "one secret", w.deliver, lease)
        self.assertEqual(w.delivered(), [("one", 1)])

    def test_secret_must_be_sealed_and_of_size(self):
        w = self.w
        lease = w.lease()["lease"]
        self.refused(74, ".", w.deliver, lease, seal=False)
        self.refused(22, "at least", w.deliver, lease, data=b"short")
        self.refused(74, ".", w.deliver, lease, data=b"x" * 70000)
        self.refused(22, "sealed memfd", w.call, "DELIVER", lease=lease)
        fd = memfd(b"x" * 100)
        self.refused(22, "no file", w.call, "RELEASE", fd, lease=lease)
        self.assertEqual(w.state("one"), "LEASED")

    def test_end_during_delivery(self):
        w = self.w
        w.script("deliver", "hang")
        for end in ("stop", "release"):
            generation = w.running("one")
            lease = w.lease(wait_ms=5000)["lease"]
            c = w.client()
            seq = c.send("DELIVER", memfd(b"x" * 100), lease=lease)
            until(lambda: w.state("one") == "DELIVERED")
            if end == "stop":
                w.stop_domain("one")
            else:
                w.call("RELEASE", lease=lease)
            self.refused(125, "given up", c.reply, seq)
            until(lambda: w.running("one") == generation + 1)
        until(lambda: len(w.children(spares=False)) == 1)

    def test_client_leaves_during_delivery(self):
        w = self.w
        w.script("deliver", "slow 200")
        lease = w.lease()["lease"]
        c = w.client()
        c.send("DELIVER", memfd(b"x" * 100), lease=lease)
        until(lambda: w.state("one") == "DELIVERED")
        c.close()
        until(lambda: w.delivered() == [("one", 1)])
        time.sleep(0.2)
        self.assertEqual(w.state("one"), "DELIVERED")
        self.assertTrue(any(e["kind"] == "delivered" for e in w.history(lease=lease)))

    def test_job_seen_before_delivery(self):
        lease = self.w.lease()["lease"]
        self.refused(22, "only after the delivery", self.w.call, "JOB_SEEN", lease=lease, text="j")


class NoIsolation(Case):
    host_env = "BOXERY_NET_ISOLATION=off\n"

    def test_nothing_is_delivered(self):
        w = self.w.start()
        w.pool_vm("one")
        lease = w.lease()["lease"]
        self.refused(1, "BOXERY_NET_ISOLATION is off", w.deliver, lease)
        self.assertEqual((w.state("one"), w.delivered()), ("LEASED", []))


if __name__ == "__main__":
    main()
