#!/usr/bin/python3
"""What a hundred and a thousand VMs cost the keeper. Real libvirtd, its test driver for guests, the product's keeper but for its limit
of 240 VMs.

    scale.py [N...]           (default 100 1000; BOXERY_BUILD: the build folder)

Columns: what it takes per VM to fill the pool (three transitions and two children each); one start of the keeper, to its first
answer and to the first comparison with libvirt; one transition as a client sees it (LEASE and RELEASE of a READY VM, one commit
each) and what it costs the keeper's CPU with all that follows; memory and CPU when nothing happens for 30 s. The watch is the
keeper's one long-lived child, listing all domains every 10 s.
"""
import os
import statistics
import sys
import time

BUILD = os.path.abspath(os.environ.get("BOXERY_BUILD", os.path.join(os.path.dirname(__file__), "../../build")))
os.environ.setdefault("BOXERY_FAULT_BINARIES", os.path.join(BUILD, "tests/fault"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fault"))
from keeper_world import WAIT  # noqa: E402
from walk_world import World, enter  # noqa: E402

SAMPLES, IDLE_S, PER_ORIGINAL = 300, 30, 200
TICK = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def run_s(pid):
    """As the scheduler counts it, which is finer than ticks; without the children's."""
    with open(f"/proc/{pid}/schedstat", encoding="utf-8") as f:
        return int(f.read().split()[0]) / 1e9


def memory_kib(pid):
    out = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
        for line in f:
            key, _, rest = line.partition(":")
            if rest.endswith("kB\n"):
                out[key] = int(rest.split()[0])
    return out


def until(what, probe, timeout=600, every=0.005):
    end = time.monotonic() + timeout
    while not probe():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(every)


def vms(w):
    return w.call("LIST", timeout=60)["document"]["vms"]


def ready(w, n):
    states = [v["state"] for v in vms(w)]
    return states.count("READY") == n


def fill(w, n):
    began = time.monotonic()
    for i in range(0, n, PER_ORIGINAL):
        name = f"o{i // PER_ORIGINAL}"
        w.call("NEW", timeout=600, name=name, image="tiny", cpus=1, memory_mib=128, disk_gib=1)
        w.call("POOL_ADD", timeout=600, name=name, pool="default", count=min(PER_ORIGINAL, n - i), flags=WAIT)
    until("all READY", lambda: ready(w, n), every=0.1)
    return time.monotonic() - began


def transitions(w):
    lease_ms, release_ms = [], []
    cpu, c = run_s(w.keeper.pid), w.client()
    for _ in range(SAMPLES):
        t = time.perf_counter()
        lease = c.call("LEASE", holder="bench", pool="default", ttl_ms=3600000, wait_ms=60000)["lease"]
        lease_ms.append((time.perf_counter() - t) * 1000)
        t = time.perf_counter()
        c.call("RELEASE", lease=lease, text="done")
        release_ms.append((time.perf_counter() - t) * 1000)
        time.sleep(0.02)
    c.close()
    return lease_ms, release_ms, cpu


def start(w):
    began = time.perf_counter()
    w.start()
    answers = time.perf_counter() - began
    until("compared with libvirt", lambda: all(v["running"] for v in vms(w) if v["state"] == "READY"), 60)
    return answers * 1000, (time.perf_counter() - began) * 1000, run_s(w.keeper.pid) * 1000


def p95(values):
    return statistics.quantiles(values, n=20)[18]


def measure(folder, n):
    w = World(folder, host_env="BOXERY_PARALLEL=4\n", clock=False)
    w.start()
    row = {"VMs": n, "fill, ms/VM": fill(w, n) * 1000 / n}
    starts = []
    for _ in range(3):
        w.kill()
        starts.append(start(w))
    row["start: answers, ms"], row["start: compared, ms"], row["start: CPU, ms"] = map(statistics.median, zip(*starts))
    lease_ms, release_ms, cpu = transitions(w)
    until("all READY again", lambda: ready(w, n), every=0.1)
    row["LEASE median, ms"], row["LEASE p95, ms"] = statistics.median(lease_ms), p95(lease_ms)
    row["RELEASE median, ms"], row["RELEASE p95, ms"] = statistics.median(release_ms), p95(release_ms)
    # LEASE, RELEASE, RESET_DONE, START, STARTED
    row["CPU per transition, ms"] = (run_s(w.keeper.pid) - cpu) * 1000 / SAMPLES / 5
    memory = memory_kib(w.keeper.pid)
    row["busy: RSS, KiB"] = memory["Rss"]
    # A keeper that has only come up and taken over, and one that has worked, are two things.
    w.kill()
    start(w)
    time.sleep(1)
    pids = [w.keeper.pid, w.children("vm")[0]]
    before = [run_s(p) for p in pids]
    time.sleep(IDLE_S)
    after = [run_s(p) for p in pids]
    memory = memory_kib(w.keeper.pid)
    row["RSS, KiB"], row["PSS, KiB"] = memory["Rss"], memory["Pss"]
    row["anonymous, KiB"] = memory["Anonymous"]
    row["idle: keeper, % of a core"] = (after[0] - before[0]) * 100 / IDLE_S
    row["idle: watch, % of a core"] = (after[1] - before[1]) * 100 / IDLE_S
    row["watch: PSS, KiB"] = memory_kib(pids[1])["Pss"]
    row["database, KiB"] = os.stat(w.path("state/boxery.db")).st_size / 1024
    w.end()
    w.close()
    return row


def main():
    sizes = [int(x) for x in sys.argv[1:]] or [100, 1000]
    if len(sizes) > 1 and "BOXERY_WALK" not in os.environ:
        status = 0
        for n in sizes:  # each in a world of its own
            status |= os.spawnv(os.P_WAIT, sys.executable, [sys.executable, sys.argv[0], str(n)])
        sys.exit(status)
    row = measure(enter("scale"), sizes[0])
    print(f"{os.getloadavg()[0]:.1f} load of the machine, {os.cpu_count()} cores")
    for key, value in row.items():
        print(f"{key:28} {value:10.3f}" if isinstance(value, float) else f"{key:28} {value:10}", flush=True)


if __name__ == "__main__":
    main()
