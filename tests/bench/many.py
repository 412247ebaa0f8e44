#!/usr/bin/python3
"""Many VMs that have to be clean again: all of them at once, and one after the other. Real guests of 384 MiB and one CPU.

    many.py [--vms N] [--rounds N] [--at-once N] [--keep] [--json FILE]

(default: 20 VMs, 3 rounds, BOXERY_PARALLEL=20; BOXERY_BUILD: the build folder, BOXERY_LAB: where the image of the tests is.)
Each VM is booted and captured once before: minutes for twenty on two cores; with --keep the world's files stay, and the next
run with --keep has them captured already. In a round all VMs are leased; then all leases are
given back in one moment, and later, leased again, one after the other, the next when the last one is READY. Milliseconds, from the
end of a VM's lease to READY (standby), by the keeper's timelines; and VMs per second over the whole. `lease` is what the twenty
lease calls took, asked for at once.
"""
import argparse
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from keeper_world import Client  # noqa: E402
from stages import Product, Samples, lablib, load  # noqa: E402

CAPTURE_S, READY_S = 3600, 900


def note(text):
    print("  " + text, file=sys.stderr, flush=True)


class Pool:
    def __init__(self, lab):
        self.lab, self.path = lab, os.path.join(lab.dir, "run", "boxery", "keeper.sock")

    def call(self, kind, **values):
        client = Client(self.path, timeout=READY_S)
        try:
            return client.call(kind, **values)
        finally:
            client.close()

    def ready(self, n):
        def all_ready():
            states = [v["state"] for v in self.call("LIST")["document"]["vms"]]
            if "BROKEN" in states:
                raise lablib.Failed("a VM is BROKEN")
            return states.count("READY") == n
        lablib.wait_until("%d VMs READY" % n, all_ready, READY_S, every=0.1)

    def lease(self, out=None):
        began = time.perf_counter()
        answer = self.call("LEASE", holder="bench", pool="default", wait_ms=READY_S * 1000)
        if out is not None:
            out.add("lease, all at once", (time.perf_counter() - began) * 1000)
        return answer["lease"]

    def lease_all(self, n, out):
        leases, threads = [], [threading.Thread(target=lambda: leases.append(self.lease(out))) for _ in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if len(leases) != n:
            raise lablib.Failed("%d of %d leases were granted" % (len(leases), n))
        return leases

    def took_ms(self, lease):
        """From the end of the lease to READY."""
        events = self.call("HISTORY", lease=lease)["document"]["events"]
        at = {e["kind"]: e["boot_us"] for e in events if e["kind"].isupper()}
        if "START_FAILED" in at or "RESET_FAILED" in at or "STARTED" not in at:
            raise lablib.Failed("lease %s went another way: %s" % (lease, [e["kind"] + " " + e["text"] for e in events]))
        return (at["STARTED"] - at["RELEASE"]) / 1000


def one_round(pool, n, out):
    leases = pool.lease_all(n, out)
    began = time.monotonic()
    for lease in leases:
        pool.call("RELEASE", lease=lease, text="bench")
    pool.ready(n)
    out.add("at once, VMs per second", n / (time.monotonic() - began))
    for lease in leases:
        out.add("at once, each", pool.took_ms(lease))
    leases = pool.lease_all(n, out)
    began = time.monotonic()
    for i, lease in enumerate(leases):
        pool.call("RELEASE", lease=lease, text="bench")
        pool.ready(i + 1)
        out.add("one at a time, each", pool.took_ms(lease))
    out.add("one at a time, VMs per second", n / (time.monotonic() - began))


def set_parallel(lab, n):
    """For the next keeper."""
    with open(os.path.join(lab.dir, "config", "host.env"), encoding="utf-8") as f:
        settings = [line for line in f if not line.startswith("BOXERY_PARALLEL=")]
    lab.write("config/host.env", "".join(settings) + "BOXERY_PARALLEL=%d\n" % n)


def capture_all(lab, n):
    set_parallel(lab, os.cpu_count())  # while they boot: more at once than there are CPUs only makes each slower
    there = len(lab.host_json("ls")["vms"])
    if there not in (0, n):
        raise lablib.Failed("%s has %d VMs, not %d" % (lab.dir, there, n))
    if not there:
        lab.host("new", "m", "--image", lablib.IMAGE, "--memory", "384M", "--cpus", "1")
        lab.host("pool", "add", "m", "--count", str(n))
    began = time.monotonic()

    def captured():
        states = [v["state"] for v in lab.host_json("ls")["vms"]]
        if "BROKEN" in states:
            raise lablib.Failed("a VM is BROKEN:\n%s" % lab.host("pool", "ls").stdout)
        return states.count("READY") == n
    note("%d captures" % (n - there))
    lablib.wait_until("all captured", captured, CAPTURE_S, every=2)
    note("captured in %.0f s" % (time.monotonic() - began))
    lab.host("keeper", "stop")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--vms", type=int, default=20)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--at-once", type=int, default=20)
    p.add_argument("--keep", action="store_true")
    p.add_argument("--json")
    arguments = p.parse_args()
    lablib.ensure_image(note)
    out = Samples()
    with lablib.Lab("bench-many", keep=arguments.keep) as lab:
        pool = Pool(lab)
        capture_all(lab, arguments.vms)
        set_parallel(lab, arguments.at_once)
        lab.host("ls")
        pool.ready(arguments.vms)
        Product(lab).round("m")
        for i in range(arguments.rounds):
            one_round(pool, arguments.vms, out)
            note("round %d of %d" % (i + 1, arguments.rounds))
    out.show("%d VMs" % arguments.vms)
    print("\n" + load())
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump({"load": os.getloadavg()[0], "vms": arguments.vms, "figures": out.figures()}, f, indent=2)


if __name__ == "__main__":
    main()
