"""kill -9 of the keeper at every step that pool/killpoints.h names, then a restart: nothing is lost, nothing is done twice.

Each scenario is written as a good client would be: when the keeper is gone it starts another, looks at what became of its
request, and goes on. A kill point that a scenario never reaches is a failure too, so the table stays whole.
"""
import os
import re

from keeper_world import BIND, FORCE, LOOK, REPLY, RUNNING, WAIT, Case, Gone, Refused, main, memfd, time, until

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGhYQ0hhdGVzdGtleXRlc3RrZXl0ZXN0a2V5dGVzdA me"
HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../pool/killpoints.h")


class Driver:
    """The world's calls, through deaths of the keeper."""

    def __init__(self, w):
        self.w, self.deaths, self.point = w, 0, None

    def revive(self):
        if self.w.keeper.poll() is None:
            # It closed a connection and lives: that would be a bug, and not the one that was ordered.
            time.sleep(0.2)
        assert self.w.keeper.poll() == -9, f"the keeper ended with {self.w.keeper.poll()}"
        self.w.kill()
        self.deaths += 1
        self.w.start()

    def call(self, kind, secret=None, **values):
        """The reply, or None when the keeper died over it and lives again."""
        try:
            return self.w.call(kind, secret, **values)
        except (Gone, ConnectionError):
            self.revive()
            return None

    def vms(self):
        while True:
            a = self.call("LIST")
            if a:
                return {v["name"]: v for v in a["document"]["vms"]}

    def lease_row(self, lease):
        while True:
            a = self.call("LEASES")
            if a:
                return {x["lease"]: x for x in a["document"]["leases"]}.get(lease)

    def until_state(self, name, *states):
        until(lambda: self.vms().get(name, {}).get("state") in states)

    # steps of a scenario, each repeated until it has happened
    def make(self, name):
        while self.call("NEW", name=name, image="debian-12") is None:
            if name in self.vms():  # half made, perhaps
                self.call("REMOVE", name=name, flags=FORCE)

    def add(self, name):
        while self.vms()[name]["state"] == "PLAIN":
            try:
                self.call("POOL_ADD", name=name, flags=WAIT)
            except Refused as e:
                assert e.code == -16, e
        self.until_state(name, "READY")

    def lease(self, **values):
        while True:
            a = self.call("LEASE", holder="tester", pool="default", ttl_ms=60000, wait_ms=8000, **values)
            if a:
                return a["lease"]

    def release(self):
        """Whatever is leased, until nothing is."""
        while (lease := self.vms()["one"]["lease"]):
            try:
                self.call("RELEASE", lease=lease)
            except Refused as e:
                assert e.code == -114, e
                time.sleep(0.02)

    def deliver(self, lease):
        """True when the guest has it and the lease goes on; False when the lease has ended."""
        try:
            if self.call("DELIVER", memfd(b"x" * 100), lease=lease):
                return True
        except Refused as e:
            assert e.code in (-114, -116), e
        row = None
        until(lambda: (row := self.lease_row(lease)) is None or row["state"] in ("DELIVERED", "RESETTING", "LEASED"))
        row = self.lease_row(lease)
        return bool(row and row["open"] and row["state"] == "DELIVERED")

    def begin_job(self):
        """Whatever is killed meanwhile: in the end a lease goes on with what it was given."""
        while not self.deliver(self.lease()):
            pass

    def patch(self, name, image):
        """Asked for once, unless the keeper died before it was written down; until it is over, one way or the other."""
        while not any(v["patch"] or v["image"] == image or v["patch_failed"] for v in self.vms().values() if v["name"] == name):
            try:
                self.call("POOL_PATCH", name=name, image=image)
            except Refused as e:
                assert e.code in (-16, -114), e
        until(lambda: not self.vms()[name]["patch"])
        self.until_state(name, "READY")
        until(lambda: not self.vms()[name]["work"])

    def job(self):
        """One job, from lease to READY again; as often as it takes until one was seen to its end."""
        while True:
            lease = self.lease()
            if not self.deliver(lease):
                continue
            generation = self.vms()["one"]["generation"]
            try:
                self.call("JOB_SEEN", lease=lease, text="build")
            except Refused as e:
                assert e.code == -114, e
                continue
            if self.w.running("one") == generation:
                self.w.stop_domain("one")
            self.until_state("one", "READY")
            return


