"""Pools: several VMs of one clean state, limits, a host that is short of something, what others do to VMs behind our back."""
import json
import os
import subprocess

from keeper_world import FORCE, LOOK, Case, Refused, WAIT, main, time, until

HOST = os.environ["BOXERY_HOST"]
NONE = 0xFFFFFFFF


class Count(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def states(self):
        return {n: v["state"] for n, v in self.w.vms().items()}

    def test_many_from_one(self):
        w = self.w
        w.new("one", cpus=1, memory_mib=512, disk_gib=5)
        c = w.client()
        c.call("POOL_ADD", name="one", pool="many", count=4, flags=WAIT)
        vms = w.vms()
        self.assertEqual({n: v["state"] for n, v in vms.items()}, dict.fromkeys(("one", "one-2", "one-3", "one-4"), "READY"))
        for name in ("one-2", "one-3", "one-4"):
            v = vms[name]
            self.assertEqual((v["pool"], v["clean_of"], v["cpus"], v["memory_mib"], v["disk_gib"], v["image"]),
                             ("many", "one", 1, 512, 5, "debian-12"))
        self.assertEqual(len({v["slot"] for v in vms.values()}), 4)
        self.assertEqual([x[1] for x in w.ops("CAPTURE")], ["one", "one"])  # begin and ok: once
        self.assertTrue(any("one-4 is READY" in p for p in c.progress), c.progress)
        # More of it, from any of them; what is there already is no reason to refuse.
        w.call("POOL_ADD", name="one", count=5, flags=WAIT)
        self.refused(114, "in pool many already", w.call, "POOL_ADD", name="one", count=5)
        w.call("POOL_ADD", name="one-5", count=2, flags=WAIT)
        self.assertEqual(w.vms()["one-5-2"]["clean_of"], "one")
        self.refused(22, "is in pool many", w.call, "POOL_ADD", name="one", pool="default", count=9)
        for _ in range(6):
            w.lease(pool="many")
        self.refused(11, "6 LEASED", w.lease, pool="many")
        text = self.refused(16, "while others start from its clean state", w.call, "POOL_REMOVE", name="one", flags=FORCE)
        self.assertIn("one-2, one-3, one-4, one-5, one-5-2", text)
        for name in ("one-2", "one-3", "one-4", "one-5", "one-5-2", "one"):
            w.call("POOL_REMOVE", name=name, flags=FORCE)
        self.assertEqual((w.vms(), os.listdir(w.path("world/settings"))), ({}, []))

    def test_refused_before_anything_is_made(self):
        w = self.w
        w.new("one")
        w.new("one-3")
        self.refused(17, "one-3 already, with a disk of its own", w.call, "POOL_ADD", name="one", count=3)
        self.refused(22, "1 to 240", w.call, "POOL_ADD", name="one", count=241)
        w.new("a" * 39)
        self.refused(22, "too long", w.call, "POOL_ADD", name="a" * 39, count=2)
        self.assertEqual(set(self.states().values()), {"PLAIN"})
        w.call("POOL_ADD", name="one", count=2, flags=WAIT)
        self.assertEqual((self.states()["one-2"], self.states()["one-3"]), ("READY", "PLAIN"))

    def test_name_taken_while_captured(self):
        """Somebody makes one-2 for himself, or for another pool, while the clean state of one is made."""
        w = self.w
        for pool in ("", "other"):
            name = "one" if not pool else "two"
            w.new(name)
            w.script("CAPTURE-" + name, "slow 1200")
            c = w.client()
            seq = c.send("POOL_ADD", name=name, count=2, flags=WAIT)
            w.await_state(name, "ADDING")
            w.new(name + "-2")
            if pool:
                w.call("POOL_ADD", name=name + "-2", pool=pool)
            self.assertEqual(w.state(name), "ADDING")
            self.refused(17, name + "-2 already, with a disk of its own", c.reply, seq)
            v = w.vms()[name + "-2"]
            self.assertEqual((v["pool"], v["clean_of"]), (pool, ""))
        self.assertFalse([x for x in w.ops("CAPTURE") if x[1] == "one-2"])

    def test_one_of_them_fails(self):
        w = self.w
        w.new("one")
        w.script("NEW-one-2", "fail 28 settings no room")
        self.refused(5, "one-2 did not join its pool: no room", w.call, "POOL_ADD", name="one", count=3)
        until(lambda: self.states() == {"one": "READY", "one-2": "PLAIN", "one-3": "READY"})
        self.refused(22, "no disk of its own", w.call, "START", name="one-2")
        self.refused(16, "others start from", w.call, "POOL_REMOVE", name="one")
        w.script("NEW-one-2", None)
        w.call("POOL_ADD", name="one-2", flags=WAIT)
        self.assertEqual(w.vms()["one-2"]["pool"], "default")
        w.script("START-one-4", "fail 5 agent no")
        self.refused(5, "one-4 is BROKEN", w.call, "POOL_ADD", name="one", count=4, flags=WAIT)

    def test_client_leaves(self):
        w = self.w
        w.new("one")
        w.script("CAPTURE", "slow 200")
        c = w.client()
        c.send("POOL_ADD", name="one", count=3, flags=WAIT)
        w.await_state("one", "ADDING")
        c.close()
        until(lambda: self.states() == dict.fromkeys(("one", "one-2", "one-3"), "READY"))

    def test_settings(self):
        w = self.w
        w.new("one")
        w.call("POOL_SET", pool="default", set_cpus=2, set_memory_mib=700, disk_mib_per_s=50, disk_iops=900, net_kib_per_s=4000)
        w.call("POOL_ADD", name="one", flags=WAIT)
        self.assertEqual(w.lines("limits.log")[-1], "one 2 700 50 900 4000")
        w.call("POOL_SET", pool="default", set_memory_mib=NONE, disk_iops=100)
        w.kill()
        w.start()  # not forgotten
        w.call("RELEASE", lease=w.lease(wait_ms=5000)["lease"])
        until(lambda: w.running("one") == 2)
        self.assertEqual(w.lines("limits.log")[-1], "one 2 0 50 100 4000")
        pools = w.call("POOLS")["document"]["pools"]
        w.await_state("one", "READY")
        self.assertEqual([(p["name"], p["vms"], p["cpus"], p["memory_mib"], p["disk_iops"], p["broken"]) for p in pools],
                         [("default", 1, 2, 0, 100, 0)])
        for pattern, values in (("CPUs 65: 1 to 64", {"set_cpus": 65}), ("MiB of memory 9: 64 to", {"set_memory_mib": 9}),
                                ("MiB of memory 2000000", {"set_memory_mib": 2000000}),
                                ("operations per second", {"disk_iops": 2000000}),
                                ("reserved for github-runner 5000", {"reserve_service": 5000}), ("pool name", {"pool": "A/b"})):
            self.refused(22, pattern, w.call, "POOL_SET", **{"pool": "default", **values})
        w.call("POOL_SET", pool="default", set_cpus=NONE, disk_mib_per_s=NONE, disk_iops=NONE, net_kib_per_s=NONE)
        w.call("POOL_SET", pool="later", reserve_local=1)
        w.new("plain")
        self.assertEqual([(p["name"], p["vms"]) for p in w.call("POOLS")["document"]["pools"]], [("later", 0), ("default", 1)])

    def test_pools_are_bounded(self):
        w = self.w
        c = w.client()
        for i in range(240):
            c.call("POOL_SET", pool=f"p{i}", set_cpus=1)
        self.refused(28, "240 pools", c.call, "POOL_SET", pool="more", set_cpus=1)
        c.call("POOL_SET", pool="p7", set_cpus=2)
        c.call("POOL_SET", pool="p7", set_cpus=NONE)
        c.call("POOL_SET", pool="more", set_cpus=1)


class Host(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def test_memory(self):
        w = self.w
        w.memory(6000)
        w.pool_vm("one", "two")  # 2048 each
        w.new("three")
        c = w.client()
        seq = c.send("POOL_ADD", name="three", flags=WAIT)
        v = w.await_state("three", "COLD")
        until(lambda: w.vms()["three"]["step"] == "host")
        v = w.vms()["three"]
        self.assertEqual(v["attempts"], 0)
        self.assertRegex(v["reason"], "the host has 6000 MiB of memory: 2 VMs that run may use 4096 of it, this one needs 2048")
        self.refused(11, "three is not started: the host has 6000 MiB", w.lease, name="three")
        w.new("plain")
        self.refused(12, "the host has 6000 MiB", w.call, "START", name="plain")
        time.sleep(0.5)
        self.assertEqual(w.log().count("is not started now"), 1)
        self.assertEqual([e["kind"] for e in w.history(name="three")].count("host"), 1)
        w.memory(6000, 1000)  # something else uses it
        w.call("POOL_REMOVE", name="two")
        until(lambda: "1000 MiB of memory free" in w.vms()["three"]["reason"])
        w.memory(6000)
        c.reply(seq)
        v = w.vms()["three"]
        self.assertEqual((v["state"], v["step"], v["reason"]), ("READY", "", ""))

    def test_those_that_are_starting_count(self):
        w = self.w
        w.memory(100000, 4000)
        w.script("START", "slow 300")
        w.new("one")
        w.new("two")
        clients = [w.client(), w.client()]
        seqs = [c.send("POOL_ADD", name=n, flags=WAIT) for c, n in zip(clients, ("one", "two"))]
        until(lambda: any("those that are starting 2048" in v["reason"] for v in w.vms().values()))
        for c, seq in zip(clients, seqs):
            c.reply(seq)

    def test_pool_memory_counts(self):
        w = self.w
        w.memory(2200)
        w.new("one")
        w.call("POOL_SET", pool="default", set_memory_mib=1000)
        w.call("POOL_ADD", name="one", flags=WAIT)


class TestDriver(Case):
    host_env = "BOXERY_LIBVIRT_URI=test:///default\n"

    def test_no_guests_no_memory(self):
        w = self.w.start()
        w.memory(2200)
        w.pool_vm("one")


class Behind(Case):
    """What others do to VMs behind our back."""

    def setUp(self):
        super().setUp()
        self.w.start()

    def trouble(self, name, text):
        path = self.w.path("world/trouble", name)
        if text is None:
            os.unlink(path)
        else:
            self.w.write("world/trouble/" + name, text + "\n")

    def test_ready_is_never_handed_out(self):
        w = self.w
        w.pool_vm("one", "two")
        time.sleep(0.5)  # no short life
        self.trouble("one", "its overlay run/one.qcow2 is gone")
        until(lambda: w.running("one") != 1)
        self.assertTrue(any(e["kind"] == "DOUBT" and "run/one.qcow2 is gone" in e["text"] for e in w.history(name="one")))
        v = w.await_state("one", "BROKEN", timeout=20)  # it comes back with every life
        self.assertEqual((v["step"], v["reason"].split(": ")[-1]), ("watch", "its overlay run/one.qcow2 is gone"))
        self.assertNotIn("LEASE", [e["kind"] for e in w.history(name="one")])
        self.assertEqual(w.state("two"), "READY")
        self.trouble("one", None)
        w.call("POOL_REPAIR", name="one", flags=WAIT)
        self.assertEqual(w.vms()["one"]["trouble"], "")

    def test_leased_is_taken_back(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        self.trouble("one", "its clean image was changed")
        until(lambda: w.state("one") != "LEASED")
        self.refused(116, "has ended", w.deliver, lease)
        self.trouble("one", None)
        if w.await_state("one", "READY", "BROKEN")["state"] == "BROKEN":
            w.call("POOL_REPAIR", name="one", flags=WAIT)

    def test_a_job_goes_on(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.deliver(lease)
        self.trouble("one", "its domain was edited")
        until(lambda: w.vms()["one"]["trouble"] == "its domain was edited")
        time.sleep(0.5)
        self.assertEqual(w.state("one"), "DELIVERED")
        self.assertEqual(w.log().count("goes on with its job"), 1)
        self.trouble("one", None)
        until(lambda: w.vms()["one"]["trouble"] == "")
        w.stop_domain("one")
        until(lambda: w.running("one") == 2)

    def test_a_stuck_job_does_not(self):
        """QEMU has stopped the guest because the host's disk is full: it would sit there until its time is over."""
        w = self.w
        w.pool_vm("one")
        lease = w.lease()["lease"]
        w.deliver(lease)
        w.call("JOB_SEEN", lease=lease, text="build")
        words = "its guest was stopped by an I/O error; the host's disk may be full"
        self.trouble("one", words)
        until(lambda: w.state("one") != "BUSY")
        self.trouble("one", None)
        ends = [e for e in w.history(lease=lease) if e["kind"] == "DOUBT"]
        self.assertEqual([words in e["text"] for e in ends], [True])
        until(lambda: w.running("one") == 2)

    def test_clean_state_of_one_that_is_off(self):
        w = self.w
        w.pool_vm("one")
        w.memory(512)
        w.stop_domain("one")
        until(lambda: w.state("one") == "COLD")
        time.sleep(0.5)
        os.unlink(w.path("world/clean/one"))
        self.trouble("one", "its disk, vms/one.qcow2: No such file or directory")
        until(lambda: w.vms()["one"]["trouble"])
        v = w.vms()["one"]
        self.assertEqual((v["state"], v["trouble"]), ("COLD", "its clean state is gone: it cannot be started any more"))
        self.assertIn("its clean state is gone", subprocess.run([HOST, "pool", "ls"], env=w.env, capture_output=True, text=True,
                                                                timeout=20, check=True).stdout)

    def test_twins(self):
        w = self.w
        w.pool_vm("one")
        time.sleep(0.5)
        w.write("world/twins/one", "")
        until(lambda: w.running("one") != 1)
        os.unlink(w.path("world/twins/one"))
        self.assertTrue(any("more than one domain runs" in e["text"] for e in w.history(name="one")))
        w.await_state("one", "READY", "BROKEN")

    def test_plain_is_only_named(self):
        w = self.w
        w.new("mine")
        w.call("START", name="mine")
        self.trouble("mine", "its disk is gone")
        until(lambda: w.vms()["mine"]["trouble"] == "its disk is gone")
        self.assertEqual((w.state("mine"), w.running("mine")), ("PLAIN", 1))

    def test_no_clean_state(self):
        """Somebody deleted the clean image: three starts, then it says so."""
        w = self.w
        w.pool_vm("one")
        os.unlink(w.path("world/clean/one"))
        w.call("RELEASE", lease=w.lease()["lease"])
        v = w.await_state("one", "BROKEN")
        self.assertEqual((v["step"], v["reason"]), ("clean", "it has no clean state"))


class Disks(Case):
    def test_doctor_adds_them_up(self):
        w = self.w.start()

        def said():
            checks = json.loads(subprocess.run([HOST, "doctor", "--json"], env=w.env, capture_output=True, text=True, timeout=30,
                                               check=False).stdout)["checks"]
            return [(c["ok"], c["text"]) for c in checks if c["name"] == "pool disks"]
        fs = os.statvfs(w.path("images"))
        total = fs.f_blocks * fs.f_frsize // 2 ** 30  # never all of it is free
        w.new("plain", disk_gib=total)
        self.assertEqual(said(), [])
        w.new("small", disk_gib=1)
        w.call("POOL_ADD", name="small", flags=WAIT)
        self.assertRegex(said()[0][1], r"^1 VMs of pools may write 1024 MiB in all, \d+ MiB are free$")
        w.call("POOL_ADD", name="plain", flags=WAIT)
        ok, text = said()[0]
        self.assertTrue(ok)
        self.assertRegex(text, rf"^2 VMs of pools may write {(total + 1) * 1024} MiB in all, .*; warning: a job that finds the disk full is stopped")


class Slow(Case):
    """One stuck VM never delays another."""

    def test_hanging_everything(self):
        w = self.w.start()
        names = ["bad1", "bad2", "bad3", "bad4"]
        w.pool_vm("good", *names)
        for name in names:
            w.script(f"RESET-{name}", "hang")
            w.script(f"START-{name}", "hang")
            w.script(f"GRANT-{name}", "hang")
        for name in names:
            w.call("RELEASE", lease=w.lease(name=name)["lease"])
        begin = time.monotonic()
        for i in range(3):
            lease = w.lease(name="good", wait_ms=9000)["lease"]
            w.deliver(lease)
            w.call("RELEASE", lease=lease)
            until(lambda: w.running("good") == i + 2)
        # Without it every round waits for the deadline of somebody's reset, of three attempts each.
        self.assertLess(time.monotonic() - begin, 4.5)
        for name in names:
            for verb in ("RESET", "START", "GRANT"):
                w.script(f"{verb}-{name}", None)
        for name in names:
            if w.await_state(name, "READY", "BROKEN", timeout=20)["state"] == "BROKEN":
                w.call("POOL_REPAIR", name=name, flags=WAIT)

    def test_children_are_bounded(self):
        w = self.w.start()
        w.new("v")
        w.call("POOL_ADD", name="v", count=26, flags=WAIT, timeout=30)
        w.script("RESET", "hang")
        for v in w.vms().values():
            w.call("RELEASE", lease=w.lease(name=v["name"])["lease"])
        most, end = 0, time.monotonic() + 3
        while time.monotonic() < end:
            most = max(most, len(w.children()))
            time.sleep(0.05)
        self.assertGreater(most, 6)
        self.assertLessEqual(most, 16 + 3 + 1)  # slow ones, a place each, the watch
        w.script("RESET", None)
        until(lambda: all(v["state"] in ("READY", "BROKEN") for v in w.vms().values()), 60)


class Look(Case):
    def test_repair_of_what_is_not(self):
        w = self.w.start()
        w.pool_vm("one")
        for kind, values in (("POOL_REPAIR", {}), ("LEASE", {"holder": "h", "flags": LOOK})):
            with self.assertRaises(Refused) as r:
                w.call(kind, name="one", **values)
            self.assertEqual(r.exception.code, -114)


if __name__ == "__main__":
    main()
