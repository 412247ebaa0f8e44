#!/usr/bin/python3
"""test_service_admin.py BOXERY_RUNNERS [NAME...] - the runner service as an admin meets it: what is not private any more,
organizations, pause, drain and resume, reload, status, alarms, metrics, kept consoles. The worlds are test_service.py's."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_service as base  # noqa: E402
from service_world import EIO, LABELS, Refused  # noqa: E402
from test_service import jobs_done, one_job_done, scenario  # noqa: E402

base.SCENARIOS.clear()
HEAD = "version: 1\npoll_interval: 5s\n"
OCTO = "  - repo: octo/private\n    labels: [%s]\n    max: 2\n    start_timeout: 10s\n    idle_timeout: 10s\n" % LABELS
ORG = "  - org: acme\n    group: few\n    labels: [%s]\n    max: 2\n    start_timeout: 10s\n    idle_timeout: 1h\n" % LABELS


def minted(w):
    return len(w.verbs("MINT"))


def idle(w, n=1):
    return sum(r["online"] and not r["busy"] and not r["gone"] for r in w.runners.values()) >= n


# --- private only

@scenario()
def becomes_public_while_idle(w):
    """An idle runner is deregistered at once, not when its idle limit is over; a queued job is not served."""
    w.write_yaml(HEAD + "runners:\n" + OCTO.replace("idle_timeout: 10s", "idle_timeout: 1h"))
    w.behaviour = "idle"
    job = w.job()
    w.start()
    w.wait("an idle runner", lambda: idle(w))
    w.private = False
    w.wait("deregistered", lambda: all(r["gone"] for r in w.runners.values()), 25)
    w.wait_settled()
    assert w.outcomes()[0] in ("no job", "never connected"), w.outcomes()  # whether it had been asked about by then
    assert "not served: the repository is not private" in w.text()
    n = minted(w)
    time.sleep(6)
    assert minted(w) == n and job["status"] == "queued"
    w.private, w.behaviour = True, "work"
    one_job_done(w)


@scenario(vms=2)
def becomes_public_in_a_job(w):
    job = w.job(seconds=14)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.private = False
    w.job()
    w.wait("the job's end", lambda: job["status"] == "completed")
    w.wait_settled()
    assert w.outcomes() == ["succeeded"] and minted(w) == 1, w.outcomes()


# --- what is served

@scenario(vms=2)
def an_organization(w):
    """Jobs are looked for in the group's repositories; one is done whose repository the runner was never told."""
    w.write_yaml(HEAD + "runners:\n" + ORG)
    w.job(repo="acme/two", seconds=6)
    w.job(repo="acme/one", seconds=0.2)
    w.job(repo="acme/three")
    w.start()
    w.wait("two jobs", lambda: sum(j["status"] == "completed" for j in w.jobs) == 2, 90)
    w.wait_settled()
    assert sorted(w.outcomes()) == ["succeeded"] * 2, w.outcomes()
    assert all(r["scope"] == "acme" and r["group"] == "few" for r in w.verbs("MINT"))
    assert {r["scope"] for r in w.verbs("JOBS")} == {"acme/one", "acme/two"}


@scenario()
def an_organization_without_its_group(w):
    w.write_yaml(HEAD + "runners:\n" + ORG.replace("few", "none"))
    w.job(repo="acme/one")
    w.start()
    w.wait("the line", lambda: "acme: not served: no runner group named 'none'" in w.text())
    assert not w.leases


@scenario()
def a_group_for_all_repositories(w):
    w.group_repos = []
    w.write_yaml(HEAD + "runners:\n" + ORG)
    w.start()
    w.wait("the line", lambda: "say with repos: where to look for jobs" in w.text())


