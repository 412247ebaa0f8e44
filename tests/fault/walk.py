"""A random walk over everything that can happen to a pool, on a real libvirtd whose guests are its test driver, with the real
keeper and boxery-vm and a clock of the walk's own: a step may be a lease, a fault, a death, or eight hours. Now and then the wall
clock is set by minutes to weeks, both ways, which must not mean anything.

    walk.py [--steps N] [--seed N] [--known]      (BOXERY_FAULT_BINARIES: build folder's tests/fault)

The seed decides every choice; what two processes do at the same time is not in its power, so a seed that has failed fails
again often, not always. It is then put into KNOWN, which --known walks first. The invariants are at check_*(): they look at
the keeper's answers, its database (when it is dead), libvirt's domains, the image folder and the log of deliveries, and know
the states from the architecture, not from pool/state.c.
"""
import argparse
import collections
import os
import random
import re
import select
import signal
import subprocess
import sys
import time

from keeper_world import BIND, FORCE, MAGIC, TYPES, WAIT, Gone, Refused, memfd
from walk_world import World, enter, generation

# Seeds that have found something once, with the number of steps: (seed, steps). A change of STEPS gives every seed another
# walk; what was found is then kept as a scenario in walk_found.py.
KNOWN = []
BROKEN_LEASE = 16
VMS = 6  # about
ENTERS = {  # to: (from, happening)...; what is not here is entered from anywhere the table allows
    "READY": {("STARTING", "STARTED")},
    "LEASED": {("READY", "LEASE")},
    "DELIVERED": {("LEASED", "DELIVER")},
    "BUSY": {("DELIVERED", "JOB_SEEN")},
    "STARTING": {("COLD", "START")},
    "COLD": {("RESETTING", "RESET_DONE")},
    "BROKEN": {("RESETTING", "RESET_DONE"), ("RESETTING", "RESET_FAILED"), ("RESETTING", "DEADLINE")},
}
HAS_LEASE = {"LEASED", "DELIVERED", "BUSY", "KEPT"}
MAY_HAVE_LEASE = HAS_LEASE | {"RESETTING", "MAINTENANCE"}
HAPPENINGS = ("START STARTED START_FAILED LEASE DELIVER JOB_SEEN RELEASE STOPPED DEADLINE EXPIRED HOLDER_LOST DOUBT RESET_DONE "
              "RESET_FAILED REPAIR ADD MAINTAINED MAINTAIN_FAILED INTERRUPTED KEEP INSPECT SHORT_LIFE WAKE_FAILED").split()
POINTS = [f"{when}-{h}" for h in HAPPENINGS for when in ("before", "after")]
POINTS += [f"{when}-{v}" for v in "NEW START RESET CAPTURE FILTER LIST REMOVE GRANT STOP WAKE".split() for when in ("spawned", "result")]
POINTS += ("new-inserted new-made other-inserted granted halted removing removed life-recorded wake-recorded filter-checked "
           "connected deliver-spawned deliver-result deliver-recorded").split()
OFTEN = [p for p in POINTS if re.search("-(START|STARTED|LEASE|WAKE|DELIVER|JOB_SEEN|RELEASE|STOPPED|EXPIRED|RESET_DONE|RESET|"
                                        "FILTER|recorded|checked|spawned|connected|result)$", p)]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGr2pDwnwFmJ6cVnVtYT5JXZYrmnGm5wgdmDgEK6kzmY walk"
TWIN = "twin"
JOB = "left by a job"


class Broken(Exception):
    """An invariant does not hold."""


class Ask:
    """A request whose answer is not waited for."""

    def __init__(self, walk, kind, done=None, secret=None, **values):
        self.kind, self.values, self.done = kind, values, done
        self.client = walk.w.client()
        self.since = time.monotonic()
        self.client.send(kind, secret, **values)