class Kill(Case):
    def run_one(self, point, scenario, armed):
        w, d = self.w, Driver(self.w)
        d.point = point
        w.start(kill=point if armed else None)
        scenario(d)
        until(lambda: all(v["state"] in ("READY", "PLAIN") and not v["work"] for v in d.vms().values()))
        for name, v in d.vms().items():
            if v["state"] == "READY":
                self.assertEqual(w.running(name), v["generation"])
                self.assertEqual((v["lease"], v["attempts"]), ("", 0))
        self.assertEqual(d.deaths, 1, f"{point}: the keeper was killed {d.deaths} times")
        self.assertEqual([x for x in w.leases().values() if x["open"]], [])
        self.assertEqual(w.delivered(), sorted(set(w.delivered())))

    def each(self, scenario, *points, armed=True):
        for point in points:
            with self.subTest(point):
                self.run_one(point, scenario, armed)
                self.w.check_invariants(self)
                self.assertEqual(self.w.end(), 0)
                self.w.check_database(self)
                self.w.close()
                type(self.w).__init__(self.w, self.host_env)
        Kill.covered.update(p.split("/")[0] for p in points)

    covered = set()

    @staticmethod
    def around(*happenings):
        return [f"{when}-{h}" for h in happenings for when in ("before", "after")]

    def test_a_job(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            d.job()
            d.job()
        self.each(scenario, "new-inserted", "new-made", "filter-checked", "connected",
                  "connected/2", "deliver-spawned", "deliver-result", "deliver-recorded", "wake-recorded", "wake-recorded/2",
                  "spawned-WAKE", "result-WAKE", "result-WAKE/2", "spawned-NEW", "spawned-START",
                  "spawned-RESET", "spawned-CAPTURE", "spawned-FILTER", "result-NEW", "result-START", "result-RESET",
                  "result-CAPTURE", "result-FILTER", "spawned-RESET/2", "result-START/2", "spawned-LIST", "result-LIST",
                  *self.around("ADD", "MAINTAINED", "RESET_DONE", "START", "STARTED", "LEASE", "DELIVER", "JOB_SEEN", "STOPPED",
                               "RESET_DONE/2", "START/2", "DELIVER/2"))

    def test_a_job_of_one_that_runs(self):
        def scenario(d):
            d.call("POOL_SET", pool="default", standby=RUNNING)
            d.make("one")
            d.add("one")
            d.job()
            d.until_state("one", "READY")
        self.each(scenario, "life-recorded", "life-recorded/2", "after-LEASE")

    def test_wake_failed(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            self.w.script("WAKE", "once fail 5 agent no")
            d.lease()  # by itself, of the life that follows
            self.assertGreater(d.vms()["one"]["generation"], 1)
            d.release()
        self.each(scenario, *self.around("WAKE_FAILED"))

    def test_woken_and_given_back(self):
        """Without a delivery: whatever the keeper dies over, the lease is nobody's, and ends."""
        def scenario(d):
            d.make("one")
            d.add("one")
            d.lease()
            d.release()
        self.each(scenario, "result-WAKE", "wake-recorded")

    def test_release(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            lease = d.lease()
            try:
                while d.call("RELEASE", lease=lease) is None:
                    pass
            except Refused as e:
                self.assertEqual(e.code, -114)
            d.until_state("one", "READY")
        self.each(scenario, *self.around("RELEASE"))

    def test_expiry(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            d.call("LEASE", holder="tester", pool="default", ttl_ms=100)
            until(lambda: self.w.keeper.poll() is not None)
            d.revive()
            until(lambda: self.w.running("one") == 2)
            d.until_state("one", "READY")
        self.each(scenario, *self.around("EXPIRED"))

    def test_lost_holder(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            c = self.w.client()
            self.w.lease(client=c, flags=BIND)
            c.close()
            until(lambda: self.w.keeper.poll() is not None)
            d.revive()
            until(lambda: self.w.running("one") == 2)
            d.until_state("one", "READY")
        self.each(scenario, *self.around("HOLDER_LOST"))

    def test_doubt(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            self.w.script("deliver", "once crash")
            d.deliver(d.lease())
            d.until_state("one", "READY")
            d.job()
        self.each(scenario, *self.around("DOUBT"))

    def test_failures(self):
        def scenario(d):
            d.make("one")
            self.w.script("CAPTURE", "once fail 5 hash no")
            while d.vms()["one"]["state"] == "PLAIN" and not self.w.ops("CAPTURE"):
                try:
                    d.call("POOL_ADD", name="one")
                except Refused as e:
                    self.assertIn(e.code, (-5, -16))
            d.until_state("one", "PLAIN", "READY")
            self.w.script("START", "once fail 5 agent no")
            d.add("one")
            self.w.script("RESET", "fail 5 destroy no")
            lease = d.lease()
            try:
                d.call("RELEASE", lease=lease)
            except Refused as e:
                self.assertEqual(e.code, -114)
            d.until_state("one", "BROKEN")
            self.w.script("RESET", None)
            while d.vms()["one"]["state"] == "BROKEN":
                d.call("POOL_REPAIR", name="one")
            d.until_state("one", "READY")
        self.each(scenario, *self.around("MAINTAIN_FAILED", "START_FAILED", "RESET_FAILED", "RESET_FAILED/2", "RESET_FAILED/3",
                                         "REPAIR"))

    def test_removal(self):
        """Asked for once: the next keeper finishes it, also when half of the VM is gone already."""
        def scenario(d):
            d.call("POOL_SET", pool="default", standby=RUNNING)  # so that it has a host key to be forgotten
            d.make("one")
            d.add("one")
            if d.point == "result-REMOVE":
                self.w.script("REMOVE", "once half")
            d.call("POOL_REMOVE", name="one")
            until(lambda: "one" not in d.vms())
            self.assertEqual([f for f in ("domains", "settings", "clean", "run", "broken") if self.w.has(f, "one")], [])
            self.assertEqual(os.listdir(self.w.path("config/host-keys")), [])
            d.make("one")  # its name is free
        self.each(scenario, "removing", "removed", "spawned-REMOVE", "result-REMOVE", *self.around("DOUBT"))

    def test_removal_of_plain(self):
        def scenario(d):
            d.make("mine")
            while not d.vms()["mine"]["running"]:
                try:
                    d.call("START", name="mine")
                except Refused as e:
                    self.assertIn(e.code, (-114, -16))
            while self.w.running("mine"):
                d.call("STOP", name="mine")
            d.call("REMOVE", name="mine")
            until(lambda: "mine" not in d.vms())
        self.each(scenario, "removing", "removed", "spawned-STOP", "result-STOP", *self.around("START"))

    def test_more_of_one(self):
        def scenario(d):
            d.make("one")
            while [v["state"] for v in d.vms().values()] != ["READY"] * 3:
                try:
                    d.call("POOL_ADD", name="one", count=3, flags=WAIT)
                except Refused as e:
                    self.assertIn(e.code, (-16, -114))
                    time.sleep(0.05)
            self.assertEqual(sorted(d.vms()), ["one", "one-2", "one-3"])
            self.assertEqual(len([x for x in self.w.ops("CAPTURE") if x[3] == "ok"]), 1)
        self.each(scenario, "other-inserted", "other-inserted/2", "before-ADD/2", "after-ADD/2", "spawned-NEW/2", "result-NEW/2",
                  "before-MAINTAINED/2", "after-MAINTAINED/2")

    def test_granted(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            a = None
            while a is None:
                a = d.call("LEASE", holder="tester", pool="default", ttl_ms=60000, wait_ms=8000, text=KEY)
            self.assertEqual(self.w.lines("grants.log")[-1], f"one {a['generation']} {KEY}")
            self.assertEqual(d.vms()["one"]["state"], "DELIVERED")
            d.call("RELEASE", lease=a["lease"])
            d.until_state("one", "READY")
            self.assertEqual(self.w.running("one"), a["generation"] + 1)
        self.each(scenario, "granted", "spawned-GRANT", "result-GRANT", *self.around("DELIVER"))

    def test_kept(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            d.begin_job()
            d.call("POOL_KEEP", name="one", ttl_ms=60000)
            self.w.stop_domain("one")
            d.until_state("one", "KEPT")
            until(lambda: not d.vms()["one"]["work"])
            self.assertTrue(self.w.has("run", "one"))
            d.call("POOL_KEEP", name="one", ttl_ms=1)
            d.until_state("one", "READY")
            self.assertEqual(self.w.running("one"), 2)
        self.each(scenario, "halted", *self.around("KEEP", "DEADLINE"))

    def test_looked_at(self):
        def scenario(d):
            d.make("one")
            self.w.script("START", "late")
            try:
                d.call("POOL_ADD", name="one", flags=WAIT)
            except Refused as e:
                self.assertEqual(e.code, -5)
            d.until_state("one", "BROKEN")
            self.assertTrue(self.w.has("broken", "one"))
            self.w.script("START", None)
            while d.vms()["one"]["state"] == "BROKEN":
                d.call("LEASE", holder="tester", name="one", ttl_ms=60000, flags=LOOK)
            self.assertTrue(self.w.has("broken", "one"))
            d.call("RELEASE", lease=d.vms()["one"]["lease"])
            d.until_state("one", "READY")
            self.assertFalse(self.w.has("broken", "one"))
        self.each(scenario, *self.around("INSPECT"))

    def bases(self, name):
        return [x.split()[2] for x in self.w.lines("bases.log") if x.split()[0] == name]

    def test_patch(self):
        """The old clean state or the new one, and in the end the new one."""
        def scenario(d):
            d.make("one")
            d.add("one")
            d.patch("one", "debian-13")
            v = d.vms()["one"]
            self.assertEqual((v["image"], v["patch_failed"]), ("debian-13", ""))
            self.assertEqual(self.bases("one")[-1], "debian-13")
            d.job()
            d.until_state("one", "READY")
            self.assertFalse(self.w.has("before", "one"))
            self.assertEqual(self.bases("one")[-1], "debian-13")
        self.each(scenario, "patch-wished", "patched", "spawned-PATCH", "result-PATCH", "spawned-SETTLE", "result-SETTLE",
                  "spawned-RESET/2", "result-RESET/2", "spawned-START/2", "result-START/2",
                  *self.around("MAINTAIN", "MAINTAINED/2", "RESET_DONE/2", "START/2", "STARTED/2"))

    def test_patch_of_a_leased_one(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            d.begin_job()
            while not d.vms()["one"]["patch"]:
                d.call("POOL_PATCH", name="one", image="debian-13")
            self.assertEqual(self.w.ops("PATCH"), [])
            d.release()
            d.patch("one", "debian-13")
            self.assertEqual((d.vms()["one"]["image"], self.bases("one")[-1]), ("debian-13", "debian-13"))
        self.each(scenario, "patch-wished", *self.around("RELEASE", "RESET_DONE/2", "MAINTAIN"))

    def test_patch_that_fails(self):
        """The old clean state, and the sentence."""
        def scenario(d):
            d.make("one")
            d.add("one")
            self.w.script("START", "bad debian-13")
            d.patch("one", "debian-13")
            v = d.vms()["one"]
            self.assertEqual((v["image"], v["patch_failed"]), ("debian-12", "agent: it does not boot"))
            self.assertFalse(self.w.has("before", "one"))
            self.assertEqual(self.bases("one")[-1], "debian-12")
        self.each(scenario, "result-PATCH", "result-START/2", "spawned-RESET/3", "result-RESET/3", "spawned-START/3",
                  *self.around("MAINTAIN_FAILED", "RESET_DONE/3"))

    def test_short_life(self):
        def scenario(d):
            d.make("one")
            d.add("one")
            d.job()  # this one has lived
            self.w.stop_domain("one")
            until(lambda: self.w.keeper.poll() is not None)
            d.revive()
            until(lambda: self.w.running("one") == 3)
            d.until_state("one", "READY")
        self.each(scenario, *self.around("SHORT_LIFE"))

    def test_start_up(self):
        """Killed while it puts right what an earlier death left."""
        def scenario(d):
            w = self.w
            w.kill()
            w.start(kill="after-LEASE")
            d.make("one")
            d.add("one")
            with self.assertRaises(Gone):
                w.lease()
            w.kill()
            w.start(kill=d.point, wait=False)
            self.assertEqual(w.keeper.wait(5), -9)
            d.revive()
            d.until_state("one", "READY")
            self.assertEqual(w.running("one"), 2)
        self.each(scenario, *self.around("INTERRUPTED"), armed=False)


class ZTable(Case):
    """Runs last (classes in name order): every point of the header was used."""

    def test_table(self):
        with open(HEADER, encoding="utf-8") as f:
            named = re.findall(r"^ \*   ([a-z]+(?:-[a-zA-Z]+)?) ", f.read(), re.M)
        self.assertIn("deliver-result", named)
        missing = [n for n in named if n not in ("before-HAPPENING", "spawned-VERB", "result-VERB") and n not in Kill.covered]
        if len(Kill.covered) > 20:  # not when single tests were asked for
            self.assertEqual(missing, [])
        self.assertEqual(REPLY, 65)


if __name__ == "__main__":
    main()
