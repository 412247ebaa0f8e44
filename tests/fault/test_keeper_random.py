"""Random holders, faults and deaths, then calm: every VM comes back, and no invariant was broken on the way.

BOXERY_SEED repeats a run, BOXERY_SECONDS makes it longer.
"""
import os
import random
import threading

from keeper_world import BIND, LOOK, WAIT, Case, Client, Gone, Refused, main, memfd, time, until

SECONDS = float(os.environ.get("BOXERY_SECONDS", "15"))
SEED = int(os.environ.get("BOXERY_SEED", random.SystemRandom().randrange(1 << 32)))
NAMES = ["a", "b", "c", "c-2", "c-3"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGhYQ0hhdGVzdGtleXRlc3RrZXl0ZXN0a2V5dGVzdA me"
HOW = {
    "START": ["once fail 5 agent no", "once crash", "once noresult", "once garbage", "once late", "slow 60", "once badkey", None,
              None, None],
    "RESET": ["once fail 5 destroy no", "once crash", "once late", "slow 40", "once twice", None, None, None],
    "FILTER": ["once fail 2 filter no", "once crash", None, None],
    "deliver": ["once fail 5 no", "once crash", "once late", "once sentfail 110 no", "slow 50", None, None, None],
    "GRANT": ["once fail 5 agent no", "once crash", "slow 40", None, None],
    "WATCH": ["once crash", "once garbage", None, None, None],
}


class Holder(threading.Thread):
    """Leases, delivers, goes on or away; every refusal and every death of the keeper is fine with it."""

    def __init__(self, w, seed, stop):
        super().__init__()
        self.w, self.random, self.stop, self.errors = w, random.Random(seed), stop, []

    def run(self):
        while not self.stop.is_set():
            try:
                c = Client(self.w.path("run/keeper.sock"), 15)
            except OSError:
                time.sleep(0.02)
                continue
            try:
                self.job(c)
            except (Gone, ConnectionError, Refused):
                time.sleep(0.01)
            except Exception as e:  # noqa: BLE001
                self.errors.append(repr(e))
                return
            finally:
                c.close()

    def job(self, c):
        r = self.random
        text = r.choice(["", "", "", KEY])
        lease = c.call("LEASE", holder=r.choice(["h", "g"]) if text else r.choice(["h", "github-runner", "github-runner-local"]),
                       pool="default", ttl_ms=r.choice([150, 3000, 60000]), wait_ms=500, flags=r.choice([0, 0, BIND]), text=text)
        if r.random() < 0.15:
            return  # goes away without a word
        if r.random() < 0.1:
            c.call("RENEW", lease=lease["lease"], ttl_ms=r.choice([50, 5000]), flags=r.choice([0, 1]))
        if r.random() < 0.15:
            c.call("POOL_KEEP", name=lease["name"], ttl_ms=r.choice([1, 100, 1500]))
        if text:
            c.call("RELEASE", lease=lease["lease"])
            return
        if r.random() < 0.8:
            fd = memfd(b"x" * 100)
            try:
                if r.random() < 0.1:
                    c.send("DELIVER", fd, lease=lease["lease"])
                    return
                c.call("DELIVER", fd, lease=lease["lease"])
            finally:
                os.close(fd)
            if r.random() < 0.7:
                c.call("JOB_SEEN", lease=lease["lease"], text="job")
            if r.random() < 0.5:
                try:
                    self.w.stop_domain(lease["name"])  # the job ends; or another one's, when this life was lost already
                except FileNotFoundError:
                    pass
                return
        c.call("RELEASE", lease=lease["lease"], text="done")


class Random(Case):
    def test_random(self):
        print("seed", SEED, flush=True)
        w, r = self.w.start(), random.Random(SEED)
        w.pool_vm("a", "b")
        w.new("c")
        w.call("POOL_ADD", name="c", count=3, flags=WAIT)
        w.call("POOL_SET", pool="default", reserve_service=1, reserve_local=1)
        stop = threading.Event()
        holders = [Holder(w, SEED + i, stop) for i in range(6)]
        for h in holders:
            h.start()
        deaths, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(r.uniform(0.01, 0.15))
            what = r.random()
            if what < 0.5:
                verb = r.choice(list(HOW))
                w.script(verb, r.choice(HOW[verb]))
            elif what < 0.6:
                name = r.choice(NAMES)
                if w.running(name):
                    try:
                        w.stop_domain(name)
                    except FileNotFoundError:
                        pass
            elif what < 0.66:
                w.libvirt(False)
                time.sleep(r.uniform(0.02, 0.3))
                w.libvirt(True)
            elif what < 0.75:
                w.kill()
                deaths += 1
                w.start()
            elif what < 0.8:
                w.end()
                w.start()
            elif what < 0.85:
                name = r.choice(NAMES)
                w.write("world/trouble/" + name, "somebody edited it\n")
                time.sleep(r.uniform(0.02, 0.3))
                os.unlink(w.path("world/trouble", name))
            elif what < 0.95:
                try:
                    for name, v in w.vms().items():
                        if v["state"] == "BROKEN" and r.random() < 0.3:
                            seen = w.call("LEASE", name=name, holder="admin", flags=LOOK, ttl_ms=r.choice([50, 60000]))
                            if r.random() < 0.7:
                                w.call("RELEASE", lease=seen["lease"])
                        elif v["state"] in ("BROKEN", "KEPT"):
                            w.call("POOL_REPAIR", name=name)
                except (Gone, Refused, ConnectionError):
                    pass
        stop.set()
        for h in holders:
            h.join(30)
        self.assertEqual([e for h in holders for e in h.errors], [])
        for verb in HOW:
            w.script(verb, None)
        for lease in w.leases().values():
            try:
                w.call("RELEASE", lease=lease["lease"])
            except Refused as e:
                self.assertEqual(e.code, -114)
        for name in NAMES:
            try:
                w.call("POOL_KEEP", name=name)
            except Refused as e:
                self.assertEqual(e.code, -114)
        until(lambda: all(v["state"] in ("READY", "BROKEN") for v in w.vms().values()), 20)
        for name, v in w.vms().items():
            if v["state"] == "BROKEN":
                w.call("POOL_REPAIR", name=name, flags=WAIT)
        for name, v in w.vms().items():
            self.assertEqual((v["state"], v["lease"], w.running(name)), ("READY", "", v["generation"]))
        self.assertEqual(w.leases(), {})
        self.assertGreater(deaths, 0)
        until(lambda: len(w.children(spares=False)) == 1)
        self.assertEqual(sorted(os.listdir(w.path("world/run"))), NAMES)
        self.assertEqual(os.listdir(w.path("world/broken")), [])
        granted = [tuple(x.split(" ")[:2]) for x in w.lines("grants.log")]
        self.assertEqual(len(granted), len(set(granted)), "a life got two keys")
        self.assertFalse(set(granted) & {(n, str(g)) for n, g in w.delivered()}, "a life got a key and a secret")
        print("deaths", deaths, "keys", len(granted), "deliveries", len(w.delivered()), "starts", len(w.ops("START")) // 2, flush=True)


if __name__ == "__main__":
    main()
