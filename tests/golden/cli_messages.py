#!/usr/bin/python3
"""cli_messages.py [--update] - what boxery-host says to bad input stands in cli/messages.expected: the command, its exit status, the
words. Each has to be a sentence that says what is wrong, where, and what to do; nothing may have changed by it."""
from cli_world import World, enter_namespace, key_files, os, re, run, sys, tempfile, until

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "cli", "messages.expected")
UNKNOWN = "0123456789abcdef" * 2


def cases(keys, ended, expired, held):
    yield from (("lease", x) for x in ("nosuch", "No/Such", "-x", "plain", "one"))
    yield ("lease", "one", "two")
    yield ("lease", "--pool", "nosuch")
    yield ("lease", "--pool", "a b")
    yield ("lease", "--as", "a b")
    yield ("lease", "--as", "github-runner")
    yield ("lease", "--ttl", "0")
    yield ("lease", "--ttl", "3650d")
    yield ("lease", "--ttl", "soon")
    yield ("lease", "--wait", "2d")
    yield ("lease", "--wait")
    yield ("lease", "--nosuch")
    yield ("lease", "--wait", "1s")
    yield ("lease", "--json", "--exec", "true")
    yield ("lease", "--exec")
    yield ("lease", "one", "--")
    yield ("lease", "--broken")
    yield ("lease", "--broken", "two")
    yield ("lease", "--broken", "two", "--exec", "true")
    for name in ("id", "cut", "two", "long", "dss", "empty", "binary"):
        yield ("lease", "--ssh-key", keys[name])
    yield ("lease", "--ssh-key", keys["id"] + "-nosuch")
    yield ("lease", "--ssh-key", os.path.dirname(keys["id"]))
    for verb in (("release",), ("lease", "renew", "--ttl", "1h")):
        for lease in ("x", "A" * 32, UNKNOWN, ended, expired):
            yield (*verb, lease)
    yield ("release",)
    yield ("lease", "renew", held)
    yield ("lease", "renew", held, "--ttl", "0")
    yield ("lease", "renew", held, "--ttl", "3650d")
    yield ("lease", "ls", "x")
    yield ("leases", "--as", "a b")
    yield ("pool", "nosuch")
    yield ("pool", "add", "nosuch")
    yield ("pool", "add", "one")
    yield ("pool", "add", "plain", "--count", "0")
    yield ("pool", "add", "plain", "--count", "241")
    yield ("pool", "add", "plain", "--pool", "x/y")
    for reserve in ("x", "x=1", "github-runner", "github-runner=", "github-runner=many", "github-runner=241", "=1"):
        yield ("pool", "set", "default", "--reserve", reserve)
    yield ("pool", "set", "default", "--cpus", "0")
    yield ("pool", "set", "default", "--memory", "1")
    yield ("pool", "set", "default", "--memory", "much")
    yield ("pool", "set", "default", "--disk-rate", "0")
    yield ("pool", "set", "default", "--net-rate", "-1")
    yield ("pool", "set", "default", "--disk-iops", "")
    yield ("pool", "set", "default", "--start", "hot")
    yield ("pool", "set", "default", "--standby", "")
    yield ("pool", "set", "nosuch")
    yield ("pool", "set", "x/y")
    yield ("pool", "set")
    yield ("pool", "ls", "--watch", "--json")
    yield ("pool", "ls", "--pool", "x/y")
    yield ("pool", "ls", "--pool", "nosuch")
    yield ("pool", "ls", "--pool", "nosuch", "--json")
    yield ("ssh", "one")
    yield ("ssh", "nosuch")
    yield ("ssh", "plain")
    yield ("pool", "show", "nosuch")
    yield ("pool", "show", "x/y")
    yield ("pool", "repair", "two")
    yield ("pool", "repair", "nosuch")
    yield ("pool", "patch")
    yield ("pool", "patch", "one", "--all")
    yield ("pool", "patch", "one", "--pool", "default")
    yield ("pool", "patch", "--all", "--pool", "x/y")
    yield ("pool", "patch", "one", "--cancel", "--wait")
    yield ("pool", "patch", "one", "--cancel")
    yield ("pool", "patch", "plain", "--cancel")
    yield ("pool", "patch", "nosuch", "--cancel")
    yield ("pool", "patch", "--all", "--pool", "nosuch", "--cancel")
    yield ("pool", "patch", "one", "--base", "x/y")
    yield ("pool", "keep", "nosuch")
    yield ("pool", "keep", "two")
    yield ("pool", "keep", "plain")
    yield ("pool", "keep", "one", "--for", "0")
    yield ("pool", "rm", "one")
    yield ("pool", "rm", "nosuch")
    for name in ("x/y", "nosuch", "plain", "two", "default"):
        yield ("pool", "bench", name)
    yield ("pool", "bench", "--rounds", "0")
    yield ("pool", "bench", "two", "one")
    yield ("pool", "history", "x/y")
    yield ("pool", "history", "nosuch")
    yield ("history", UNKNOWN)
    yield ("uninstall", "x")
    yield ("uninstall", "--yes")
    yield ("nosuch",)


