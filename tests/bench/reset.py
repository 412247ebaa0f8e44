#!/usr/bin/python3
"""How fast a VM is clean again, by stage, beside the same done by hand with virsh and qemu-img, in the same run.

    reset.py [--rounds N] [--cold N] [--deliveries N] [--guest small|debian]... [--json FILE] [--plot STEM]

(default: 8 rounds, 3 cold, 3 deliveries, both guests, the plot in ./reset.svg and ./reset.png; BOXERY_BUILD: the build folder,
BOXERY_LAB: where the image of the tests is.) Root; five minutes on two idle cores with an image that is there.

small    the image of the tests with 384 MiB and one CPU
debian   the same with 1 GiB and two

In each round the product's VM is leased and given back once (`boxery-host pool bench`, whose stages these are), and its twin, made
from the same clean state, is reset and woken once by hand, so that whatever else the machine does hits both alike. "libvirt: X" is
what virsh --timing says of its call: the part of a step that is not the start of a program and its connection.

Phases of the product: `lease`, from the asking to the reply; `reset` and `start`, from the end of the lease to READY (standby);
`again`: both. `keeper` is what is left of a total without the stages of boxery-vm: commits, the start of children, the queue.
"""
import argparse
import base64
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
import plot  # noqa: E402
from keeper_world import BIND, Client  # noqa: E402
from proto import memfd  # noqa: E402
from stages import Hand, Product, Samples, bytes_written, lablib, load  # noqa: E402

GUESTS = {"small": ("384M", "1"), "debian": ("1G", "2")}
JIT = base64.b64encode(b'{"benchmark": "%s"}' % (b"not a registration " * 8))


def note(text):
    print("  " + text, file=sys.stderr, flush=True)


def qemu_pid(lab, name):
    with open(os.path.join(lab.dir, "run", "libvirt", "qemu", name + ".pid"), encoding="utf-8") as f:
        return int(f.read())


def product_round(product, name, out):
    cpu, written = product.cpu_ms(), product.written()
    for (phase, stage), ms in product.round(name).items():
        out.add("%s: %s" % (phase, stage), ms)
    # The QEMU of the life before has ended and is in the sum, the one that waits now is not yet.
    out.add("bytes written, KiB", (product.written() + bytes_written(qemu_pid(product.lab, name)) - written) / 1024)
    out.add("CPU of keeper and children", product.cpu_ms() - cpu)


def cold_rounds(product, pool, name, n, out):
    """The start of each round is a cold one; the first lease is still of a VM that was warm."""
    product.host("pool", "set", pool, "--start", "cold")
    for i in range(n):
        for (phase, stage), ms in product.round(name).items():
            if phase != "lease" or i > 0:
                out.add("%s: %s" % (phase, stage), ms)
        note("cold %d of %d" % (i + 1, n))
    product.host("pool", "set", pool, "--start", "warm")


def delivery(product, name, out):
    """What it takes to hand the secret over by ssh, apart. The runner in the guest cannot do anything with this one."""
    lablib.wait_until("READY", lambda: product.lab.vm(name)["state"] == "READY")
    client = Client(os.path.join(product.lab.dir, "run", "boxery", "keeper.sock"), timeout=120)
    try:
        lease = client.call("LEASE", name=name, holder="bench", wait_ms=60000, flags=BIND)["lease"]
        fd = memfd(JIT)
        began = time.perf_counter()
        client.call("DELIVER", secret=fd, lease=lease)
        out.add("DELIVER to its reply", (time.perf_counter() - began) * 1000)
        os.close(fd)
        client.call("RELEASE", lease=lease, text="bench")
    finally:
        client.close()


def measure(lab, guest, arguments):
    memory, cpus = GUESTS[guest]
    lab.host("new", guest, "--image", lablib.IMAGE, "--memory", memory, "--cpus", cpus)
    note("%s: captures" % guest)
    lab.host("pool", "add", guest, "--pool", guest, "--count", "2", "--wait")
    product, twin = Product(lab), guest + "-2"
    lab.wait_state(twin, "READY")
    hand = Hand(lab, product, twin)
    out = {"warm": Samples(), "cold": Samples(), "delivery": Samples(), "hand": Samples()}
    product.round(guest)  # the first of either is not like the others: what was captured is read for the first time
    hand.round()
    for i in range(arguments.rounds):
        product_round(product, guest, out["warm"])
        for step, ms in hand.round().items():
            out["hand"].add(step, ms)
        note("warm %d of %d" % (i + 1, arguments.rounds))
    hand.end()
    for _ in range(arguments.deliveries):
        delivery(product, guest, out["delivery"])
    lab.wait_state(guest, "READY")
    if arguments.cold:
        cold_rounds(product, guest, guest, arguments.cold, out["cold"])
    product.host("pool", "rm", guest)
    return out


def total(samples, names):
    return sum(samples.median(n) or 0 for n in names)


