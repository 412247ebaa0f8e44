#!/usr/bin/python3
"""test_service_storm.py BOXERY_RUNNERS [NAME...] - every way in which a lease ends without a job, for ever: it does not become a storm of
registrations. The worlds are test_service.py's."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_service as base  # noqa: E402
from service_world import EACCES, EAGAIN, EEXIST, EIO, ENOTCONN, EPERM, REGISTRATIONS, Refused  # noqa: E402
from test_service import each  # noqa: E402

base.SCENARIOS.clear()


def refuse(code, text):
    def action(world, r):
        raise Refused(code, text)
    return action


def answer(fault, code, text="no", **more):
    def action(world, r):
        raise world.fault(fault, code, text, **more)
    return action


def registering(state, action):
    """Only for this one of a lease's REGISTERs."""
    def only(world, r):
        return action(world, r) if callable(action) and REGISTRATIONS[r["registration"]] == state else \
            action if REGISTRATIONS[r["registration"]] == state else None
    return only


def guest(*acts):
    """Instead of the usual guest: at each time, an act on (world, vm, generation, runner)."""
    def action(world, r):
        lease = world.leases[r["lease"]]
        for seconds, act in acts:
            world.after(seconds, act, world, lease["vm"], lease["generation"], world.runner_of(lease))
    return action


def stops(word):
    return lambda world, vm, generation, runner: world.stopped(vm, generation, word)


def ends_as(happening):
    return lambda world, vm, generation, runner: world.apply(vm, "RESETTING", happening)


def seen(**state):
    return lambda world, vm, generation, runner: runner.update(state)


def killed_vm(world, r):
    """The VM is lost while its registration is asked for."""
    lease = next(x for x in world.leases.values() if x["runner_name"] == r["runner_name"])
    world.apply(lease["vm"], "RESETTING", "STOPPED", "the domain has stopped: crashed")


# Every way in which a lease ends without a job: what fails, for ever, and the least number of tries.
STORMS = {
    "lease-lost": (0, {"LEASE": "after"}),
    "plan-refused": (0, {"REGISTER": registering("planned", refuse(EIO, "disk full"))}),
    "plan-lost": (0, {"REGISTER": registering("planned", "after")}),
    "mint-503": (3, {"MINT": answer("server", EIO)}),
    "mint-409": (3, {"MINT": answer("conflict", EEXIST)}),
    "mint-busy": (3, {"MINT": answer("busy", EIO)}),
    "mint-unclear": (3, {"MINT": answer("network", EIO, may_exist=1)}),
    "mint-limited": (2, {"MINT": answer("limit", EAGAIN, retry_after_ms=3000)}),
    "mint-invalid": (2, {"MINT": answer("invalid", EIO)}),
    "mint-permission": (2, {"MINT": answer("permission", EACCES)}),
    "mint-public": (2, {"MINT": answer("public", EACCES)}),
    "mint-child-dies": (2, {"MINT": "drop"}),
    "mint-child-dies-after": (2, {"MINT": "after"}),
    "mint-vm-lost": (3, {"MINT": killed_vm}),
    "record-refused": (3, {"REGISTER": registering("made", refuse(EIO, "disk full"))}),
    "record-lost": (3, {"REGISTER": registering("made", "drop")}),
    "filter-not-in-force": (3, {"DELIVER": refuse(EPERM, "the network filter is not in force")}),
    "refused-as-enotconn": (3, {"DELIVER": refuse(ENOTCONN, "the network filter is not in force")}),
    "delivery-lost": (3, {"DELIVER": "drop"}),
    "delivery-acts-and-is-lost": (3, {"DELIVER": "after"}),
    "guest-crashes": (3, {"DELIVER": guest((0.3, stops("crashed")))}),
    "guest-ends": (3, {"DELIVER": guest((0.3, stops("shutdown")))}),
    "guest-ends-unclear": (3, {"DELIVER": guest((0.3, stops("crashed"))), "JOB_OF": answer("server", EIO)}),
    "guest-ends-unnamed": (3, {"DELIVER": guest((0.3, stops("shutdown"))), "OUTCOME": refuse(EIO, "disk full")}),
    "online-and-ends": (3, {"DELIVER": guest((0.3, seen(online=True)), (1, stops("shutdown")))}),
    "registration-vanishes": (3, {"DELIVER": guest((0.3, seen(gone=True)), (1, stops("shutdown")))}),
    "busy-without-a-job": (3, {"DELIVER": guest((0.2, seen(online=True, busy=True)), (6, seen(online=False, busy=False, gone=True)),
                                                (6, stops("crashed")))}),
    "never-connects": (2, {"DELIVER": guest()}),
    "idles": (2, {"DELIVER": guest((0.2, seen(online=True)))}),
    "expires": (3, {"DELIVER": guest((1, ends_as("EXPIRED")))}),
    "reset-by-an-admin": (3, {"DELIVER": guest((1, ends_as("REPAIR")))}),
    "doubt": (3, {"DELIVER": guest((1, ends_as("DOUBT")))}),
}


@each(STORMS, vms=2, reset=0.1)
def storm(w, way):
    """Two VMs that are READY at once, jobs without end, and a fault that does not: a handful of tries in 75 s, fewer and
    fewer, and the reason is said without filling the log."""
    least, faults = STORMS[way]
    w.behaviour = "never-connect"
    for verb, action in faults.items():
        w.on(verb, action, 10000)
    for _ in range(6):
        w.job()
    w.start()
    time.sleep(75)
    with w.lock:
        minted, leased = len(w.verbs("MINT")), len(w.verbs("LEASE"))
        tried = len([x for x in w.leases])
    assert w.service.poll() is None, w.text()
    assert not w.faults, w.faults
    assert least <= minted <= 9, "%d registrations" % minted
    assert tried <= 12, "%d leases (%d asked for)" % (tried, leased)
    assert sum(" warning " in x or " error " in x for x in w.text().splitlines()) < 60
    if way in ("filter-not-in-force", "refused-as-enotconn"):
        said = [x for x in w.text().splitlines() if "not delivered: the network filter is not in force" in x]
        assert sum(" warning " in x for x in said) == 1 and len(said) >= 3, "a reason is said once per change"
        assert "5 leases in a row got no job (the last: delivery failed)" in w.text()
    w.private = False  # nothing more is tried while it ends


if __name__ == "__main__":
    sys.exit(base.main())