def main():
    enter_namespace()
    faults, text = [], ""
    w = World()
    with tempfile.TemporaryDirectory() as folder:
        try:
            keys = key_files(folder)
            w.start()
            w.new("plain")
            w.pool_vm("one", "two")
            ended = w.lease(name="two")["lease"]
            w.call("RELEASE", lease=ended)
            w.await_state("two", "READY")
            expired = w.lease(name="two", ttl_ms=1000)["lease"]
            until(lambda: w.vms()["two"]["generation"] > 2)
            w.await_state("two", "READY")
            # "one" is leased; nobody may take "two" but by name, so that a pool without a clean VM can be asked for one.
            held = w.lease(name="one")["lease"]
            other = w.lease(name="two")["lease"]
            before = w.vms()
            for args in cases(keys, ended, expired, held):
                if args[:2] == ("pool", "repair") and other:  # from here on "two" is READY
                    w.call("RELEASE", lease=other)
                    w.await_state("two", "READY")
                    before, other = w.vms(), None
                r = run(w, *args)
                said = r.stdout + r.stderr
                for what, shown in ((ended, "ENDED"), (expired, "EXPIRED"), (held, "HELD"), (UNKNOWN, "UNKNOWN"), (folder, "FOLDER"),
                                    (w.root, "WORLD")):
                    said = said.replace(what, shown)
                    args = [a.replace(what, shown) for a in args]
                said = re.sub(r"\d+ MiB", "N MiB", said)
                text += "$ boxery-host %s\n%d\n%s" % (" ".join(a or "''" for a in args), r.returncode, said)
                if r.returncode == 0 or r.returncode < 0:
                    faults.append("%s: exit status %d" % (args, r.returncode))
                if not re.search(r"^boxery-host", said, re.M) or "\x1b" in said:
                    faults.append("%s: %r" % (args, said))
            after = w.vms()
            for name in before:
                for key in ("state", "generation", "lease", "attempts", "pool"):
                    if before[name][key] != after[name][key]:
                        faults.append("%s: %s was %r and is %r" % (name, key, before[name][key], after[name][key]))
            if list(before) != list(after):
                faults.append("VMs were %s and are %s" % (list(before), list(after)))
        finally:
            w.close()
    if "--update" in sys.argv:
        with open(EXPECTED, "w", encoding="utf-8") as f:
            f.write(text)
    with open(EXPECTED, encoding="utf-8") as f:
        want = dict(block.split("\n", 1) for block in re.split(r"^\$ ", f.read(), flags=re.M)[1:])
    got = dict(block.split("\n", 1) for block in re.split(r"^\$ ", text, flags=re.M)[1:])
    for command in {**want, **got}:
        if want.get(command) != got.get(command):
            faults.append("%s\n  expected %r\n  got      %r" % (command, want.get(command), got.get(command)))
    sys.exit("\n".join(faults) if faults else 0)


main()
