#!/usr/bin/python3
"""What the runner service costs a host with 1, 10 and 100 running jobs: memory and CPU of each process, and calls to GitHub.

    service.py [N...]          (default 1 10 100; BOXERY_BUILD: the build folder)
    service.py --running N     or --waiting N: one of the two

The real keeper (built with short times for tests), the real boxery-runners and boxery-github with the product's own interval of 15 s, the emulator over
TLS; a guest is the stand-in runner as a process of this host, whose job sleeps. Measured for 60 s with all jobs running, then
once more with as many runners that wait for a job (registered: N). Not counted: VMs, libvirtd, and the keeper's watch, which
tests/bench/scale.py measures. A new registration takes a second by itself, as GitHub asks: 100 of them take two minutes.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BOXERY_BUILD", os.path.join(HERE, "../../build")))
SPAN_S = 60
os.environ.setdefault("BOXERY_FAULT_BINARIES", os.path.join(BUILD, "tests", "fault"))
sys.path[:0] = [os.path.join(HERE, "..", "fault"), HERE]
SIZES = sys.argv[1:]
sys.argv[1:] = [BUILD]  # where test_service_real looks
import keeper_world  # noqa: E402
from scale import memory_kib, run_s, until  # noqa: E402
from test_service_real import LABELS, REPO, Host  # noqa: E402

YAML = "version: 1\nrunners:\n  - repo: %s\n    labels: [%s]\n    max: %d\n    start_timeout: 30m\n    idle_timeout: 5h\n"


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as f:
        return [int(x) for x in f.read().split()]


def name_of(pid):
    return os.path.basename(os.readlink("/proc/%d/exe" % pid))


def ask_status(h, **more):
    return subprocess.run([os.path.join(BUILD, "boxery-host"), "runners", "status", "--json"], env=h.world.env,
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, **more)


def status(h):
    return json.loads(ask_status(h, check=True).stdout)


def measure(h, n, what):
    pids = {"boxery-keeper": h.world.keeper.pid, "boxery-runners": h.service.pid}
    pids.update({name_of(p): p for p in children(h.service.pid) if name_of(p) == "boxery-github"})
    before, calls = {k: run_s(p) for k, p in pids.items()}, status(h)["budget"]
    time.sleep(SPAN_S)
    after, now = {k: run_s(p) for k, p in pids.items()}, status(h)["budget"]
    for name, pid in sorted(pids.items()):
        m = memory_kib(pid)
        print("%4d %-8s %-16s %8d %8d %10d %10.2f" % (n, what, name, m["Rss"], m["Pss"], m["Anonymous"],
                                                     (after[name] - before[name]) * 100 / SPAN_S))
    print("%4d %-8s calls an hour: %d that count, %d unchanged" % (n, what, (now["calls"] - calls["calls"]) * 3600 / SPAN_S,
          (now["calls_unchanged"] - calls["calls_unchanged"]) * 3600 / SPAN_S), flush=True)


def in_state(h, n, state):
    return sum(x["state"] == state for x in status(h)["leases"]) == n


def start(h):
    h.start()
    # The socket has its name before it listens.
    until("it can be asked", lambda: ask_status(h, check=False, stderr=subprocess.DEVNULL).returncode == 0, 60)


def running(h, n):
    for i in range(n):
        h.emulator.job(REPO, LABELS, "sleep 100000", name="job-%d" % i)
    began = time.monotonic()
    start(h)
    until("all jobs run", lambda: in_state(h, n, "busy"), 1200, 1)
    print("%4d jobs run after %.0f s" % (n, time.monotonic() - began), flush=True)


def waiting(h, n):
    h.world.write("config/runners.yaml", YAML % (REPO, ", ".join(LABELS), n) + "    registered: %d\n" % n)
    start(h)
    until("all runners wait", lambda: in_state(h, n, "idle"), 1200, 1)


def one(begin, n):
    keeper_world.enter_namespace()
    h = Host(n)
    try:
        h.emulator.settings(poll_seconds=50, offline_after=600)
        h.world.write("config/runners.yaml", YAML % (REPO, ", ".join(LABELS), n))
        begin(h, n)
        time.sleep(20)  # what came with the start is over
        measure(h, n, begin.__name__)
    finally:
        h.close()


MODES = {"--running": running, "--waiting": waiting}


def main():
    if len(SIZES) == 2 and SIZES[0] in MODES:
        one(MODES[SIZES[0]], int(SIZES[1]))
        return 0
    print("load of the machine %.1f, %d cores" % (os.getloadavg()[0], os.cpu_count()))
    print("%4s %-8s %-16s %8s %8s %10s %10s" % ("N", "", "KiB:", "RSS", "PSS", "anonymous", "% of a core"), flush=True)
    worst = 0
    for n in SIZES or ["1", "10", "100"]:
        for mode in MODES:
            worst = max(worst, subprocess.call([sys.executable, __file__, mode, n]))
    return worst


if __name__ == "__main__":
    sys.exit(main())
