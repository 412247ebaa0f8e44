#!/usr/bin/python3
"""The adversary suite: plants what root in a guest can leave behind, and looks for it in the next life and on the host.

    run.py --cold        a pool VM that boots for each life: nothing may be found after a reset
    run.py --warm        the same with lives restored from memory
    run.py --no-reset    a VM outside the pool, switched off and on with its disk kept: everything must be found

    --only PATTERN  batches that have a case with this in its name (a regular expression), and of them these cases
    --skip PATTERN  without these cases (and batches)
    --json          the result as JSON on standard output
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import lab as lab_module  # noqa: E402
import yaml  # noqa: E402
from lab import Failed, Lab, wait_until  # noqa: E402
import host  # noqa: E402
from guest import SCRIPT_TIMEOUT, Guest, Lost  # noqa: E402

MEMORY_PATTERN = "boxery-memory-pattern-51c2"
DEFAULTS = {"batch": "main", "shows": "disk", "plant": "", "detect": "", "prints": "", "host": "", "never": "", "ends": False,
            "wait": SCRIPT_TIMEOUT}
START_TIMEOUT = os.environ.get("ADVERSARY_START_TIMEOUT", "180s")
RESET_TIMEOUT = 900


def load_cases():
    cases = []
    for name in ("files", "kernel", "lives"):
        with open(os.path.join(HERE, "cases", name + ".yaml")) as f:
            for entry in yaml.safe_load(f):
                unknown = set(entry) - set(DEFAULTS) - {"name", "what", "each"}
                if unknown or not entry.get("what") or not (entry.get("detect") or entry.get("host") or entry.get("never")):
                    raise Failed("%s.yaml, %s: %s" % (name, entry.get("name"), unknown or "no what, or no detector"))
                for each in entry.pop("each", [None]):
                    case = {**DEFAULTS, **entry}
                    if each:
                        case["name"] += " " + each
                        for key in ("plant", "detect"):
                            case[key] = "EACH=%s\n%s" % (each, case[key])
                    cases.append(case)
    if len({c["name"] for c in cases}) != len(cases):
        raise Failed("two cases have the same name")
    return cases


def last_line(failure):
    return str(failure).strip().splitlines()[-1][:160]


class Act:
    """One batch on one VM: what the detectors of host.py are given."""

    def __init__(self, suite, cases):
        self.suite, self.lab, self.cases, self.pool = suite, suite.lab, cases, suite.pool
        self.stranger, self.guest = suite.key("stranger"), None
        self.rows = {c["name"]: {"name": c["name"], "batch": c["batch"], "planted": None, "after": None, "why": ""} for c in cases}

    # -- for detectors

    def inside(self, *command):
        return self.lab.inside(command, check=False).stdout

    def host(self, *arguments):
        return self.lab.host(*arguments).stdout

    def must(self, condition, words):
        if not condition:
            raise Failed(words)

    def neighbour_guest(self):
        return self.suite.neighbour()

    # -- the play

    def environment(self):
        with open(self.stranger + ".pub") as f:
            key = f.read().strip()
        return {"MARK": host.MARK, "NOW": int(time.time()), "GATEWAY": self.guest.address.rpartition(".")[0] + ".1",
                "STRANGER": key, "DISK_PATTERN": host.DISK_PATTERN}

    def plant(self):
        scripts = [(c["name"], c["plant"], c["wait"]) for c in self.cases if c["plant"]]
        try:
            done = self.guest.play(scripts, {**self.environment(), "MEMORY_PATTERN": MEMORY_PATTERN})
        except Lost as e:
            done = {name: (0, str(e)) for name, _, _ in scripts}
        for name, _, _ in scripts:
            status, text = done.get(name, (-1, "cut off"))
            if status != 0 and not self.by_name(name)["ends"]:
                self.rows[name]["why"] = "plant: exit %d, %s" % (status, text[-200:])

    def by_name(self, name):
        return next(c for c in self.cases if c["name"] == name)

    def detect(self, column, wanted=lambda case: True):
        after = column == "after"
        cases = [c for c in self.cases if wanted(c)]
        scripts = [(c["name"], c["detect"], c["wait"]) for c in cases if c["detect"]]
        environment = {**self.environment(), "MEMORY_TAIL": MEMORY_PATTERN[1:]}
        try:
            done = self.guest.play(scripts, environment) if scripts else {}
        except Lost as e:
            done = {name: (-1, str(e)) for name, _, _ in scripts}
        for c in cases:
            row, found = self.rows[c["name"]], ""
            if c["detect"]:
                status, found = done.get(c["name"], (-1, "cut off"))
                # A detector that breaks is never taken for one that finds nothing.
                if status > 1 or status < 0 or (found and c["prints"] not in found):
                    row["why"] = "detector: exit %d, %s" % (status, found[-200:])
                    found = "?"
            if c["host"]:
                seen = self.host_detector(c, c["host"], after)
                # In its own life it must be seen from both sides, afterwards from none.
                found = " ".join([found, *seen]).strip() if after or seen else ""
            row[column] = " ".join([found, *self.never(c, after)]).strip()

    def never(self, c, after):
        """What the host must not show in any life; the detector is shown to work on a trace of our own making."""
        if not c["never"]:
            return []
        seen = self.host_detector(c, c["never"], after)
        if seen:
            self.rows[c["name"]]["why"] = "on the host: %s" % seen
        if after:
            return seen
        with host.control(self.lab):
            return ["(control) " + line for line in self.host_detector(c, c["never"], after)]

    def host_detector(self, c, detector, after):
        try:
            return host.DETECTORS[detector](self, after)
        except (Failed, Lost, OSError, ValueError) as e:
            self.rows[c["name"]]["why"] = "host detector: %s" % e
            return ["?"]


class Suite:
    def __init__(self, lab, mode):
        self.lab, self.mode, self.pool = lab, mode, mode != "no-reset"
        self.rows, self.rules = [], {}
        self.two = None

    def say(self, text):
        sys.stderr.write("[%5.0f s] %s\n" % (time.monotonic() - BEGUN, text))

    def key(self, name):
        path = os.path.join(self.lab.dir, "key-" + name)
        if not os.path.exists(path):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        return path

    # -- VMs

    def prepare(self):
        with open(os.path.join(self.lab.dir, "config", "host.env"), "a") as f:
            f.write("BOXERY_CONSOLE_MAX=1M\nBOXERY_START_TIMEOUT=%s\n" % START_TIMEOUT)
        for name in ("one", "two"):
            self.lab.host("new", name, "--image", lab_module.IMAGE, "--memory", "512M")
        if self.pool:
            self.start_setting()
            for name in ("one", "two"):
                self.lab.host("pool", "add", name)
            for name in ("one", "two"):
                self.lab.wait_state(name, "READY", timeout=RESET_TIMEOUT)

    def start_setting(self):
        if "--start" in self.lab.host("pool", "set", "--help").stdout:
            self.lab.host("pool", "set", "default", "--start", self.mode)
        elif self.mode == "warm":
            raise Failed("this boxery-host has no warm starts: 'pool set' has no --start")

    def lease(self, name):
        lease = self.lab.host_json("lease", name, "--wait", "5m", "--ttl", "1h", "--ssh-key", self.key("mine") + ".pub")
        guest = Guest(self.lab, name, lease["address"], self.key("mine"), lease["known_hosts"], lease["generation"])
        guest.lease = lease["lease"]
        return guest

    def start(self, name):
        address = self.lab.host("start", name).stdout.split()[1]
        return Guest(self.lab, name, address, os.path.join(self.lab.dir, "state", "admin-key"),
                     self.lab.host("known-hosts", name).stdout, self.lab.vm(name)["generation"])

    def neighbour(self):
        if not self.two:
            self.two = self.lease("two") if self.pool else self.start("two")
        return self.two

    # -- one batch

    def run_batch(self, name, cases):
        self.say("batch '%s': %d cases" % (name, len(cases)))
        act = Act(self, cases)
        before, neighbour = (host.seen_host(self.lab), self.lab.vm("two")["generation"]) if self.pool else ({}, 0)
        act.guest = self.lease("one") if self.pool else self.start("one")
        act.plant()
        self.say("  planted")
        if any(c["ends"] for c in cases):
            self.ended(act)
        else:
            act.detect("planted")
        self.say("  seen in the same life: %d" % sum(bool(r["planted"]) for r in act.rows.values()))
        if self.pool:
            self.next_life(act)
            act.detect("after")
            self.release(act.guest)
            self.rules[name] = host.broken_rules(self.lab, before, neighbour)
        else:
            self.power_cycle(act)
        self.say("  found after: %d" % sum(bool(r["after"]) for r in act.rows.values()))
        self.rows += act.rows.values()

    def ended(self, act):
        """A plant that ends its life by itself: the VM must notice without being told."""
        def probe():
            vm = self.lab.vm("one")
            return vm["generation"] > act.guest.generation or not vm["running"]
        wait_until("the end of life %d" % act.guest.generation, probe, 120, every=0.5)
        for row in act.rows.values():
            row["planted"] = "the guest ended its life"

    def release(self, guest):
        self.lab.host("release", guest.lease, check=False)
        wait_until("%s READY in another life" % guest.name, lambda: (lambda v: v["state"] == "READY" and
                   v["generation"] > guest.generation)(self.lab.vm(guest.name)), RESET_TIMEOUT, every=0.5)

    def next_life(self, act):
        old = act.guest
        if any(c["ends"] for c in act.cases):
            old.lease = "none"
        self.release(old)
        act.guest = self.lease("one")
        act.must(act.guest.generation > old.generation, "the same life was leased twice")

    def power_cycle(self, act):
        """The reset left out: off and on again with the same disk. What lives in memory only was seen in its life."""
        for c in act.cases:
            if c["shows"] in ("life", "host"):
                act.rows[c["name"]]["after"] = act.rows[c["name"]]["planted"]
        wanted = [c for c in act.cases if c["shows"] in ("disk", "start")]
        if wanted:
            self.lab.host("stop", "one", check=False)
            try:
                act.guest = self.start("one")
                act.detect("after", lambda c: c["shows"] in ("disk", "start"))
            except Failed as e:
                for c in wanted:
                    words = "the next start fails: " + last_line(e)
                    act.rows[c["name"]].update({"after": words} if c["shows"] == "start" else {"after": "?", "why": words})
        self.lab.host("rm", "--force", "one")
        self.lab.host("new", "one", "--image", lab_module.IMAGE, "--memory", "512M")

    def run(self, batches):
        self.prepare()
        holder = host.Holder(self.lab)
        try:
            for name, cases in batches.items():
                try:
                    self.run_batch(name, cases)
                except Failed as e:
                    self.broke_off(name, cases, e)
                    self.again()
                except KeyboardInterrupt:
                    self.broke_off(name, cases, "interrupted")
                    break
        finally:
            holder.stop()

    def broke_off(self, name, cases, why):
        self.say("batch '%s' broke off: %s" % (name, why))  # all of it, once
        self.rows += [{"name": c["name"], "batch": name, "planted": None, "after": None, "why": "broke off: %s" % last_line(why)}
                      for c in cases]

    def again(self):
        """A VM for the next batch, whatever became of this one's."""
        with contextlib.suppress(Failed):
            for lease in self.lab.host_json("leases")["leases"] if self.pool else []:
                if lease["vm"] == "one":
                    self.lab.host("release", lease["lease"], check=False)
            if self.pool:
                self.lab.host("pool", "repair", "one", check=False)
                self.lab.wait_state("one", "READY", timeout=RESET_TIMEOUT)
            else:
                self.lab.host("rm", "--force", "one", check=False)
                self.lab.host("new", "one", "--image", lab_module.IMAGE, "--memory", "512M")

    # -- the verdict

    def good(self, row):
        return bool(row["planted"]) and "?" not in (row["planted"], row["after"]) and not row["why"] and \
            (bool(row["after"]) if self.mode == "no-reset" else row["after"] == "")

    def print_table(self):
        width = max(len(r["name"]) for r in self.rows)
        print("%-*s  %-10s  %-9s  %s" % (width, "CASE", "LIFE", "PLANTED", "FOUND AFTER"))
        for r in self.rows:
            print("%-*s  %-10s  %-9s  %s%s" % (width, r["name"], r["batch"], "seen" if r["planted"] else "NO",
                  ascii(r["after"])[1:81] if r["after"] else "nothing" if r["after"] == "" else "not looked",
                  "" if self.good(r) else "   <- " + (ascii(r["why"])[:300] or "wrong")))
        for name, bad in self.rules.items():
            print("%-*s  %-10s  %-9s  %s" % (width, "the host", name, "", "; ".join(bad) or "unchanged"))

    def summary(self):
        bad = [r["name"] for r in self.rows if not self.good(r)] + ["host: " + n for n, b in self.rules.items() if b]
        found = sum(bool(r["after"]) for r in self.rows)
        return bad, "adversary --%s: %d cases in %d lives, %d seen when planted, %d found after, %d not as it must be" % (
            self.mode, len(self.rows), len({r["batch"] for r in self.rows}), sum(bool(r["planted"]) for r in self.rows), found, len(bad))


