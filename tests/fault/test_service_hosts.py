#!/usr/bin/python3
"""test_service_hosts.py BUILD_DIR [NAME...] - several hosts that serve one queue, and new programs while a job runs: as test_service_real.py,
with more of it.

The quick tier runs one scenario of each kind; all of them, a minute and a half: test_service_hosts.py build"""
import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_service_real as real  # noqa: E402
from proto import until  # noqa: E402
from test_service_real import LABELS, REPO, Host, done_once, scenario  # noqa: E402

real.SCENARIOS.clear()
SECOND_TOKEN = "github_pat_of_the_second_host"
PROGRAMS = ("boxery-runners", "boxery-github", "boxery-keeper", "boxery-vm", "boxery-deliver")


def second_host(h):
    """Another host with the same configuration and a credential of its own, so that GitHub's log says who asked."""
    h.emulator.call("POST", "tokens", {"token": SECOND_TOKEN, "repos": "*",
                                       "permissions": {"administration": "write", "actions": "read", "metadata": "read"}})
    return Host(2, h.emulator, SECOND_TOKEN)


def host_id(host):
    return host.world.call("HELLO")["name"]


def asked_by(host):
    hashed = "sha256:" + hashlib.sha256(("Bearer " + host.token).encode()).hexdigest()
    return [r for r in host.emulator.requests() if r["headers"].get("authorization") == hashed]


def two_serve(h, other, disturb):
    foreign = [h.emulator.call("POST", "runners", {"repo": REPO, "name": "boxery-ffffffff-%d" % i, "labels": LABELS, "status": "offline"})
               for i in range(2)]
    h.start()
    other.start()
    jobs = [h.job("echo it is $RUNNER_NAME; sleep %d" % (2 + i % 3)) for i in range(10)]
    disturb()
    for job in jobs:
        h.finished(job, timeout=200)
    for host in (h, other):  # both see all registrations: that none is left is asked of all
        until(lambda host=host: all(v["state"] == "READY" for v in host.world.vms().values()) and not host.world.leases(), 150, 0.3)
    until(lambda: not [r for r in h.emulator.runners() if not r["foreign"] and r["state"] != "gone"], 60, 0.3)
    runners = h.emulator.runners()
    ran = {job: [r["name"] for r in runners if job in r["jobs"]] for job in jobs}
    assert all(len(names) == 1 for names in ran.values()), ran
    for job, names in ran.items():
        assert "it is " in h.emulator.log(job), names
    # Names say whose they are; each host's own number is known to its keeper.
    ids = {host_id(x): x for x in (h, other)}
    assert len(ids) == 2, ids
    made = {x: [r for r in runners if r["name"].startswith("boxery-%s-" % x)] for x in ids}
    assert all(any(r["jobs"] for r in mine) for mine in made.values()), "one host has done everything: %s" % ran
    assert sum(map(len, made.values())) == len([r for r in runners if not r["foreign"]])
    for x, host in ids.items():
        mine = {r["id"] for r in made[x]}
        deleted = {int(m[1]) for m in (re.search(r"/runners/(\d+)$", r["path"]) for r in asked_by(host) if r["method"] == "DELETE") if m}
        minted = [r for r in asked_by(host) if r["method"] == "POST" and "generate-jitconfig" in r["path"]]
        assert minted, "nothing in GitHub's log is this host's"
        assert deleted <= mine, "%s deleted %s, which it has not made" % (x, deleted - mine)
        assert all("boxery-%s-" % x in r["body"] for r in minted)
    assert {r["id"] for r in runners if r["foreign"] and r["state"] != "gone"} == {f["id"] for f in foreign}
    other.check()


@scenario
def two_hosts_share_a_queue(h):
    other = second_host(h)
    try:
        two_serve(h, other, lambda: None)
        assert other.stop() == 0
    except BaseException:
        print("--- the other service:\n" + other.text()[-8000:])
        raise
    finally:
        other.close()


@scenario
def two_hosts_and_one_dies(h):
    """Whatever dies on one of them, the other takes what is queued; and what the first has left at GitHub is not its business."""
    other = second_host(h)

    def disturb():
        until(lambda: any(v["state"] == "BUSY" for v in other.world.vms().values()), 60, 0.1)
        other.kill()
        other.kill_keeper()
        time.sleep(4)
        other.start()
        time.sleep(3)
        h.kill()
        h.start()
    try:
        two_serve(h, other, disturb)
    except BaseException:
        print("--- the other service:\n" + other.text()[-8000:])
        raise
    finally:
        other.close()


