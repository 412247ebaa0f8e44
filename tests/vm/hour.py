#!/usr/bin/python3
"""An hour of jobs on real VMs at real time, with faults at random: what the simulated month (tests/fault/month.py) cannot show.

    hour.py [--minutes 60] [--vms 2] [--gap 8] [--seed 1] [--memory 512M] [--start-timeout 180]     (BOXERY_BUILD: the build folder)

Jobs come every `gap` seconds on average, as long as not too many wait. Each looks for what an earlier one has left behind,
leaves such things itself (files, processes, a full /tmp), and ends well or badly. Every half minute or so something is killed with
SIGKILL (the service, its boxery-github, the keeper, a guest's QEMU), or GitHub fails, limits, is slow or loses an answer. At the end no
fault is added, and it is waited for that all is over. Checked: every job ended once, on one runner, and only those whose guest was
killed without a word of theirs; none found a trace; each VM is READY; no lease and no registration of ours is left; the
foreign runners are still there; each lease has an outcome. --start-timeout is the host's BOXERY_START_TIMEOUT (seconds): under
emulation on a host whose processors are shared with much else a boot does not end in the usual three minutes, and a VM that fails
to three times in a row is rightly BROKEN. Prints a line a minute. Exit status 1 when something is wrong; the same seed gives the same faults
in the same order, not at the same moment of a VM's life.
"""
import argparse
import collections
import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_kill import LABELS, REPO, Lab, boxery, wait_until  # noqa: E402
from lab import ensure_image  # noqa: E402

GITHUB = {
    "503": {"action": "answer", "status": 503, "body": "busy"}, "502 after acting": {"action": "answer-after", "status": 502, "body": "x"},
    "limit": {"action": "rate-limit", "kind": "secondary", "status": 403}, "slow": {"action": "delay", "delay_ms": 8000},
    "lost answer": {"action": "drop-after"}}
WAITING_MAX = 6
FAULT_GAP_S = (15, 45)
LINGER_S, LOST_S = 10, 60  # GitHub keeps a used registration so long; gives a job whose runner is silent up after this
SCRIPT = """set -eu
for x in /tmp/boxery-trace /root/boxery-trace /var/tmp/boxery-trace /etc/cron.d/boxery-trace /dev/shm/boxery-trace; do
	[ ! -e "$x" ] || { echo "TRACE $x"; exit 9; }
	touch "$x" 2>/dev/null || sudo -n touch "$x" 2>/dev/null || true
done
trace=boxery-trace # in pieces, or this script would find itself
! pgrep -f "$trace-proces[s]" >/dev/null || { echo "TRACE process"; exit 9; }
(setsid -f bash -c "exec -a $trace-process sleep 100000" || true) >/dev/null 2>&1 </dev/null
echo "job %(name)s begins"
%(body)s
"""
BODIES = [("sleep %d", 0), ("sleep %d; exit 3", 3), ("head -c 20000000 /dev/zero >/tmp/boxery-fill; sleep %d", 0)]


