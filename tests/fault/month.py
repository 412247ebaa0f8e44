#!/usr/bin/python3
"""A month of the runner service on a clock that only this program moves, with seeded faults.

    month.py BUILD_DIR [--jobs 5000] [--days 30] [--seed 1] [--vms 4] [--verbose]

GitHub fails, limits, loses answers and is slow; the keeper refuses and hangs up; guests die, hang and never connect; the
service is killed at random; the host's wall clock is set to a wrong time, minutes to weeks off, both ways, for hours. Checked at
the end, and after every job that is over: each job ran once or is still GitHub's
to give out, no runner had two jobs, no registration of ours is left, no foreign runner was touched, every VM is READY, no kept console
went and no credential ended because of a clock. In the second half nothing kills the service, and its memory must not grow: the last line says by how much for 1,000 jobs.
Exit status 1 when something is wrong. The same seed gives the same faults.
"""
import argparse
import os
import random
import select
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
os.environ.setdefault("BOXERY_FAULT_BINARIES", os.path.join(BUILD, "tests", "fault"))
sys.path.insert(0, HERE)
from service_world import EAGAIN, EIO, ENOTCONN, Refused, World  # noqa: E402
from virtual_clock import Clock  # noqa: E402

QUIET = 0.001   # seconds without a message, and nobody awake: everybody waits for the clock
STEP = 10       # seconds of the clock at a time while anything is under way
IDLE_STEP = 120
SLOPE_MAX = 1.0  # KiB for 1,000 jobs
SLOPE_JOBS = 4000  # of fewer, one page of 4 KiB more or less is a larger slope
QUOTA = 5000     # calls an hour
DAY = 86400
WRONG_MIN_S, WRONG_MAX_S = 60, 20 * DAY  # so far off is a clock that was set wrongly
WRONG_FOR_S = (600, 20 * 3600)           # and so long
KEPT = ("0" * 31 + "1.log", "0" * 31 + "2.log")


