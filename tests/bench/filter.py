#!/usr/bin/python3
"""What the network filter of a guest costs per start, per stop and per look, with each implementation and without.

    filter.py [ROUNDS]        (default 10; BOXERY_BUILD: the build folder; the image of the tests must be there)

One world, one guest, real QEMU; in each round the guest is started and stopped once with nft, nwfilter and isolation off,
in turn, so that whatever else the machine does hits all three alike. Milliseconds: median (smallest to largest).

network, create    steps of a start: the host's parts made sure of; the domain made, and its filter looked at
stop               the guest destroyed, from the call to its answer
look               a call of `boxery-vm filter`, which asks whether the filter is in force: nobody has changed rules since
look, changed      the same after somebody has; the rules are listed again
"""
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "vm"), os.path.join(HERE, "..", "lib")]
from test_vm import World  # noqa: E402
from vmctl import FORCE, PLAIN  # noqa: E402

LOOKS = 5
WAYS = {"nft": ("on", "nft"), "nwfilter": ("on", "nwfilter"), "off": ("off", "auto")}
COLUMNS = ("network", "create", "stop", "look", "look, changed")


def timed(call, *arguments, ok=True, **more):
    start = time.monotonic()
    answer = call(*arguments, **more)
    took = (time.monotonic() - start) * 1000
    if answer.ok != ok:
        raise RuntimeError("%s: %s" % (" ".join(arguments), answer.result))
    return took, answer


def one_life(world, way, generation, out):
    isolation, implementation = WAYS[way]
    world.setting("BOXERY_NET_ISOLATION", isolation)
    world.setting("BOXERY_NET_FILTER", implementation)
    # What changing the setting costs is not what a start costs.
    timed(world.vm.call, "check")
    _, answer = timed(world.start, "one", generation, PLAIN)
    for step in answer.steps:
        if step["step"] in out:
            out[step["step"]].append(step["took_us"] / 1000)
    for _ in range(LOOKS if way != "off" else 0):
        timed(world.vm.call, "filter", "one", generation=generation)
        out["look"].append(timed(world.vm.call, "filter", "one", generation=generation)[0])
        world.inside("nft", "add table inet other; delete table inet other")
        out["look, changed"].append(timed(world.vm.call, "filter", "one", generation=generation)[0])
    out["stop"].append(timed(world.vm.call, "stop", "one", flags=FORCE)[0])


def show(values):
    return "%.0f (%.0f to %.0f)" % (statistics.median(values), min(values), max(values)) if values else "-"


def main(rounds):
    out = {way: {c: [] for c in COLUMNS} for way in WAYS}
    world = World("bench-filter")
    try:
        timed(world.new, "one", 0)
        generation = 0
        for _ in range(rounds):
            for way, samples in out.items():
                generation += 1
                one_life(world, way, generation, samples)
    finally:
        world.stop()
    print("%-10s" % "" + "".join("%22s" % c for c in COLUMNS))
    for way, samples in out.items():
        print("%-10s" % way + "".join("%22s" % show(samples[c]) for c in COLUMNS))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