class Hour:
    def __init__(self, lab, a):
        self.lab, self.a, self.random = lab, a, random.Random(a.seed)
        self.jobs, self.faults, self.wrong = {}, collections.Counter(), []
        self.service = None
        self.rss = []

    def look_after(self):
        """What systemd does, and what the next command does for the keeper."""
        if self.service is None or self.service.poll() is not None:
            self.service = self.lab.start_runners()

    def kill(self, name):
        pids = boxery(self.lab, {"service": "runners"}.get(name, name))
        if not pids:
            return False
        pid = self.random.choice(pids)
        os.kill(pid, signal.SIGKILL)
        if name == "service" and self.service.poll() is None:
            self.service.wait(20)
        return True

    def github(self, kind):
        method, path = self.random.choice([("POST", "generate-jitconfig"), ("GET", "actions/runs"), ("GET", "actions/runners"),
                                           ("DELETE", "actions/runners/"), ("GET", "")])
        self.lab.emulator.fault(method, path, count=1 if kind == "limit" else self.random.randint(1, 3), **GITHUB[kind])
        return True

    def fault(self):
        name, act = self.random.choice(
            [(n, self.kill) for n in ("service", "github", "keeper", "qemu", "service", "keeper")] +
            [(n, self.github) for n in GITHUB])
        if act(name):
            self.faults[name] += 1

    def job(self):
        name = "job-%d" % len(self.jobs)
        body, code = self.random.choice(BODIES)
        script = SCRIPT % {"name": name, "body": body % self.random.randint(1, 25)}
        self.jobs[self.lab.emulator.job(REPO, LABELS, script, name=name)["id"]] = code

    def waiting(self):
        return [j for j in self.lab.emulator.state()["jobs"] if j["status"] != "completed"]

    def memory(self):
        out = {}
        for name in ("runners", "github", "keeper"):
            for pid in boxery(self.lab, name)[:1]:
                try:
                    with open("/proc/%d/smaps_rollup" % pid, encoding="utf-8") as f:
                        out[name] = int(next(x for x in f if x.startswith("Rss")).split()[1])
                except (OSError, StopIteration):
                    pass
        return out

    def run(self):
        begin = time.monotonic()
        end, next_job, next_fault, next_line = begin + self.a.minutes * 60, begin, begin + 30, begin + 60
        while time.monotonic() < end:
            now = time.monotonic()
            self.look_after()
            if now >= next_job and len(self.waiting()) < WAITING_MAX:
                self.job()
                next_job = now + self.random.expovariate(1 / self.a.gap)
            if now >= next_fault:
                self.fault()
                next_fault = now + self.random.uniform(*FAULT_GAP_S)
            if now >= next_line:
                left = self.waiting()
                print("minute %2d: %3d jobs, %d not over; %s; RSS KiB %s; load %.1f" % (
                    (now - begin) / 60, len(self.jobs), len(left), ", ".join("%s %d" % kv for kv in sorted(self.faults.items())),
                    self.memory(), os.getloadavg()[0]), flush=True)
                next_line += 60
            time.sleep(0.5)
        self.lab.emulator.clear_faults()

    def over(self):
        self.look_after()
        if self.waiting():
            return False
        ours = [r for r in self.lab.emulator.runners() if not r["foreign"] and r["state"] != "gone"]
        return not ours and all(v["state"] == "READY" for v in self.lab.host_json("ls")["vms"]) and \
            not self.lab.host_json("lease", "ls")["leases"]

    def check(self, foreign):
        say, died = self.wrong.append, 0
        state = self.lab.emulator.state()
        ran = collections.Counter(j for r in state["runners"] for j in r["jobs"])
        for job in state["jobs"]:
            if job["id"] not in self.jobs:
                continue
            log = self.lab.emulator.log(job["id"])
            expected = "success" if self.jobs[job["id"]] == 0 else "failure"
            if "TRACE" in log:
                say("%s found what an earlier one had left: %s" % (job["name"], log[-300:]))
            if ran[job["id"]] != 1:
                say("%s was given out %d times" % (job["name"], ran[job["id"]]))
            if job["status"] != "completed":
                say("%s is %s" % (job["name"], job["status"]))
            elif job["exit_code"] is None and job["conclusion"] == "failure":
                died += 1  # with its guest
            elif job["conclusion"] != expected:
                say("%s ended as %s, not %s: %s" % (job["name"], job["conclusion"], expected, log[-300:]))
        for r in state["runners"]:
            if len(r["jobs"]) > 1:
                say("runner %s had %d jobs" % (r["name"], len(r["jobs"])))
            if r["foreign"] and r["state"] == "gone":
                say("a foreign runner was deleted")
        if len([r for r in state["runners"] if r["foreign"]]) != foreign:
            say("a foreign runner is missing")
        if died > self.faults["qemu"]:
            say("%d jobs died, %d guests were killed" % (died, self.faults["qemu"]))
        outcomes = collections.Counter(x["outcome"] for x in self.lab.host_json("lease", "ls", "--all")["leases"])
        if outcomes[""]:
            say("%d leases have no outcome" % outcomes[""])
        print("%d jobs, %d died with their guest; faults: %s; outcomes of the last leases: %s" % (
            len(self.jobs), died, dict(self.faults), dict(outcomes)))
        requests = self.lab.emulator.requests()
        counted = collections.Counter(r["method"] + " " + re.sub(r"\d+", "N", r["path"].split("actions/")[-1].split("?")[0])
                                      for r in requests if r["status"] != 304)
        print("calls that count, of the last %d: %s; registered %.2f times a job" % (
            len(requests), ", ".join("%s %d" % kv for kv in counted.most_common()),
            len([r for r in state["runners"] if not r["foreign"]]) / max(1, len(self.jobs))))
        for x in self.wrong:
            print("WRONG: " + x)
        return 1 if self.wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--vms", type=int, default=2)
    parser.add_argument("--gap", type=float, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--start-timeout", type=int, default=180)
    a = parser.parse_args()
    ensure_image()
    with Lab("hour") as lab:
        lab.emulator.settings(linger_seconds=LINGER_S, lease_seconds=LOST_S)
        with open(os.path.join(lab.dir, "config", "host.env"), "a", encoding="utf-8") as f:
            f.write("BOXERY_START_TIMEOUT=%ds\n" % a.start_timeout)
        foreign = [lab.emulator.call("POST", "runners", {"repo": REPO, "name": "theirs-%d" % i, "labels": ["other"]}) for i in range(3)]
        for i in range(a.vms):
            lab.host("new", "hour-%d" % (i + 1), "--image", "lab", "--memory", a.memory)
            lab.host("pool", "add", "hour-%d" % (i + 1), "--wait")
        lab.configure(max=a.vms, start_timeout="2m", idle_timeout="2m", job_timeout="10m")
        hour = Hour(lab, a)
        try:
            hour.run()
            wait_until("all is over", hour.over, 900, 2)
        except Exception as e:  # noqa: BLE001 - what is there is said all the same
            hour.wrong.append(str(e))
        status = hour.check(len(foreign))
        if status:
            print(lab.log("log/runners.log")[-8000:])
        return status


if __name__ == "__main__":
    sys.exit(main())
