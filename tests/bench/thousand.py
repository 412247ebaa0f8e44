#!/usr/bin/python3
"""Warm resets of one VM in a row: none slower than three times the median, nothing that grows, no check that fails.

    thousand.py [N] [--json FILE]

(default 1000; BOXERY_BUILD: the build folder, BOXERY_LAB: where the image of the tests is.) One real guest of 384 MiB and one CPU;
a reset is a whole round: lease out of standby, given back, destroyed, restored, READY. A line per 50 rounds. Exit status 1: a round
failed, was not warm, or something is larger at the end than its limit allows; what was slow is said and not judged when the machine
has other work (load above twice its cores).

Growth is from the 20th round, when what is made once is there, to the last: files of the world, the fds of keeper, watch and
libvirtd, and their memory (RSS). The database and the log have limits of their own and are shown.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stages import Product, lablib, load, world_pids  # noqa: E402

SETTLED, EVERY, SLOW = 20, 50, 3
# Of libvirtd only what can be its fault for us is judged: fds. Its heap is its own.
LIMITS = {"files of the world": 2, "fds of keeper": 2, "RSS of keeper, KiB": 2048, "fds of watch": 2, "RSS of watch, KiB": 2048,
          "fds of libvirtd": 4, "processes of the world": 1}


def note(text):
    print("  " + text, flush=True)


def rss_kib(pid):
    with open("/proc/%d/statm" % pid, encoding="utf-8") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def fds(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def started(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8") as f:
        return int(f.read().rsplit(")", 1)[1].split()[19])


def members(lab):
    """pid -> name of everything that runs in the world's mount namespace."""
    mine, out = os.readlink("/proc/%d/ns/mnt" % world_pids(lab)[1]), {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/ns/mnt" % pid) == mine:
                out[int(pid)] = os.path.basename(os.readlink("/proc/%s/exe" % pid))
        except OSError:
            continue
    return out


def size_kib(lab, *parts):
    try:
        return os.stat(os.path.join(lab.dir, *parts)).st_size // 1024
    except FileNotFoundError:
        return 0


def look(lab):
    keeper, libvirtd = lab.keeper_pid(), world_pids(lab)[0]
    processes = members(lab)
    # The oldest of its kind; the others come and go.
    watch = min((pid for pid, name in processes.items() if name == "boxery-vm"), key=started)
    out = {"files of the world": sum(len(files) for _, _, files in os.walk(lab.dir)), "processes of the world": sum(name != "boxery-vm" for name in processes.values())}
    for name, pid in (("keeper", keeper), ("watch", watch), ("libvirtd", libvirtd)):
        out["fds of " + name] = fds(pid)
        out["RSS of %s, KiB" % name] = rss_kib(pid)
    out["database, KiB"] = size_kib(lab, "state", "boxery.db")
    out["keeper.log, KiB"] = size_kib(lab, "state", "keeper.log")
    return out


def rounds(lab, n):
    """Milliseconds of each: lease, and end of the lease to READY. Raises at the first that fails or is not warm."""
    product, lease_ms, again_ms, first = Product(lab), [], [], None
    for i in range(n):
        stages = product.round("one")
        if ("start", "restore") not in stages or ("lease", "resume") not in stages:
            raise lablib.Failed("round %d was not warm: %s" % (i + 1, sorted(stages)))
        lease_ms.append(stages["lease", "total"])
        again_ms.append(stages["again", "total"])
        if i + 1 == min(SETTLED, n):
            first = look(lab)
        if (i + 1) % EVERY == 0:
            note("%5d  again: median %.0f, slowest %.0f ms; %s" % (i + 1, statistics.median(again_ms[-EVERY:]), max(again_ms[-EVERY:]),
                                                               ", ".join("%s %d" % item for item in look(lab).items())))
    return lease_ms, again_ms, first, look(lab)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("n", type=int, nargs="?", default=1000)
    p.add_argument("--json")
    arguments = p.parse_args()
    lablib.ensure_image(note)
    faults, began = [], time.monotonic()
    with lablib.Lab("bench-thousand") as lab:
        lab.host("new", "one", "--image", lablib.IMAGE, "--memory", "384M", "--cpus", "1")
        lab.host("pool", "add", "one", "--wait")
        Product(lab).round("one")
        lease_ms, again_ms, first, last = rounds(lab, arguments.n)
    result = {"load": os.getloadavg()[0], "rounds": arguments.n, "minutes": (time.monotonic() - began) / 60}
    for name, ms in (("lease", lease_ms), ("again", again_ms)):
        median, slowest = statistics.median(ms), max(ms)
        result[name] = {"median_ms": median, "slowest_ms": slowest, "times": slowest / median}
        print("%-12s median %.1f ms, slowest %.1f ms: %.2f times the median (goal: below %d)" % (name, median, slowest,
                                                                                            slowest / median, SLOW))
        if slowest > SLOW * median and result["load"] <= 2 * os.cpu_count():
            faults.append("%s: the slowest of %d took %.1f times the median" % (name, arguments.n, slowest / median))
    result["growth"] = {key: last[key] - first[key] for key in last}
    for key, more in result["growth"].items():
        print("%-28s %8d -> %8d" % (key, first[key], last[key]))
        if key in LIMITS and more > LIMITS[key]:
            faults.append("%s: %d more after %d rounds" % (key, more, arguments.n))
    print(load())
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=2)
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
