#!/usr/bin/python3
"""From a job being queued to its first line: stage times with VMs that are READY, on real VMs and the emulator.

    pickup.py [--jobs 5] [--vms 2] [--poll 5s]      (BOXERY_BUILD: the build folder)

Each row is the time since the job was queued, in seconds: the median, the fastest, the slowest, and the median's step from the row
before. The first row, until the
service has seen the job, is on average half of poll_interval and not boxery's speed; what follows is. `connected`, `assigned` and
`started` are GitHub's (the emulator's) times, the others are the keeper's. A quiet machine counts; others are noise.
"""
import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lab import LABELS, REPO, Lab, ensure_image, wait_until  # noqa: E402


def wall_of_boot():
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def one_job(lab, boot):
    """Stage -> seconds since the job was queued."""
    before = {r["id"] for r in lab.emulator.state()["runners"]}
    job = lab.emulator.job(REPO, LABELS, "true")
    done = lab.emulator.wait_job(job["id"], timeout=600)
    runner = next(r for r in lab.emulator.state()["runners"] if r["id"] not in before and r["jobs"])
    lease = wait_until("its lease", lambda: next((x for x in lab.host_json("lease", "ls", "--all")["leases"]
                                                  if x["runner_name"] == runner["name"]), None))
    out = {}
    for event in lab.host_json("history", lease["lease"])["events"]:
        name = event["kind"]
        if name == "registration":  # planned, made, gone
            name += " " + event["text"].split(",")[0]
        elif name == "note" and not event["text"].startswith("GitHub: job"):  # those are GitHub's own times, noted later
            name += ": " + event["text"]
        elif name == "note":
            continue
        out.setdefault(name[:48], event["boot_us"] / 1e6 + boot - done["created"])
    out["GitHub: runner connected"] = runner["connected"] - done["created"]
    for key in ("assigned", "started", "completed"):
        out["GitHub: job " + key] = done[key] - done["created"]
    return out


def table(rows):
    print("%-50s %8s %8s %8s %8s" % ("since the job was queued (s)", "median", "fastest", "slowest", "step"))
    before = 0.0
    for stage, values in sorted(rows.items(), key=lambda kv: statistics.median(kv[1])):
        median = statistics.median(values)
        print("%-50s %8.3f %8.3f %8.3f %8.3f" % (stage, median, min(values), max(values), median - before))
        before = median


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--vms", type=int, default=2)
    parser.add_argument("--poll", default="5s")
    a = parser.parse_args()
    ensure_image()
    with Lab("pickup") as lab:
        for i in range(a.vms):
            lab.new_pool_vm("pick-%d" % (i + 1), wait=False)
        lab.configure(max=a.vms, poll_interval=a.poll)
        lab.start_runners()
        wait_until("the service", lambda: "served" in lab.log("log/runners.log"))
        boot, rows = wall_of_boot(), {}
        for _ in range(a.jobs):
            wait_until("READY VMs", lambda: all(v["state"] == "READY" for v in lab.host_json("ls")["vms"]), 600)
            stages = one_job(lab, boot)
            print("a job: leased after %.3f s, began %.3f s after that" % (
                stages["LEASE"], stages["GitHub: job started"] - stages["LEASE"]), flush=True)
            for stage, seconds in stages.items():
                rows.setdefault(stage, []).append(seconds)
        table(rows)


if __name__ == "__main__":
    main()