class Walk:
    def __init__(self, folder, seed):
        self.r = random.Random(seed)
        self.wall = random.Random(seed + 1)  # of its own: it makes no other walk
        self.w = World(folder, host_env="BOXERY_START_TIMEOUT=1s\nBOXERY_PARALLEL=3\n")
        self.names, self.count = [], 0  # VMs that were asked for and not seen gone; names are never used twice
        self.generations, self.removals = {}, set()
        self.leases = {}  # id: what we know of every lease we were given
        self.ended = set()  # of these, the ones that are known to have ended
        self.bound, self.asks, self.stopped = [], [], set()
        self.keys = {}  # host key: (name, generation)
        self.delivered_ok = set()
        self.at_event, self.lives, self.commits = 0, {}, set()
        self.trail = collections.deque(maxlen=80)
        self.seen, self.done, self.deaths = collections.Counter(), collections.Counter(), collections.Counter()
        self.refused = collections.Counter()
        self.libvirtd_up, self.epoch, self.last_list = True, 0, []

    # ---- talking to the keeper

    def call(self, kind, secret=None, **values):
        """The reply, the refusal, or None when the keeper died over it."""
        try:
            return self.w.call(kind, secret, **values)
        except Refused as e:
            return self.check_refusal(kind, e)
        except TimeoutError as e:
            raise Broken(f"the keeper does not answer {kind} {values}") from e
        except (Gone, OSError):
            self.revive(kind)
            return None

    def check_refusal(self, kind, e):
        self.refused[f"{kind} {-e.code}"] += 1
        if not e.text or "\n" in e.text or len(e.text) < 10:
            raise Broken(f"{kind} was refused without a sentence: {e.code} {e.text!r}")
        return e

    def ask(self, kind, done=None, secret=None, **values):
        try:
            self.asks.append(Ask(self, kind, done, secret, **values))
        except (Gone, OSError):
            self.revive(kind)

    def hear(self):
        """Answers that have come meanwhile."""
        for a in list(self.asks):
            while a in self.asks and select.select([a.client.socket], [], [], 0)[0]:
                try:
                    m = a.client.receive()
                except (Gone, OSError):
                    self.asks.remove(a)
                    a.client.close()
                    self.revive(a.kind)
                    return
                if m["kind"] != 65:
                    continue
                self.asks.remove(a)
                if m["code"] < 0:
                    self.check_refusal(a.kind, Refused(m["code"], m["text"]))
                elif a.done and a.done(m, a.client):
                    continue
                a.client.close()

    def revive(self, over):
        """The keeper is dead; it may be, when it was armed or killed. Another one."""
        end = time.monotonic() + 5
        while self.w.keeper and self.w.keeper.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        status = self.w.keeper.poll() if self.w.keeper else -9
        if status is None:
            raise Broken(f"the keeper closed a connection over {over} and lives")
        if status != -9 or (self.w.keeper and not self.w.armed):
            raise Broken(f"the keeper ended with {status} over {over}")
        if self.w.keeper:
            self.deaths[self.w.armed.split("/")[0]] += 1
            self.trail.append(f"  keeper died at {self.w.armed}")
        self.down()
        self.up()

    def down(self):
        self.w.kill()
        self.stopped.clear()
        for a in self.asks:
            a.client.close()
        for c, _ in self.bound:
            c.close()
        self.asks, self.bound = [], []
        self.check_database()

    def up(self, kill=None):
        for _ in range(3):
            self.w.start(kill)
            if self.w.keeper.poll() is None:
                return
            if self.w.keeper.poll() != -9 or not kill:
                raise Broken(f"the keeper ended with {self.w.keeper.poll()} at its start")
            self.deaths[kill.split("/")[0]] += 1
            self.trail.append(f"  keeper died at its start at {kill}")
            kill = None
            self.down()
        raise Broken("the keeper does not start")

    def vms(self):
        while True:
            a = self.call("LIST")
            if a:
                self.check_list(a["document"]["vms"])
                return {v["name"]: v for v in self.last_list}

    def lease_rows(self):
        while True:
            a = self.call("LEASES", flags=8)
            if a:
                rows = a["document"]["leases"]
                for x in rows:
                    if not x["open"] and x["lease"] in self.leases:
                        self.ended.add(x["lease"])
                return rows

    # ---- invariants

    def check_list(self, vms):
        self.last_list = vms
        held = collections.Counter(v["lease"] for v in vms if v["lease"])
        if held and held.most_common(1)[0][1] > 1:
            raise Broken(f"two VMs have the same lease: {held}")
        for v in vms:
            name, state = v["name"], v["state"]
            if (state in HAS_LEASE and not v["lease"]) or (v["lease"] and state not in MAY_HAVE_LEASE):
                raise Broken(f"{name} is {state} and its lease is {v['lease']!r}")
            if v["generation"] < self.generations.get(name, 0):
                raise Broken(f"the generation of {name} went back from {self.generations[name]} to {v['generation']}")
            self.generations[name] = v["generation"]
            if state in ("READY", "LEASED") and bool(v["host_key"]) == (v["waits"] == "paused" or v["work"] == "WAKE"):
                raise Broken(f"{name} is {state} and its host key is {v['host_key']!r}, it waits {v['waits']!r}")
            if v["cold_only"] != (v["warm_failures"] >= 3) or (v["cold_only"] and v["waits"] == "paused"):
                raise Broken(f"{name} has failed {v['warm_failures']} times out of its memory image, and it waits {v['waits']!r}")
            if v["lease"] in self.ended and state in ("LEASED", "DELIVERED", "BUSY"):
                raise Broken(f"{name} is {state} under lease {v['lease']}, which has ended")
            if v["host_key"]:
                life = self.keys.setdefault(v["host_key"], (name, v["generation"]))
                if life != (name, v["generation"]):
                    raise Broken(f"{name} {v['generation']} has the host key of {life}")
        for name in [n for n in self.names if n not in {v["name"] for v in vms}]:
            self.names.remove(name)
            self.generations.pop(name, None)
        for v in vms:
            if v["name"] not in self.names:
                self.names.append(v["name"])

    def check_leased(self, m, granted):
        """What a holder was just given: nobody else's, clean, and a life of its own."""
        name, life = m["name"], m["generation"]
        for other in self.leases.values():
            if other["name"] == name and other["generation"] >= life:
                raise Broken(f"{name} was leased in its life {life} as {m['lease']}, and before as {other}")
        domain = self.domains().get(name)
        if domain is None or generation(domain) > life:
            return  # it was ended at the same time, and the keeper has yet to hear of it
        if generation(domain) < life:
            raise Broken(f"{name} was leased in its life {life}, but life {generation(domain)} runs")
        lines = (self.w.read(f"images/run/{name}.qcow2") or "").splitlines()
        if (JOB in lines or len(lines) > 1 + granted) and generation(self.domains().get(name, "")) == life:
            raise Broken(f"{name} was leased dirty: {lines}")

    def check_deliveries(self):
        given = collections.Counter((self.w.read("deliver/deliveries.log") or "").splitlines())
        if given and given.most_common(1)[0][1] > 1:
            raise Broken(f"a life got two secrets: {given.most_common(1)}")
        for key in given:
            if key not in self.keys:
                raise Broken(f"a delivery to a life nobody knows: {key}")
        for key in self.delivered_ok:
            if key not in given:
                raise Broken(f"a delivery that was confirmed never happened: {self.keys[key]}")

    def check_database(self):
        """Every transition since the last look, and what may exist once only. With the keeper dead."""
        db = self.w.database()
        try:
            if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise Broken("the database is damaged")
            if db.execute("SELECT vm_id FROM leases WHERE open = 1 GROUP BY vm_id HAVING count(*) > 1").fetchall():
                raise Broken("two open leases of one VM")
            rows = db.execute("SELECT id, vm_id, vm, generation, kind, text FROM events WHERE id > ? ORDER BY id",
                              (self.at_event,)).fetchall()
            for at, vm_id, vm, life, kind, text in rows:
                self.at_event = at
                m = re.match(r"([A-Z]+) -> ([A-Z]+)", text)
                if not m or kind not in HAPPENINGS:
                    continue
                self.seen[(m[1], kind, m[2])] += 1
                if m[2] in ENTERS and m[1] != m[2] and (m[1], kind) not in ENTERS[m[2]]:
                    raise Broken(f"{vm}: {text} by {kind}")
                if m[1] == "BROKEN" and kind not in ("REPAIR", "INSPECT"):
                    raise Broken(f"{vm} left BROKEN by {kind}")
                if vm_id and life < self.lives.get(vm_id, 0):
                    raise Broken(f"{vm}: life {life} after life {self.lives[vm_id]}")
                if vm_id:
                    self.lives[vm_id] = life
                if vm_id and kind in ("DELIVER", "LEASE"):
                    if (vm_id, life, kind) in self.commits:
                        raise Broken(f"{vm}: a second {kind} in its life {life}")
                    self.commits.add((vm_id, life, kind))
        finally:
            db.close()

    def check_owned(self, vms):
        """At rest: every file and every domain of ours belongs to a VM, and is what its state calls for."""
        wanted = {"base/tiny/disk.qcow2", "base/tiny/vmlinuz", "base/tiny/initrd", "base/tiny/manifest.env"}
        allowed = {"run/.network.lock"}
        for name, v in vms.items():
            wanted.add(f"vms/{name}.env")
            clone = bool(v.get("clean_of")) and v["clean_of"] != name
            if not clone:
                wanted.add(f"vms/{name}.qcow2")
            if v["state"] == "READY":
                wanted |= {f"run/{name}.qcow2", f"run/{name}.gen"}
                if not clone:
                    wanted |= {f"images/{name}@boxery-clean/disk.qcow2", f"images/{name}@boxery-clean/manifest.env"}
            # A VM that has been started warm has its memory image until it is captured anew or removed.
            allowed |= {f"images/{name}@boxery-warm/{f}" for f in ("disk.qcow2", "guest.txt", "manifest.env", "memory", "overlay.qcow2")}
            allowed |= {f"run/{name}.gen", f"run/{name}.lock", f"console/{name}.log", f"console/{name}.log.1"}
        images = self.w.path("images")
        there = {os.path.relpath(os.path.join(d, f), images) for d, _, files in os.walk(images) for f in files}
        if wanted - there or there - wanted - allowed:
            raise Broken(f"files: missing {sorted(wanted - there)}, nobody's {sorted(there - wanted - allowed)}")
        domains = self.domains()
        if "test" not in domains:
            raise Broken("the domain of somebody else is gone")
        have = {n: generation(x) for n, x in domains.items() if n != "test"}
        if have != {n: v["generation"] for n, v in vms.items() if v["state"] == "READY"}:
            raise Broken(f"domains: {have}")
        kids = [os.readlink(f"/proc/{p}/exe") for p in self.w.children(spares=False)]
        if len(kids) > 1:
            raise Broken(f"children at rest: {kids}")

    def domains(self):
        return self.w.libvirt.domains() if self.libvirtd_up else {}

    # ---- rest

    def calm(self):
        """Everything that disturbs ends; then every VM must come to rest by itself, or by what an admin is told to do."""
        for f in os.listdir(self.w.path("faults")):
            os.unlink(self.w.path("faults", f))
        for pid in self.stopped:
            self.signal(pid, signal.SIGCONT)
        self.stopped.clear()
        self.step_libvirtd_up()
        self.w.libvirt.destroy(TWIN)
        if self.w.armed:
            self.down()
            self.up()
        for a in self.asks:
            a.client.close()
        for c, _ in self.bound:
            c.close()
        self.asks, self.bound = [], []
        end = time.monotonic() + 60
        for tries in range(5):
            self.rest(end)
            self.check_deliveries()
            try:
                self.check_owned(self.vms())
                return
            except Broken:
                # On a busy machine a listing takes its time, and the keeper may be about to hear of a file that was deleted.
                if tries == 4 or time.monotonic() > end:
                    raise
                time.sleep(0.2 * 2 ** tries)

    def rest(self, end):
        agreed = 0
        while agreed < 2:
            vms = self.vms()
            for x in self.lease_rows():
                if x["open"] and x["state"] not in ("RESETTING", ""):
                    self.call("RELEASE", lease=x["lease"], text="done")
            for name, v in vms.items():
                if v["state"] == "BROKEN" and not v["work"] and self.half_removed(v):
                    # Said again, as the admin does whose command has failed.
                    self.ask("POOL_REMOVE", None, name=name, flags=FORCE)
                elif v["state"] in ("BROKEN", "KEPT"):
                    self.call("POOL_REPAIR", name=name)
            wild = {n: (v["state"], v["work"], v["attempts"], v["step"], v["reason"]) for n, v in vms.items()
                    if v["state"] != "READY" or v["work"] or v["lease"] or not v["running"]}
            runs = {n: generation(x) for n, x in self.domains().items() if n != "test"}
            if not wild and runs != {n: v["generation"] for n, v in vms.items()}:
                agreed = 0  # the keeper has yet to hear of it
            if time.monotonic() > end:
                raise Broken(f"no way out: {wild}, domains {runs}, children {self.w.children()}")
            for name, v in vms.items():
                if v["state"] == "PLAIN" and not v["work"]:  # perhaps half made: a NEW was cut off
                    self.ask("REMOVE", None, name=name, flags=FORCE)
            if not wild:
                # What libvirt lists now must agree: a new watch lists at once.
                agreed += 1
                old = self.watch()
                for pid in self.w.children("vm"):
                    self.signal(pid, signal.SIGKILL)
                while self.watch() in (0, old) and time.monotonic() < end:
                    time.sleep(0.02)
                    self.advance(2)
                time.sleep(0.05)
                continue
            agreed = 0
            if len(self.w.children(spares=False)) < 2:
                self.advance(5)
            time.sleep(0.005)
            self.hear()

    def watch(self):
        """The child that watches libvirt: the oldest."""
        pids = self.w.children("vm")
        return pids[0] if pids else 0

    def half_removed(self, v):
        """A removal was asked for, and cut off when some of the files were gone already."""
        clean = v["clean_of"] or v["name"]
        return v["name"] in self.removals and not (
            self.w.read(f"images/vms/{v['name']}.env") and self.w.read(f"images/images/{clean}@boxery-clean/manifest.env") and
            (v["clean_of"] or self.w.read(f"images/vms/{v['name']}.qcow2")))

    @staticmethod
    def signal(pid, what):
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass

    def advance(self, seconds):
        if self.wall.random() < 0.1:
            self.w.clock.set_wall(self.wall.choice([0, 60, -60]) * 30000 ** self.wall.random())
        self.w.clock.advance(seconds, followed=bool(self.w.keeper and self.w.keeper.poll() is None))

    # ---- steps

    def any_name(self):
        return self.r.choice(self.names) if self.names else "nobody"

    def any_lease(self):
        """Mostly one that lives; else an old one, or none at all."""
        kind, recent = self.r.random(), list(self.leases)[-8:]
        alive = [v["lease"] for v in self.last_list if v["lease"]]
        if alive and kind < 0.75:
            return self.r.choice(alive)
        return self.r.choice(recent) if recent and kind < 0.97 else "%032x" % self.r.getrandbits(128)

    def got_lease(self, m, client, bind=False, granted=False):
        self.check_leased(m, granted)
        self.leases[m["lease"]] = {"name": m["name"], "generation": m["generation"], "granted": granted}
        if bind:
            self.bound.append((client, m["lease"]))
        return bind

    def step_lease(self):
        bind, key = self.r.random() < 0.3, self.r.random() < 0.15
        values = {"holder": self.r.choice(["github-runner", "github-runner-local", "anna", "bert"]), "pool": "default",
                  "ttl_ms": self.r.choice([1000, 30000, 600000, 3600000, 6 * 3600000]), "flags": BIND if bind else 0,
                  "wait_ms": self.r.choice([0, 0, 5000, 600000])}
        if self.r.random() < 0.2:
            values["name"] = self.any_name()
        if key:
            values.update(text=KEY, holder="anna")
        self.ask("LEASE", lambda m, c: self.got_lease(m, c, bind, key), **values)

    def step_release(self):
        lease = self.any_lease()
        if self.call("RELEASE", lease=lease, text="done") is not None:
            self.ended.add(lease)

    def step_renew(self):
        self.call("RENEW", lease=self.any_lease(), ttl_ms=self.r.choice([1, 60000, 3600000, 7 * 86400000]),
                  flags=self.r.choice([0, FORCE]))

    def step_deliver(self):
        lease = self.any_lease()
        fd = memfd(b"x" * 100)
        try:
            self.ask("DELIVER", lambda m, c: self.got_secret(lease), fd, lease=lease)
        finally:
            os.close(fd)

    def got_secret(self, lease):
        if lease in self.leases:
            life = (self.leases[lease]["name"], self.leases[lease]["generation"])
            self.delivered_ok.update(k for k, v in self.keys.items() if v == life)

    def step_job_seen(self):
        self.call("JOB_SEEN", lease=self.any_lease(), text="build")

    def step_job(self):
        """What a job leaves behind, on any VM that was leased once: it must be gone in the next life."""
        lease = self.leases.get(self.any_lease())
        if not lease:
            return
        for v in self.last_list:
            if v["name"] == lease["name"] and v["state"] in ("LEASED", "DELIVERED", "BUSY") and \
                    v["generation"] == lease["generation"] and generation(self.domains().get(v["name"], "")) == v["generation"]:
                try:
                    fd = os.open(self.w.path(f"images/run/{v['name']}.qcow2"), os.O_WRONLY | os.O_APPEND)
                    os.write(fd, JOB.encode() + b"\n")
                    os.close(fd)
                except FileNotFoundError:
                    pass

    def step_guest_ends(self):
        if self.libvirtd_up:
            self.w.libvirt.destroy(self.any_name())

    def step_guest_paused(self):
        if self.libvirtd_up:
            self.w.libvirt.suspend(self.any_name())

    def step_expire(self):
        self.advance(self.r.choice([1.1, 31, 601, 3601, 6 * 3600 + 1]))

    def step_time(self):
        self.advance(self.r.choice([0.2, 1, 3, 12]))

    def step_drop(self):
        if self.bound:
            c, _ = self.bound.pop(self.r.randrange(len(self.bound)))
            c.close()

    def step_hang_up(self):
        if self.asks:
            a = self.asks.pop(self.r.randrange(len(self.asks)))
            a.client.close()

    def step_keeper_killed(self):
        self.deaths["kill -9"] += 1
        self.down()
        if self.r.random() < 0.3:
            self.advance(self.r.choice([10, 3600]))
        self.up()

    def step_keeper_armed(self):
        """It will die at this place when it comes there."""
        point = self.r.choice(OFTEN if self.r.random() < 0.6 else POINTS) + self.r.choice(["", "", "/2", "/3"])
        self.trail.append("  " + point)
        self.down()
        self.up(point)

    def step_keeper_ended(self):
        if self.w.armed:
            return
        for a in self.asks:
            a.client.close()
        for c, _ in self.bound:
            c.close()
        self.asks, self.bound = [], []
        for pid in self.stopped:
            self.signal(pid, signal.SIGCONT)
        self.stopped.clear()
        self.w.keeper.terminate()
        end = time.monotonic() + 20
        while self.w.keeper.poll() is None:
            if time.monotonic() > end:
                raise Broken("the keeper does not end on SIGTERM")
            time.sleep(0.005)
            self.advance(0.5)
        if self.w.keeper.poll() != 0:
            raise Broken(f"the keeper ended with {self.w.keeper.poll()} on SIGTERM")
        self.w.keeper = None
        self.down()
        self.up()

    def step_child_killed(self):
        pids = self.w.children("vm") + self.w.children("deliver")
        if pids:
            self.signal(self.r.choice(pids), signal.SIGKILL)

    def step_child_stuck(self):
        pids = self.w.children("vm")[1:]  # the watch is the oldest
        if pids:
            pid = self.r.choice(pids)
            self.stopped.add(pid)
            self.signal(pid, signal.SIGSTOP)

    def step_libvirtd_killed(self):
        if self.libvirtd_up:
            self.w.libvirtd_kill()
            self.libvirtd_up = False
        if self.r.random() < 0.7:
            self.step_libvirtd_up()

    def step_libvirtd_up(self):
        if not self.libvirtd_up:
            self.w.libvirtd_start()
            self.libvirtd_up = True

    def step_reboot(self):
        self.down()
        self.step_libvirtd_up()
        self.w.reboot()
        self.up()

    def step_fault(self):
        what = self.r.choice(["agent", "begin", "begin", "dies", "dies", "filter", "delay", "disk"])
        self.w.write("faults/disk" if what == "disk" else f"faults/{self.any_name()}.{what}",
                     f"{self.r.choice([30, 200])}\n" if what == "delay" else "")

    def step_fault_over(self):
        for f in os.listdir(self.w.path("faults")):
            if self.r.random() < 0.6:
                os.unlink(self.w.path("faults", f))

    def step_repair(self):
        self.call("POOL_REPAIR", name=self.any_name())

    def step_repair_all(self):
        for v in self.last_list:
            if v["state"] in ("BROKEN", "KEPT"):
                self.call("POOL_REPAIR", name=v["name"])

    def step_keep(self):
        self.call("POOL_KEEP", name=self.any_name(), ttl_ms=self.r.choice([0, 1000, 600000, 3600000]))

    def step_inspect(self):
        broken = [v["name"] for v in self.last_list if v["state"] == "BROKEN"]
        a = self.call("LEASE", name=self.r.choice(broken) if broken else self.any_name(), holder="admin", ttl_ms=600000,
                      flags=BROKEN_LEASE)
        if isinstance(a, dict) and a["lease"]:
            self.leases[a["lease"]] = {"name": a["name"], "generation": a["generation"], "granted": False}

    def step_new(self):
        if len(self.names) >= VMS:
            return
        self.count += 1
        name = f"v{self.count}"
        count = self.r.choice([1, 1, 2, 3])
        self.ask("NEW", lambda m, c: self.added(name, count), name=name, image="tiny", cpus=1, memory_mib=128, disk_gib=1)

    def added(self, name, count):
        self.ask("POOL_ADD", None, name=name, pool="default", count=count, flags=self.r.choice([0, WAIT]))

    def step_add(self):
        plain = [v["name"] for v in self.last_list if v["state"] == "PLAIN"]
        if plain:
            self.ask("POOL_ADD", None, name=self.r.choice(plain), pool="default")

    def step_plain(self):
        plain = [v["name"] for v in self.last_list if v["state"] == "PLAIN"]
        if plain:
            self.ask(self.r.choice(["START", "STOP", "REMOVE"]), None, name=self.r.choice(plain),
                     flags=self.r.choice([0, FORCE]))

    def step_remove(self):
        if len(self.names) > 2:
            name = self.any_name()
            self.removals.add(name)
            self.ask("POOL_REMOVE", None, name=name, flags=self.r.choice([0, FORCE]))

    def step_limits(self):
        self.call("POOL_SET", pool="default", net_kib_per_s=self.r.choice([0, 1024, 0xffffffff]),
                  reserve_service=self.r.choice([0, 1, 0xffffffff]), reserve_local=self.r.choice([0, 1, 0xffffffff]))

    def step_overlay_deleted(self):
        try:
            os.unlink(self.w.path(f"images/run/{self.any_name()}.qcow2"))
        except FileNotFoundError:
            pass

    def step_twin(self):
        """Somebody starts a second domain with our mark; or ends it again."""
        name = self.any_name()
        xml = self.domains().get(name)
        if not self.libvirtd_up or self.w.libvirt.destroy(TWIN) or not xml:
            return
        xml = re.sub(r"<uuid>.*</uuid>", "", xml).replace(f"<name>{name}</name>", f"<name>{TWIN}</name>")
        self.w.libvirt.create(re.sub(r"<interface.*</interface>", "", xml, flags=re.S))

    def step_look(self):
        name = self.any_name()
        self.call("HISTORY", name=name)
        self.call("POOLS")
        self.lease_rows()

    def step_nonsense(self):
        """A message that is none."""
        try:
            c = self.w.client()
            c.socket.send(self.r.choice([b"", b"x", MAGIC.to_bytes(4, "little") * 9, os.urandom(64)]))
            c.socket.settimeout(0.01)
            c.socket.recv(10000)
        except OSError:
            pass
        c.close()

    STEPS = {"lease": 26, "release": 7, "renew": 3, "deliver": 18, "job_seen": 8, "job": 10, "guest_ends": 5, "guest_paused": 0.5,
             "expire": 3, "time": 22, "drop": 3, "hang_up": 2, "keeper_killed": 1, "keeper_armed": 3, "keeper_ended": 0.6,
             "child_killed": 4, "child_stuck": 1.5, "libvirtd_killed": 0.7, "libvirtd_up": 2, "reboot": 0.4, "fault": 2,
             "fault_over": 5, "repair": 2, "repair_all": 4, "keep": 3, "inspect": 2, "new": 4, "add": 2, "plain": 1,
             "remove": 2, "limits": 0.5, "overlay_deleted": 1, "twin": 1, "look": 1, "nonsense": 0.5}

    def settle(self, seconds):
        """Lets what is under way come to its end, or does not wait that long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(self.w.children(spares=False)) > 1 and not self.stopped:
            time.sleep(0.002)

    def walk(self, steps, calm_every):
        self.w.start()
        for _ in range(3):
            self.step_new()
            self.settle(0.5)
            self.hear()
        words, weights = zip(*self.STEPS.items())
        for i in range(steps):
            what = self.r.choices(words, weights)[0]
            self.trail.append(f"{i} {what}")
            self.done[what] += 1
            getattr(self, "step_" + what)()
            pause = self.r.random()
            if pause < 0.4:
                self.settle(0.3)
            self.hear()
            self.vms()
            if i % 10 == 9:
                self.lease_rows()
                self.check_deliveries()
                self.w.drain()
            if i % calm_every == calm_every - 1:
                self.trail.append("calm")
                self.calm()
        self.trail.append("calm")
        self.calm()
        if self.w.end() != 0:
            raise Broken("the keeper did not end well")
        self.check_database()
        self.w.close()

    def report(self, seconds):
        deliveries = len((self.w.read("deliver/deliveries.log") or "").splitlines())
        print(f"{sum(self.done.values())} steps in {seconds:.0f} s; {len(self.leases)} leases, {deliveries} deliveries, "
              f"{sum(self.lives.values())} lives of {len(self.lives)} VMs, {self.w.boots} boots of the host, "
              f"{sum(self.deaths.values())} deaths of the keeper at {len(self.deaths)} places, "
              f"{len(self.seen)} different transitions")
        if os.environ.get("BOXERY_WALK_DETAILS"):
            for title, counter in (("steps", self.done), ("deaths", self.deaths), ("transitions", self.seen),
                                   ("refusals", self.refused)):
                print(title + ":", ", ".join(f"{' '.join(k) if isinstance(k, tuple) else k} {n}"
                                            for k, n in sorted(counter.items(), key=lambda x: str(x[0]))))
            print("places not met:", " ".join(p for p in POINTS if p not in self.deaths))


def one(folder, seed, steps, calm_every):
    print("seed", seed, "steps", steps, flush=True)
    began = time.monotonic()
    walk = Walk(folder, seed)
    try:
        walk.walk(steps, calm_every)
    except BaseException as e:
        print("the last steps:", *walk.trail, sep="\n  ")
        print("the VMs:", *walk.last_list, sep="\n  ")
        log = walk.w.path("keeper.log")
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as f:
                print("the end of the keeper's log:", *f.read().splitlines()[-300:], sep="\n  ")
        print(f"FAILED: seed {seed}: {e}", flush=True)
        raise
    walk.report(time.monotonic() - began)
    return walk


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=10000)
    p.add_argument("--seed", type=int)
    p.add_argument("--calm-every", type=int, default=250)
    p.add_argument("--known", action="store_true")
    o = p.parse_args()
    if o.known and "BOXERY_WALK" not in os.environ:
        for seed, steps in KNOWN:  # each in a world of its own
            subprocess.run([sys.executable, sys.argv[0], "--seed", str(seed), "--steps", str(steps)], check=True)
    folder = enter("walk")
    one(folder, random.SystemRandom().randrange(1 << 32) if o.seed is None else o.seed, o.steps, o.calm_every)


if __name__ == "__main__":
    main()