class Month(World):
    own_thread = False

    def __init__(self, program, seed, vms):
        self.random = random.Random(seed)
        self.clock = None
        super().__init__(program, vms=vms, reset=20, guest=(8, 4, 3))
        self.output.close()
        self.output = open(self.dir + "/service.log", "a+b")  # may be emptied while it is written to
        self.clock = Clock(self.dir + "/clock")
        self.started = self.now()
        self.faulty, self.kills, self.injected, self.requests = True, 0, 0, {}
        self.wrong_by, self.steps, self.began_ahead = 0, 0, False
        os.mkdir(self.dir + "/state/logs")
        self.keep()
        self.calls, self.hours = {}, {}
        self.write_yaml("version: 1\npoll_interval: 15s\nrunners:\n  - repo: octo/private\n    labels: "
                        "[self-hosted, linux, x64, boxery]\n    max: %d\n    start_timeout: 5m\n    idle_timeout: 10m\n"
                        "    job_timeout: 2h\n" % vms)

    def now(self):
        return self.clock.now() if self.clock else time.clock_gettime(time.CLOCK_BOOTTIME)

    def start(self, *arguments):
        self.began_ahead |= self.wrong_by > 0  # what the clock says at the start is believed: it has no other
        super().start(*arguments, BOXERY_TEST_CLOCK=self.clock.path,
                      LD_PRELOAD=os.path.join(os.environ["BOXERY_FAULT_BINARIES"], "libwalk_clock.so"))

    # --- the wall clock: it goes with the other one, but for what it is off

    def wall(self):
        """The right one."""
        return time.time() + self.clock.offset

    def set_clock(self, offset):
        self.clock.set_wall(offset + self.wrong_by)
        self.clock.set(offset)

    def set_wrongly(self):
        if self.wrong_by:
            return
        self.steps += 1
        off = WRONG_MIN_S * (WRONG_MAX_S / WRONG_MIN_S) ** self.random.random()
        self.wrong_by = off if self.random.random() < 0.5 else -off
        self.clock.set_wall(self.clock.offset + self.wrong_by)
        self.after(self.random.uniform(*WRONG_FOR_S), self.set_right)

    def set_right(self):
        self.wrong_by = 0
        self.clock.set_wall(self.clock.offset)

    def keep(self):
        """Consoles of yesterday, whenever that is."""
        self.began_ahead = self.began_ahead and self.wrong_by > 0
        for name in KEPT:
            with open(os.path.join(self.dir, "state/logs", name), "a"):
                pass
            os.utime(os.path.join(self.dir, "state/logs", name), (self.wall() - DAY,) * 2)

    def lost_to_the_clock(self):
        gone = [n for n in KEPT if not os.path.exists(os.path.join(self.dir, "state/logs", n))]
        if self.began_ahead:
            gone = []
        return ["a console of yesterday was deleted: %s" % n for n in gone] + \
            (["a credential has ended before its time"] if "the credential " in self.text() and not self.began_ahead else [])

    # --- faults, one in so many requests

    def handle(self, s, verb, request, github):
        self.requests[verb] = self.requests.get(verb, 0) + 1
        if self.faulty and verb != "HELLO":
            action = self.github_fault(verb) if github else self.keeper_fault(verb)
            if action:
                self.injected += 1
                self.actions.setdefault(verb, []).insert(0, action)
        super().handle(s, verb, request, github)

    def cost(self, verb, r):
        out = super().cost(verb, r)
        hour = int((self.now() - self.started) / 3600)
        self.calls[verb] = self.calls.get(verb, 0) + out["calls"]
        self.hours[hour] = self.hours.get(hour, 0) + out["calls"]
        return out

    def one_in(self, n):
        return self.random.randrange(n) == 0

    def github_fault(self, verb):
        if self.one_in(40):
            kind, code, more = self.random.choice([
                ("server", EIO, {}), ("server", EIO, {}), ("network", ENOTCONN, {}), ("network", ENOTCONN, {"may_exist": 1}),
                ("limit", EAGAIN, {"retry_after_ms": self.random.choice([1000, 30000, 600000]), "limit_kind": 2})])
            after = kind != "limit" and self.one_in(2)

            def refuse(world, request):
                if after:  # acted upon, and yet
                    try:
                        getattr(world, "github_" + verb.lower())(request)
                    except Refused:
                        pass
                told = dict(more if verb == "MINT" or kind == "limit" else {})
                if after and verb == "MINT":
                    told["may_exist"] = 1  # boxery-github says so whenever a request has left
                raise world.fault(kind, code, "a fault of the month", **told)
            return refuse
        if self.one_in(400):
            return lambda w, r: w.random.choice(["drop", "after"])  # the child is gone
        return self.kill_fault()

    def keeper_fault(self, verb):
        if self.one_in(300):
            return lambda w, r: w.random.choice(["drop", "after"])
        if verb == "DELIVER" and self.one_in(50):
            def fail(world, request):
                raise Refused(EIO, "the guest does not answer")
            return fail
        return self.kill_fault()

    def kill_fault(self):
        if self.one_in(1500):
            return lambda w, r: w.random.choice(["kill", "kill-after"])
        return None

    def guest_online(self, name, generation):
        if self.faulty and self.one_in(40):
            return  # never connects
        super().guest_online(name, generation)

    def guest_take(self, name, generation, runner):
        if self.vms[name]["generation"] == generation and self.faulty and self.one_in(60):
            self.stopped(name, generation, self.random.choice(["shutdown", "crashed", "destroyed"]))
            return
        super().guest_take(name, generation, runner)

    def guest_done(self, name, generation, runner, job):
        # GitHub leaves the registration behind now and then.
        self.behaviour = "keeps-spent" if self.one_in(40) else "work"
        if self.vms[name]["generation"] == generation and self.faulty and self.one_in(60):
            # Dies with the job. GitHub fails it ten minutes later, and forgets the runner.
            self.stopped(name, generation, "crashed")
            self.after(600, self.lost, runner, job)
            return
        super().guest_done(name, generation, runner, job)

    def lost(self, runner, job):
        job.update(status="completed", conclusion="failure")
        runner.update(busy=False, online=False, gone=True)

    def public_jobs(self, jobs):
        return self.document("jobs", [{k: v for k, v in j.items() if k[0] != "_"} for j in jobs])

    # --- time

    def still_starting(self):
        """The service, or its child in the place of boxery-github, has not come to us yet; the clock waits for them."""
        kinds = list(self.clients.values())
        if self.keeper_up and "subscriber" not in kinds and time.monotonic() < self.patience:
            return True
        return bool(self.children()) and "github" not in kinds and time.monotonic() < self.patience

    def awake(self):
        """The service or its child has something to do: on a busy machine it may not have got to it yet."""
        for pid in [self.service.pid, *self.children()]:
            try:
                for tid in os.listdir("/proc/%d/task" % pid):
                    with open("/proc/%d/task/%s/stat" % (pid, tid)) as f:
                        if f.read().rpartition(")")[2].split()[0] in "RD":
                            return True
            except OSError:
                continue  # ended meanwhile
        return False

    def children(self):
        try:
            with open("/proc/%d/task/%d/children" % (self.service.pid, self.service.pid)) as f:
                return [int(x) for x in f.read().split()]
        except OSError:
            return []

    def settle(self):
        """Until nobody has anything to say at this moment."""
        self.patience = time.monotonic() + 2
        while True:
            socks = [self.github_listen, *self.clients] + ([self.keeper_listen] if self.keeper_up else [])
            ready = select.select([self.wake_r, *[s for s in socks if s.fileno() >= 0]], [], [], QUIET)[0]
            with self.lock:
                self.turn(ready)
            if self.service.poll() is not None:
                assert self.service.returncode == -signal.SIGKILL, "it ended by itself: %s\n%s" % (self.service.returncode, self.text()[-3000:])
                self.kills += 1
                self.start()
                continue
            if not ready or ready == [self.wake_r]:
                if (not self.timers or self.timers[0][0] > self.now()) and not self.still_starting() and not self.awake():
                    return

    def busy(self):
        return any(j["status"] != "completed" for j in self.jobs[-50:]) or \
            any(x["open"] or x["registration"] in ("planned", "made") for x in self.leases.values())

    def advance(self, until):
        while self.now() < until:
            step = STEP if self.busy() else IDLE_STEP
            to = min(until, self.now() + step, self.timers[0][0] if self.timers else until)
            self.set_clock(self.clock.offset + max(to - self.now(), 0.001))
            self.settle()

    def forget(self):
        """What is over is not kept here for ever: this program's own memory and time."""
        over = [k for k, x in self.leases.items() if not x["open"] and x["registration"] in ("none", "gone") and x["outcome"]]
        for k in over[:-20]:
            self.tally(self.leases.pop(k))
        gone = [k for k, r in self.runners.items() if r["gone"] and not r["foreign"]]
        for k in gone[:-60]:
            assert len(self.runners[k]["jobs"]) <= 1, self.runners[k]
            del self.runners[k]
        self.log.clear()

    outcomes_total = None

    def tally(self, lease):
        self.outcomes_total = self.outcomes_total or {}
        self.outcomes_total[lease["outcome"]] = self.outcomes_total.get(lease["outcome"], 0) + 1

    def rss_kib(self):
        with open("/proc/%d/smaps_rollup" % self.service.pid) as f:
            return int(next(line for line in f if line.startswith("Rss")).split()[1])


