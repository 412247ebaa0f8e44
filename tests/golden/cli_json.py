#!/usr/bin/python3
"""cli_json.py DOCS/json.md - what every command prints with --json is what the page says: each block there is taken as the schema, with
every property required and no other allowed, and each heading is a command that is run here (runners ...: in cli_runners.py)."""
import json
import traceback

import jsonschema
from cli_world import World, begin, enter_namespace, key_files, os, re, run, sys, tempfile, until

DIALECT = jsonschema.Draft202012Validator


def strict(schema):
    if isinstance(schema, list):
        return [strict(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: strict(v) for k, v in schema.items()}
    if isinstance(schema.get("properties"), dict):
        out.update(required=list(schema["properties"]), additionalProperties=False)
    return out


def schemas(path):
    with open(path, encoding="utf-8") as f:
        sections = re.split(r"^## ", f.read(), flags=re.M)[1:]
    blocks = {s.split("\n", 1)[0]: json.loads(re.search(r"```json\n(.*?)```", s, re.S)[1]) for s in sections}
    shared = strict(blocks.pop("Shared definitions"))
    out = {}
    for title, block in blocks.items():
        for command in re.findall("`([^`]+)`", title):
            out[command] = {**strict(block), "$defs": shared}
            DIALECT.check_schema(out[command])
    return out


class Tried:
    def __init__(self, w, page):
        self.w, self.page, self.used, self.faults = w, page, set(), []

    def __call__(self, command, *args, status=(0,)):
        r = run(self.w, *command.split(), *args, "--json")
        self.used.add(command)
        what = "boxery-host %s %s" % (command, " ".join(args))
        if r.returncode not in status:
            self.faults.append("%s: exit status %d: %s" % (what, r.returncode, r.stderr))
            return None
        document = json.loads(r.stdout)
        for e in DIALECT(self.page[command]).iter_errors(document):
            self.faults.append("%s: %s: %s" % (what, "/".join(map(str, e.absolute_path)), e.message))
        return document


def expect(faults, condition, what):
    if not condition:
        faults.append(what)


def lists(t):
    t("ls")
    t("pool ls")
    t("lease ls")
    t("lease ls", "--all")
    t("leases", "--all")
    for name in t.w.vms():
        t("pool show", name)
        t("pool history", name)
        t("history", name)


def go(t, folder):
    w, faults = t.w, t.faults
    t("paths")
    t("init", status=(0, 7))
    t("doctor", status=(0, 7))
    w.new("plain")
    w.pool_vm("one", "two")
    w.call("POOL_ADD", name="plain", pool="many", flags=4, count=2)
    keys = key_files(folder)
    lists(t)
    document = t("lease", "one", "--ssh-key", keys["id.pub"])
    w.await_state("one", "DELIVERED")
    t("history", document["lease"])
    os.makedirs(w.path("images/console"), exist_ok=True)
    with open(w.path("images/console/one.log"), "wb") as f:
        f.write(b"cut off" * 4000 + b"\n" + b"".join(b"line %d \x1b[31m\xff\0\r\n" % i for i in range(50)))
    shown = t("pool show", "one")["console"]
    expect(faults, len(shown) == 20 and shown[-1].startswith(r"line 49 \x1b[31m\xff"), "console: %r" % shown)
    lists(t)
    # Kept after its lease.
    expect(faults, run(w, "pool", "keep", "one", "--for", "1h").returncode == 0, "pool keep")
    expect(faults, run(w, "release", document["lease"]).returncode == 0, "release")
    w.await_state("one", "KEPT")
    kept = t("pool show", "one")["vm"]
    expect(faults, 0 < kept["kept_for_ms"] <= 3600000, "kept_for_ms: %r" % kept)
    lists(t)
    expect(faults, run(w, "pool", "repair", "one").returncode == 0, "pool repair")
    w.await_state("one", "READY")
    # Broken, and looked at.
    w.script("START-two", "fail 5 check something is wrong\twith it")
    w.stop_domain("two")
    w.await_state("two", "BROKEN", timeout=30)
    lists(t)
    held = t("lease", "two", "--broken")
    expect(faults, held["host_key"] == held["known_hosts"] == "", "--broken: %r" % held)
    lists(t)
    w.script("START-two", None)
    expect(faults, run(w, "release", held["lease"]).returncode == 0, "release of a broken one")
    # Both VMs are READY; one after the other of them, then one of them alone.
    w.await_state("two", "READY")
    for args, name in ((("--rounds", "3"), ""), (("two", "--rounds", "2", "--yes"), "two")):
        document = t("pool bench", *args)
        got = [(s["phase"], s["stage"]) for s in document["stages"]]
        expect(faults, document["rounds"] == int(args[args.index("--rounds") + 1]) and document["failed"] == 0 and
               document["name"] == name and [p for p, s in got if s == "total"] == ["lease", "reset", "start", "again"] and
               all(s["min_us"] <= s["median_us"] <= s["p95_us"] <= s["max_us"] for s in document["stages"]),
               "pool bench: %r" % document)
    expect(faults, not [v for v in w.call("LEASES")["document"]["leases"] if v["open"]], "pool bench has left a lease")
    # A start that fails is no sample, and is said.
    w.script("START", "fail 5 check something is wrong")
    bench = begin(w, "pool", "bench", "two", "--rounds", "1", "--yes")
    until(lambda: any("START_FAILED" in e["kind"] for e in w.call("HISTORY", name="two")["document"]["events"][-8:]))
    w.script("START", None)
    said = bench.communicate(timeout=60)
    expect(faults, bench.returncode == 1 and "1 of 1 rounds went another way" in said[1] and not said[0],
           "pool bench with a failed start: %d %r" % (bench.returncode, said))
    w.await_state("two", "READY")
    # Limits.
    for args in (("--cpus", "3", "--memory", "1G", "--disk-rate", "50", "--disk-iops", "1000", "--net-rate", "2000"),
                 ("--reserve", "github-runner=1,github-runner-local=1"), ("--cpus", "none", "--reserve", "github-runner=0"),
                 ("--start", "cold", "--standby", "running")):
        r = run(w, "pool", "set", "default", *args)
        expect(faults, r.returncode == 0, "pool set %s: %s" % (args, r.stderr))
    pool = t("pool set", "default")
    expect(faults, [pool[k] for k in ("cpus", "memory_mib", "disk_mib_per_s", "disk_iops", "net_kib_per_s", "reserve_service",
                                      "reserve_local", "start", "standby")] == [0, 1024, 50, 1000, 2000, 0, 1, "cold", "running"],
           "pool set: %r" % pool)
    here = {c for c in t.page if not c.startswith("runners ")}
    expect(faults, t.used == here, "not tried: %s" % (here - t.used))


def main():
    page = schemas(sys.argv[1])
    # The strictness itself: a field more, a field less, another type.
    good = {"config": "a", "state": "b", "runtime": "c", "images": "d", "cache": "e"}
    check = DIALECT(page["paths"]).is_valid
    assert check(good) and not check({**good, "x": 1}) and not check({**good, "cache": 1}) and not check({"config": "a"})
    enter_namespace()
    w = World()
    w.env["XDG_CACHE_HOME"] = w.path("home")
    t = Tried(w, page)
    with tempfile.TemporaryDirectory() as folder:
        try:
            w.start()
            go(t, folder)
        except Exception:  # noqa: BLE001 - what was found so far explains it
            t.faults.append(traceback.format_exc() + "\n".join(w.log().splitlines()[-30:]))
        finally:
            w.close()
    sys.exit("\n".join(dict.fromkeys(t.faults)) if t.faults else 0)


if __name__ == "__main__":
    main()