@scenario(vms=3)
def registered_runners_wait(w):
    w.write_yaml(HEAD + "runners:\n" + OCTO.replace("max: 2", "max: 3\n    registered: 2").replace("idle_timeout: 10s", "idle_timeout: 1h"))
    w.start()
    w.wait("two wait", lambda: idle(w, 2))
    w.job(seconds=6)
    w.wait("the job", lambda: jobs_done(w))
    w.wait("two wait again", lambda: idle(w, 2), 30)
    assert not w.verbs("JOBS"), "jobs were looked for"
    assert w.control("DRAIN") == (0, "")
    w.wait_settled()
    assert sorted(w.outcomes())[-1] == "succeeded", w.outcomes()


@scenario(vms=1)
def the_higher_priority_first(w):
    w.write_yaml(HEAD + "runners:\n" + OCTO + ORG + "    priority: 9\n")
    w.job(seconds=1)
    w.job(repo="acme/one", seconds=1)
    w.vms["vm1"]["state"] = "COLD"
    w.start()
    w.wait("both asked", lambda: "octo/private: served" in w.text() and "acme: served" in w.text())
    time.sleep(6)
    with w.lock:
        w.apply("vm1", "READY", "STARTED")
    one_job_done(w)
    assert [r["scope"] for r in w.verbs("MINT")] == ["acme", "octo/private"], w.verbs("MINT")


@scenario(vms=4)
def registered_ones_are_completed_after_failures(w):
    """Three deliveries fail together and one does not: the runner that waits is no reason to go without the others."""
    w.write_yaml(HEAD + "runners:\n" + OCTO.replace("max: 2", "max: 4\n    registered: 4").replace("idle_timeout: 10s", "idle_timeout: 1h"))
    w.behaviour = "idle"

    def fail(world, request):
        raise Refused(EIO, "the guest does not answer")
    w.on("DELIVER", fail, count=3)
    w.start()
    w.wait("all of them wait", lambda: idle(w, 4), 120)
    assert w.outcomes().count("delivery failed") == 3, w.outcomes()
    assert w.control("DRAIN", "") == (0, "")
    w.wait_settled()


# --- outcomes

@scenario()
def the_runner_is_too_old(w):
    """Stops with an alarm instead of looping; resume tries again."""
    w.behaviour = "never-connect"
    w.console("vm1", "boot\n2026-11-30 01:02:03Z: An error occurred: Runner version v2.300.0 is deprecated and cannot receive messages.\r\n"
              "boxery: listener exited 1\r\n")
    w.after(8, lambda: [w.stopped("vm1", w.vms["vm1"]["generation"])])
    w.job()
    w.start()
    w.wait("stopped", lambda: "octo/private: stopped: GitHub gives this version" in w.text(), 120)
    w.wait_settled()
    assert w.outcomes()[0] == "version deprecated" and set(w.outcomes()[1:]) <= {"never connected"}, w.outcomes()
    n = minted(w)
    time.sleep(7)
    assert minted(w) == n
    assert w.control("STATUS", document=True)["entries"][0]["state"] == "stopped"
    w.behaviour = "work"
    w.console("vm1", "")
    assert w.control("RESUME", "Octo/Private") == (0, "")
    one_job_done(w)


@scenario()
def a_session_conflict(w):
    w.behaviour = "never-connect"
    w.console("vm1", "boxery: listener exited 5\n")
    w.after(8, lambda: [w.stopped("vm1", w.vms["vm1"]["generation"])])
    w.job()
    w.start()
    w.wait("the word", lambda: "session conflict" in w.outcomes(), 120)
    w.behaviour = "work"
    w.console("vm1", "boxery: listener exited 5\n")  # a job ran: GitHub's word counts
    one_job_done(w)


@scenario()
def a_lost_runner_becomes_overdue(w):
    """GitHub lists it busy and offline for a quarter of an hour: it is taken back once GitHub lets go of it."""
    w.behaviour = "lost-in-job"
    job = w.job(seconds=1)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.wait("asked about it", lambda: w.verbs("RUNNER"), 90)
    time.sleep(3)
    # Its own clock cannot be moved here; that the deadline counts is test_manager_work's. GitHub lets go:
    with w.lock:
        runner = list(w.runners.values())[0]
        job.update(status="completed", conclusion="failure")
        runner.update(busy=False, gone=True)
    w.wait("taken back", lambda: not any(x["open"] for x in w.leases.values()), 220)
    w.wait_settled()
    assert w.outcomes() == ["failed"], w.outcomes()


