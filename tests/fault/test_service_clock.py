#!/usr/bin/python3
"""test_service_clock.py BUILD_DIR [NAME...] - the runner service on clocks that only the test moves: what it does once a day, and
what a wall clock that somebody sets must not do to it. The worlds are test_service.py's."""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
sys.argv[1:2] = [os.path.join(BUILD, "boxery-runners")]
BINARIES = os.path.join(BUILD, "tests", "fault")
os.environ.setdefault("BOXERY_FAULT_BINARIES", BINARIES)
sys.path.insert(0, HERE)
import test_service as base  # noqa: E402
from test_service import scenario  # noqa: E402
from virtual_clock import Clock  # noqa: E402

base.SCENARIOS.clear()
DAY = 86400


def utc(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Clocks:
    """Both of them: time that passes, and the wall clock set."""

    def __init__(self, w):
        self.clock, self.passed, self.set_by = Clock(w.dir + "/clock"), 0, 0
        self.env = {"BOXERY_TEST_CLOCK": w.dir + "/clock", "LD_PRELOAD": os.path.join(BINARIES, "libwalk_clock.so")}

    def pass_time(self, seconds):
        self.passed += seconds
        self.clock.set_wall(self.passed + self.set_by)
        self.clock.set(self.passed)

    def pass_busily(self, w, seconds):
        """And the service does what was due meanwhile."""
        for part in (seconds, 20):
            n = len(w.verbs("JOBS"))
            self.pass_time(part)
            w.wait("it goes on", lambda n=n: len(w.verbs("JOBS")) > n)

    def set_wall(self, by):
        self.set_by = by
        self.clock.set_wall(self.passed + by)


def images(w, **releases):
    for name, release in releases.items():
        os.makedirs(w.dir + "/images/base/" + name, exist_ok=True)
        with open(w.dir + "/images/base/%s/manifest.env" % name, "w") as f:
            f.write("LAYERS=x\nRUNNER_VERSION=%s\n" % release if release else "LAYERS=x\n")


def with_alarms(w):
    with open(w.dir + "/alarm", "w") as f:
        f.write('#!/bin/sh\necho "$1|$2|$3" >> %s/alarms\n' % w.dir)
    os.chmod(w.dir + "/alarm", 0o755)
    w.configure(top_more="alarm_command: %s/alarm\n" % w.dir)


def alarms(w):
    try:
        with open(w.dir + "/alarms") as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def asked(w):
    return [r["text"] for r in w.verbs("DEPRECATION")]


def status(w):
    return {v["image"]: (v["version"], v["state"], v["until"]) for v in w.control("STATUS", document=True)["versions"]}


@scenario()
def the_runners_age_is_looked_at_daily(w):
    now = time.time()
    soon = utc(now + 16 * DAY)
    w.deprecations = {"2.1.0": "", "2.2.0": "runs until " + soon, "2.3.0": "runs until " + utc(now - 40 * DAY)}
    images(w, fresh="2.1.0", ageing="2.2.0", twin="2.2.0", old="2.3.0", strange="9.9.9", plain="")
    with_alarms(w)
    t = Clocks(w)
    w.start(**t.env)
    w.wait("served", lambda: "octo/private: served" in w.text())
    t.pass_time(60)
    w.wait("each release was asked about", lambda: len(asked(w)) == 4)
    w.wait("it is known", lambda: all(x[1] != "not asked yet" for x in status(w).values()))
    assert sorted(asked(w)) == ["2.1.0", "2.2.0", "2.3.0", "9.9.9"], asked(w)
    assert status(w) == {"fresh": ("2.1.0", "taken", ""), "ageing": ("2.2.0", "taken", soon), "twin": ("2.2.0", "taken", soon),
                         "old": ("2.3.0", "gets no jobs", utc(now - 40 * DAY)), "strange": ("9.9.9", "taken", "")}, status(w)
    w.wait("the alarm", lambda: len(alarms(w)) == 1)
    assert alarms(w)[0].startswith("version|old|GitHub gives actions/runner 2.3.0 in this image no jobs any more: "), alarms(w)
    # Three days later the next one is near its end; the old one was told. GitHub cannot be asked at first, and is again later.
    w.on("DEPRECATION", lambda w, r: (_ for _ in ()).throw(w.fault("server", 5, "a fault of the test")), count=4)
    t.pass_time(3 * DAY)
    w.wait("asked again", lambda: len(asked(w)) == 8)
    time.sleep(1)
    assert len(alarms(w)) == 1 and status(w)["ageing"][1] == "taken", (alarms(w), status(w))
    t.pass_time(3700)
    w.wait("asked an hour later", lambda: len(asked(w)) == 12)
    w.wait("the alarms", lambda: len(alarms(w)) == 3)
    assert sorted(x.rpartition(":")[0] for x in alarms(w)[1:]) == [
        "version|%s|GitHub takes actions/runner 2.2.0 in this image until %s only" % (x, soon) for x in ("ageing", "twin")], alarms(w)
    assert status(w)["ageing"] == ("2.2.0", "ends soon", soon)
    done = subprocess.run([os.path.join(BUILD, "boxery-host"), "runners", "status"], capture_output=True, text=True, check=True, env={
        "HOME": w.dir, "PATH": os.environ["PATH"], **{"BOXERY_%s_DIR" % k.upper(): w.dir + "/" + k for k in ("config", "state")},
        "BOXERY_RUNTIME_DIR": w.dir + "/run"}).stdout
    assert "actions/runner 2.2.0 in image ageing ends soon: GitHub takes it until %s\n" % soon in done and "fresh" not in done, done
    # A new image takes an old one's place, and nothing is said twice.
    images(w, ageing="2.1.0", twin="2.1.0")
    for _ in range(2):
        t.pass_time(DAY + 60)
        w.wait("once a day", lambda n=len(asked(w)): len(asked(w)) == n + 3)
        time.sleep(1)
    assert len(alarms(w)) == 3 and status(w)["ageing"][:2] == ("2.1.0", "taken"), (alarms(w), status(w))


@scenario()
def the_wall_clock_is_set(w):
    """Three weeks ahead for some hours: a kept console is not old for that, no credential has ended, no runner is too old."""
    w.credential_expires = int(time.time() + 30 * DAY)
    w.deprecations = {"2.2.0": "runs until " + utc(time.time() + 30 * DAY)}
    images(w, one="2.2.0")
    with_alarms(w)
    t = Clocks(w)
    kept = w.dir + "/state/logs/%032x.log"
    os.mkdir(w.dir + "/state/logs")
    for i, age in enumerate((0, 20)):
        with open(kept % i, "w") as f:
            f.write("console")
        os.utime(kept % i, (time.time() - age * DAY,) * 2)
    w.start(**t.env)
    w.wait("what is old has gone", lambda: not os.path.exists(kept % 1))
    w.job()
    w.wait("the job's end", lambda: all(j["status"] == "completed" for j in w.jobs))
    w.wait_settled()
    t.pass_time(60)
    w.wait("asked about the runner", lambda: asked(w))
    for by in (20 * DAY, -20 * DAY, 29 * DAY, 0):
        t.set_wall(by)
        t.pass_busily(w, 3 * 3600)  # prunes each hour
        assert os.path.exists(kept % 0), "a kept console was old when the wall clock was set by %d days" % (by / DAY)
        assert alarms(w) == [], (by, alarms(w))
    w.job()
    w.wait("the job's end", lambda: all(j["status"] == "completed" for j in w.jobs))
    w.wait_settled()
    assert w.outcomes() == ["succeeded"] * 2 and status(w)["one"][1] == "taken", (w.outcomes(), status(w))
    # It stays so: then it is right, and what is old goes.
    t.set_wall(20 * DAY)
    for _ in range(9):
        t.pass_busily(w, 3 * 3600)
    w.wait("what has become old goes", lambda: not os.path.exists(kept % 0))
    w.wait("the credential's end is near", lambda: any(x.startswith("credential|") for x in alarms(w)))


if __name__ == "__main__":
    sys.exit(base.main())