def slope(points):
    """KiB for 1,000 jobs, by least squares."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    below = sum((x - mx) ** 2 for x, _ in points)
    return 1000 * sum((x - mx) * (y - my) for x, y in points) / below if below else 0.0


def run(a):
    w = Month(os.path.join(BUILD, "boxery-runners"), a.seed, a.vms)
    foreign = [w.register("theirs-%d" % i, foreign=True) for i in range(3)]
    points, done = [], 0
    begin = time.monotonic()
    try:
        w.start()
        gap = a.days * DAY / a.jobs
        w.credential_expires = int(w.wall() + (a.days + 20) * DAY)
        finished = []
        for n in range(a.jobs):
            w.faulty = n < a.jobs // 2 or w.random.random() < 0.02
            if n == a.jobs // 2:  # from here on one life, so that its memory can be compared with itself
                w.faulty = False
            kill_fault, w.kill_fault = w.kill_fault, (w.kill_fault if n < a.jobs // 2 else lambda: None)
            w.job(seconds=w.random.uniform(5, 400), conclusion=w.random.choice(["success", "success", "failure", "cancelled"]),
                  name="job-%d" % n)
            w.advance(w.now() + w.random.expovariate(1 / gap))
            w.kill_fault = kill_fault
            if w.one_in(20):
                w.set_wrongly()
            if n % 20 == 19:
                for j in [j for j in w.jobs if j["status"] == "completed"]:
                    finished.append(j["name"])
                    w.jobs.remove(j)
                wrong = w.faults + w.lost_to_the_clock()
                assert not wrong, wrong
                w.forget()
                w.keep()
                if not a.keep_log:
                    os.ftruncate(w.output.fileno(), 0)
                if n > a.jobs * 0.6:
                    points.append((n, w.rss_kib()))
            if a.verbose and n % 100 == 99:
                print("%d jobs, day %.1f, %d faults, %d kills, %.0f s" % (n + 1, (w.now() - w.started) / DAY, w.injected, w.kills,
                                                                        time.monotonic() - begin), flush=True)
        w.faulty = False
        end = w.now() + 6 * 3600
        while w.now() < end and not (w.settled() and all(j["status"] == "completed" for j in w.jobs)):
            w.advance(w.now() + 60)
        finished += [j["name"] for j in w.jobs if j["status"] == "completed"]
        wrong = [x for x in w.check() if "x MINT" not in x and "x DELIVER" not in x] + w.lost_to_the_clock()
        if len(finished) != len(set(finished)) or len(finished) != a.jobs:
            wrong.append("%d jobs, %d finished, %d of them once: %s" % (a.jobs, len(finished), len(set(finished)),
                                                                       [j for j in w.jobs if j["status"] != "completed"][:3]))
        if not w.settled():
            wrong.append("not settled: %s %s" % ([v["state"] for v in w.vms.values()], [x for x in w.leases.values() if
                                                 x["open"] or x["registration"] not in ("none", "gone") or not x["outcome"]][:3]))
        if max(w.hours.values()) > QUOTA:
            wrong.append("%d calls in one hour" % max(w.hours.values()))
        if any(f["gone"] for f in foreign):
            wrong.append("a foreign runner was deleted")
        for lease in w.leases.values():
            w.tally(lease)
        w.outcomes_total = w.outcomes_total or {}
        done = len(finished)
        growth = slope(points) if len(points) > 10 else 0.0
        if growth > SLOPE_MAX and a.jobs >= SLOPE_JOBS:
            wrong.append("memory grows by %.2f KiB for 1,000 jobs: %s" % (growth, points[:: max(1, len(points) // 10)]))
        print("%d jobs in %.1f days (%.0f s here), seed %d: %d faults, %d kills of the service, the wall clock set wrongly %d times" % (
            done, (w.now() - w.started) / DAY, time.monotonic() - begin, a.seed, w.injected, w.kills, w.steps))
        print("outcomes: " + ", ".join("%s %d" % kv for kv in sorted(w.outcomes_total.items(), key=lambda kv: -kv[1])))
        print("asked a job: " + ", ".join("%s %.2f" % (v, w.requests.get(v, 0) / a.jobs) for v in (
            "MINT", "JOB_OF", "DELETE", "RUNNER", "RUNNERS", "JOBS", "REPOSITORY", "LEASE", "DELIVER")))
        per_job = {v: w.calls.get(v, 0) / a.jobs for v in ("MINT", "JOB_OF", "DELETE", "RUNNER", "RUNNERS", "JOBS", "REPOSITORY")}
        print("calls that count, a job: %s; the busiest hour had %d of %d" % (
            ", ".join("%s %.2f" % kv for kv in per_job.items()), max(w.hours.values()), QUOTA))
        print("memory: %s KiB at the end, %+.2f KiB for 1,000 jobs" % (points[-1][1] if points else "?", growth))
        for x in wrong:
            print("WRONG: " + x)
        if wrong:
            print(w.text()[0 if a.keep_log else -20000:])
        return 1 if wrong else 0
    except Exception:
        print(w.text()[0 if a.keep_log else -5000:])
        raise
    finally:
        w.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--days", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vms", type=int, default=4)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep-log", action="store_true", help="the service's whole log is printed when something is wrong")
    sys.exit(run(parser.parse_args()))