# --- an admin's hand

@scenario()
def pause_outlives_a_kill(w):
    w.start()
    w.wait("served", lambda: "octo/private: served" in w.text())
    assert w.control("PAUSE") == (0, "")
    w.kill()
    w.restart_after_kill()
    job = w.job()
    time.sleep(8)
    assert not w.leases and w.control("STATUS", document=True)["entries"][0]["pause"] == "paused"
    assert w.control("PAUSE", "octo/other")[0] == -2
    assert w.control("RESUME") == (0, "")
    one_job_done(w)
    assert job["status"] == "completed" and not os.path.exists(w.dir + "/state/runners-paused")


@scenario(vms=2)
def drain(w):
    """A running job is left to end, an idle runner goes, nothing new comes; not even after a restart."""
    w.write_yaml(HEAD + "runners:\n" + OCTO.replace("idle_timeout: 10s", "idle_timeout: 1h"))
    job = w.job(seconds=18)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.behaviour = "idle"
    w.job()
    w.wait("an idle one", lambda: idle(w))
    assert w.control("DRAIN", "octo/private") == (0, "")
    w.wait("it goes", lambda: not idle(w), 10)
    assert job["status"] == "in_progress"
    w.kill()
    w.restart_after_kill()
    w.wait("the job's end", lambda: job["status"] == "completed")
    w.wait_settled()
    time.sleep(6)
    assert sorted(w.outcomes())[1] == "succeeded" and len(w.leases) == 2, w.outcomes()
    assert w.control("STATUS", document=True)["leases"] == []


@scenario(vms=2)
def reload_with_a_job_running(w):
    w.job(seconds=16)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.write_yaml("version: 1\nrunners: []\n")
    w.service.send_signal(signal.SIGHUP)
    w.wait("refused", lambda: "not read again, the old configuration stays" in w.text())
    code, text = w.control("RELOAD")
    assert code < 0 and "runners.yaml:2" in text, text
    w.write_yaml(HEAD + "runners:\n" + ORG)
    w.service.send_signal(signal.SIGHUP)
    w.wait("read", lambda: "read again: 1 entry" in w.text())
    w.job(repo="acme/one")
    one_job_done(w)
    assert sorted(w.outcomes()) == ["succeeded"] * 2, w.outcomes()
    assert [e["scope"] for e in w.control("STATUS", document=True)["entries"]] == ["acme"]


@scenario()
def reload_takes_idle_runners_of_a_gone_entry(w):
    w.write_yaml(HEAD + "runners:\n" + OCTO.replace("idle_timeout: 10s", "idle_timeout: 1h"))
    w.behaviour = "idle"
    w.job()
    w.start()
    w.wait("an idle one", lambda: idle(w))
    w.write_yaml(HEAD + "runners:\n" + ORG)
    assert w.control("RELOAD") == (0, "")
    w.wait("it goes", lambda: not idle(w), 10)
    w.wait_settled()


@scenario()
def many_reloads(w):
    """While everything is under way; nothing is lost or done twice."""
    w.start()
    w.wait("it listens", lambda: os.path.exists(w.dir + "/run/runners.sock"))
    for n in range(30):
        w.write_yaml(HEAD + "runners:\n" + (ORG + OCTO if n % 2 else OCTO))
        w.control("RELOAD")
        if n % 10 == 0:
            w.job(seconds=0.3)
        time.sleep(0.4)
    one_job_done(w)
    assert set(w.outcomes()) == {"succeeded"}, w.outcomes()


# --- seeing