def older(version):
    """What takes a database back to the version before it, read from the step that leads to it."""
    with open(os.path.join(real.HERE, "..", "..", "pool", "store_schema.c"), encoding="utf-8") as f:
        step = re.search(r"/\*\s*%d: .*?(?=\n\t/\*|\n\};)" % version, f.read(), re.S)[0]
    assert "TABLE" in step and not re.search("CREATE|DROP|RENAME", step), "the way back from version %d has to be written down here" % version
    return ["ALTER TABLE %s DROP COLUMN %s" % what for what in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", step)]


def database(h, *statements):
    """Runs them; the last one's first value. Closed at once: a keeper wants the file for itself."""
    db = sqlite3.connect(h.world.path("state/boxery.db"), isolation_level=None)
    try:
        rows = [db.execute(s).fetchall() for s in statements]
    finally:
        db.close()
    return rows[-1][0][0] if rows[-1] else None


def version_of(h):
    return database(h, "PRAGMA user_version")


def make_older(h, to):
    now = version_of(h)
    database(h, *[s for version in range(now, to, -1) for s in older(version)], "PRAGMA user_version = %d" % to,
             "PRAGMA wal_checkpoint(TRUNCATE)")
    return now


def install(h):
    """As a package manager does: new files in the old one's places; what runs goes on with the old ones."""
    for name in PROGRAMS:
        path = h.world.path("bin", name)
        before = os.stat(path).st_ino
        shutil.copy2(path, path + ".new")
        os.rename(path + ".new", path)
        assert os.stat(path).st_ino != before


def keeper_stops(h):
    """As `boxery-host keeper stop` and systemd do."""
    done = subprocess.run([os.path.join(real.BUILD, "boxery-host"), "keeper", "stop"], env=h.world.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert h.world.keeper.wait(30) == 0
    h.world.keeper = None


def running_lease(h):
    h.busy()
    lease = next(iter(h.world.leases().values()))
    assert lease["open"]
    return lease


def still_that_job(h, lease):
    until(lambda: h.world.leases().get(lease["lease"], {}).get("state") == "BUSY", 30, 0.2)
    assert h.world.leases()[lease["lease"]]["generation"] == lease["generation"]


@scenario
def upgrade_with_a_job(h):
    """The whole path of docs/operations.md: new files, keeper and service restarted, an older database; the job notices nothing."""
    h.start()
    job = h.job("sleep 14; echo finished")
    lease = running_lease(h)
    install(h)
    assert h.stop() == 0
    keeper_stops(h)
    now = make_older(h, 2)
    h.world.start()
    h.start()
    still_that_job(h, lease)
    done_once(h, job)
    assert "finished" in h.emulator.log(job)
    assert len(h.mints()) == 1
    h.check()
    assert h.stop() == 0
    keeper_stops(h)
    assert (version_of(h), database(h, "SELECT count(*) FROM leases")) == (now, 1)
    h.world.start()


@scenario
def upgrade_of_one_after_the_other(h):
    """The keeper is replaced under a service that goes on, then the service; each order is as good."""
    h.start()
    job = h.job("sleep 25; echo finished")
    lease = running_lease(h)
    install(h)
    keeper_stops(h)
    # The service starts the new one by itself, as any command would.
    until(lambda: os.path.exists(h.world.path("run/keeper.sock")), 30, 0.1)
    still_that_job(h, lease)
    assert h.service.poll() is None, "the service has not lived through it"
    assert h.stop() == 0
    time.sleep(2)
    h.start()
    done_once(h, job)
    assert len(h.mints()) == 1


@scenario
def a_newer_database_is_refused(h):
    """Back to older programs: nothing is touched, the guest goes on, and the newer ones find everything as it was."""
    h.start()
    job = h.job("sleep 25; echo finished")
    lease = running_lease(h)
    assert h.stop() == 0
    keeper_stops(h)
    now = make_older(h, version_of(h))
    database(h, "PRAGMA user_version = 99")
    with open(h.world.path("state/boxery.db"), "rb") as f:
        before = f.read()
    done = subprocess.run([h.world.path("bin/boxery-keeper")], env=h.world.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=30, check=False)
    assert done.returncode != 0 and "is of version 99, this program knows versions up to %d: it was not touched" % now in done.stderr, done
    with open(h.world.path("state/boxery.db"), "rb") as f:
        assert f.read() == before, "it was touched"
    assert h.world.has("domains", "vm1"), "the guest was"
    database(h, "PRAGMA user_version = %d" % now)
    h.world.start()
    h.start()
    still_that_job(h, lease)
    done_once(h, job)


real.VMS = {"two_hosts_share_a_queue": 2, "two_hosts_and_one_dies": 2}
if __name__ == "__main__":
    sys.exit(real.main())