def choose(only, skip):
    def has(pattern, case):
        return re.search(pattern, case["name"]) or re.search(pattern, case["batch"])
    batches = {}
    for c in load_cases():
        if (not only or has(only, c)) and not (skip and has(skip, c)):
            batches.setdefault(c["batch"], []).append(c)
    if not batches:
        raise Failed("no case has '%s' in its name" % only)
    return batches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    for name in ("cold", "warm", "no-reset"):
        mode.add_argument("--" + name, dest="mode", action="store_const", const=name, default="cold")
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--skip", metavar="PATTERN")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    options = parser.parse_args()
    batches = choose(options.only, options.skip)
    if options.list:
        for cases in batches.values():
            for c in cases:
                print("%-60s %-10s %s" % (c["name"], c["batch"], c["what"]))
        return 0
    lab_module.ensure_image(log=lambda text: sys.stderr.write(text + "\n"))
    with Lab("adv") as lab:
        suite = Suite(lab, options.mode)
        suite.run(batches)
        bad, words = suite.summary()
        if options.json:
            print(json.dumps({"mode": options.mode, "cases": suite.rows, "host": suite.rules, "bad": bad}, indent=1))
        else:
            suite.print_table()
        sys.stderr.write(words + "\n") if options.json else print(words)
        if bad and os.environ.get("BOXERY_SHOW_LOGS"):
            sys.stderr.write(lab.log("state/keeper.log")[-6000:])
    return 1 if bad else 0


BEGUN = time.monotonic()
if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.stderr.write("adversary: %s\n" % failure)
        sys.exit(2)