def agent_to_agent(samples):
    """From the agent of one life to that of the next: the end, the disk, the start, its first answer."""
    warm = samples.get("start: restore")
    names = ["again: total"] + (["lease: wake", "lease: resume", "lease: agent"] if warm else [])
    # A booted guest begins its life before it is READY; that is not the way to its agent.
    minus = [] if warm else [n for n in ("start: begin", "start: check", "start: listing", "start: ready") if n in samples]
    return total(samples, names) - total(samples, minus)


def where(out):
    """The product's own time, largest first. Of a stage that is a call of libvirt it is what the call took longer than by hand: by
    the fastest of each, since on a busy machine two medians of the same call differ by more than that."""
    warm, hand = out["warm"], out["hand"]
    own = {}
    for name in warm:
        phase, _, stage = name.partition(": ")
        if phase in ("lease", "reset", "start") and stage not in ("total", "agent", "begin"):
            libvirt = hand.get("libvirt: " + stage)
            own[name] = max(0, min(warm[name]) - min(libvirt)) if libvirt else warm.median(name)
    return sorted(own.items(), key=lambda item: -item[1])


def ratios(out):
    """[(what, value, goal, unit)]; the goals are for a machine that does nothing else."""
    warm, hand, cold = out["warm"], out["hand"], out["cold"]
    own = {phase: sum(ms for name, ms in where(out) if (name.partition(": ")[0] == "lease") == (phase == "lease"))
           for phase in ("lease", "again")}
    rows = [("reset to READY (standby) beyond libvirt's own", own["again"], "<= 60", "ms"),
            ("reset to READY (standby) / by hand", warm.median("again: total") / hand.median("ready"), "<= 1.15", ""),
            ("lease of a standby VM / by hand", warm.median("lease: total") / hand.median("handed over"), "<= 1.5", ""),
            ("lease beyond libvirt's and the guest's own", own["lease"], "", "ms")]
    if cold:
        rows.append(("cold / warm, agent to agent", agent_to_agent(cold) / agent_to_agent(warm), ">= 15", ""))
    return rows


def show(guest, out):
    print("\n== %s: %s, %s CPU" % (guest, *GUESTS[guest]))
    for title, key in (("the product, warm", "warm"), ("by hand", "hand"), ("the product, cold", "cold"), ("delivery by ssh", "delivery")):
        if out[key]:
            out[key].show(title)
    print("\n%-50s%10s  %s" % ("ratios of medians", "", "goal"))
    for what, value, goal, unit in ratios(out):
        print("  %-48s%10.2f  %s %s" % (what, value, goal, unit))
    print("\nwhere the product's own time goes, ms (without libvirt's part)")
    for name, ms in where(out):
        print("  %-48s%10.1f" % (name, ms))


def parts(samples, phases):
    """{stage: median} of these phases; what the keeper took of several is one part."""
    out = {}
    for name in samples:
        phase, _, stage = name.partition(": ")
        if phase in phases and stage != "total":
            out[stage] = out.get(stage, 0) + samples.median(name)
    return out


def panels(results):
    out = {}
    for guest, r in results.items():
        by_hand = {n: r["hand"].median(n) for n in ("destroy", "overlay", "restore")}
        out["%s: end of a lease to READY in standby" % guest] = {"boxery": parts(r["warm"], ("reset", "start")), "by hand": by_hand}
        wake = {n: r["hand"].median(n) for n in ("resume", "agent ping", "set-time")}
        out["%s: lease out of standby to hand-over" % guest] = {"boxery": parts(r["warm"], ("lease",)), "by hand": wake}
        if r["cold"]:
            out["%s: cold, end of a lease to READY" % guest] = {
                "boxery, cold": parts(r["cold"], ("reset", "start")),
                "boxery, warm and woken": parts(r["warm"], ("reset", "start", "lease"))}
    return out


def document(results):
    return {"load": os.getloadavg()[0], "cores": os.cpu_count(),
            "guests": {g: {**{k: s.figures() for k, s in r.items()},
                           "ratios": [{"what": w, "value": v, "goal": goal} for w, v, goal, _ in ratios(r)],
                           "own_ms": dict(where(r))} for g, r in results.items()}}


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--cold", type=int, default=3)
    p.add_argument("--deliveries", type=int, default=3)
    p.add_argument("--guest", choices=list(GUESTS), action="append")
    p.add_argument("--json")
    p.add_argument("--plot", default="reset")
    arguments = p.parse_args()
    lablib.ensure_image(note)
    results = {}
    with lablib.Lab("bench-reset") as lab:
        for guest in arguments.guest or GUESTS:
            results[guest] = measure(lab, guest, arguments)
            show(guest, results[guest])
    print("\n" + load())
    print(plot.draw(arguments.plot, "boxery: how fast a VM is clean again, medians (%s)" % load(), panels(results)))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(document(results), f, indent=2)


if __name__ == "__main__":
    main()