@scenario()
def status_and_explain(w):
    w.job(seconds=8)
    w.job(labels="self-hosted,linux,x64,boxry", name="typo")
    w.job(labels="windows", name="other\x1b[31m")
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.wait("listed", lambda: w.verbs("JOB_SEEN"))
    s = w.control("STATUS", document=True)
    assert s["keeper"] and s["pid"] == w.service.pid
    (lease,) = s["leases"]
    assert (lease["state"], lease["vm"], lease["job"], lease["next"]) == ("busy", "vm1", "build", "the job ends"), lease
    assert s["entries"][0]["state"] == "serving" and s["budget"]["registrations"] == 1, s
    jobs = w.control("EXPLAIN", document=True)["jobs"]
    assert [(j["job"], j["label"], j["meant"]) for j in jobs] == [("typo", "boxry", "boxery"), ("other\\x1b[31m", "windows", "")], jobs
    w.jobs[:] = w.jobs[:1]
    one_job_done(w)


@scenario()
def alarm_metrics_and_logs(w):
    hook, metrics = w.dir + "/hook", w.dir + "/metrics.prom"
    with open(hook, "w") as f:
        f.write("#!/bin/sh\nprintf '%%s|' \"$@\" >>%s/alarms; echo >>%s/alarms; cat >>%s/alarms\n" % ((w.dir,) * 3))
    os.chmod(hook, 0o755)
    w.write_yaml("version: 1\npoll_interval: 5s\nalarm_command: %s\nmetrics_file: %s\nrunners:\n%s" % (hook, metrics, OCTO))
    w.console("vm1", "hello \x1b[31m\nboxery: listener exited 0\n")
    w.job(seconds=9)
    w.start()
    one_job_done(w)
    (lease,) = w.leases
    with open(w.dir + "/state/logs/%s.log" % lease) as f:
        assert "listener exited 0" in f.read()
    assert os.stat(w.dir + "/state/logs/%s.log" % lease).st_mode & 0o777 == 0o600
    w.private = False
    w.wait("the alarm", lambda: os.path.exists(w.dir + "/alarms"))
    time.sleep(1)
    with open(w.dir + "/alarms") as f:
        lines = f.read().splitlines()
    assert len(lines) == 1 and lines[0].startswith("public|octo/private|not served: "), lines

    def value(name):
        with open(metrics) as f:
            found = [line.split()[-1] for line in f if line.startswith(name + " ")]
        return float(found[0]) if found else None

    w.wait("the numbers", lambda: value('boxery_lease_outcomes_total{outcome="succeeded"}') == 1, 40)
    for stage in ("registration", "delivery", "runner_start", "job", "reset"):
        assert value("boxery_%s_seconds_count" % stage) == 1, stage
        assert value('boxery_%s_seconds_bucket{le="+Inf"}' % stage) == 1, stage
    w.wait("not served", lambda: value('boxery_entry_served{scope="octo/private"}') == 0, 40)
    assert value('boxery_rss_bytes{process="boxery-runners"}') > 1e6


@scenario()
def strangers_at_the_socket(w):
    import socket
    import proto
    w.start()
    w.wait("it listens", lambda: os.path.exists(w.dir + "/run/runners.sock"))
    assert os.stat(w.dir + "/run/runners.sock").st_mode & 0o777 == 0o600
    for data in (b"", b"x", b"\0" * 157, proto.CONTROL_REQUEST.pack(kind=99, seq=1), proto.CONTROL_REPLY.pack(seq=1),
                 proto.CONTROL_REQUEST.pack(kind=3, seq=1, scope="x" * 141)):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(15)
        s.connect(w.dir + "/run/runners.sock")
        if data:
            s.send(data)
        else:
            s.shutdown(socket.SHUT_WR)
        assert s.recv(8192) == b"", data
    silent = []
    for _ in range(40):  # more than it serves at once
        silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        silent[-1].settimeout(5)
        try:
            silent[-1].connect(w.dir + "/run/runners.sock")
        except OSError:
            break
    w.job()
    one_job_done(w)

    def served():
        try:
            return w.control("STATUS", document=True)["pid"] == w.service.pid
        except OSError:
            return False

    w.wait("served again", served, 20)


if __name__ == "__main__":
    sys.exit(base.main())
