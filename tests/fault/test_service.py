#!/usr/bin/python3
"""test_service.py BOXERY_RUNNERS [NAME...] - the runner service against everything that can go wrong around it.

Every scenario has a world of its own; they run side by side, because most of their time is waiting."""
import concurrent.futures
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from service_world import EACCES, EAGAIN, EIO, LABELS, Refused, World  # noqa: E402

PROGRAM = sys.argv[1]
SCENARIOS = []


def scenario(**options):
    def take(function):
        SCENARIOS.append((function.__name__, function, options))
        return function
    return take


def each(values, **options):
    """One scenario per value."""
    def take(function):
        for value in values:
            SCENARIOS.append(("%s[%s]" % (function.__name__, value), lambda w, v=value: function(w, v), options))
        return function
    return take


def jobs_done(w):
    return all(j["status"] == "completed" for j in w.jobs)


def one_job_done(w, outcome="succeeded", timeout=90):
    w.wait("the job's end", lambda: jobs_done(w), timeout)
    w.wait_settled(timeout)
    assert outcome in w.outcomes(), w.outcomes()


@scenario()
def a_job(w):
    w.job(labels="windows")
    w.job(labels=LABELS + ",gpu")
    w.start()
    time.sleep(7)
    assert not w.leases, "leased for jobs of others"
    w.jobs.clear()
    w.job(labels="BOXERY,linux", seconds=7, name="build \x1b[31m \u00e4")
    one_job_done(w)
    assert w.outcomes() == ["succeeded"], w.outcomes()
    assert len(w.runners) == 1
    lease = list(w.leases.values())[0]
    assert lease["job"] == "build \\x1b[31m \\xc3\\xa4", lease["job"]
    assert len(w.verbs("JOB_SEEN")) == 1
    order = [v for v, _ in w.log if v in ("LEASE", "REGISTER", "MINT", "DELIVER", "JOB_SEEN", "JOB_OF", "OUTCOME", "RUNNERS", "DELETE")]
    assert order == ["LEASE", "REGISTER", "MINT", "REGISTER", "DELIVER", "JOB_SEEN", "JOB_OF", "OUTCOME", "RUNNERS",
                     "REGISTER"], order
    for state in ("planning", "minting", "recording", "delivering", "waiting", "busy", "asking", "done"):
        assert re.search(r"-> %s .*vm=vm1 lease=%s" % (state, lease["id"]), w.text()), state
    assert w.stop() == 0


@scenario(vms=1)
def two_jobs_one_vm(w):
    w.job(seconds=6)
    w.job(conclusion="failure")
    w.start()
    one_job_done(w)
    assert sorted(w.outcomes()) == ["failed", "succeeded"], w.outcomes()
    assert len(w.runners) == 2


@scenario(vms=3)
def no_more_than_max(w):
    for _ in range(5):
        w.job(seconds=3)
    w.start()
    most = 0
    while not jobs_done(w):
        with w.lock:
            most = max(most, sum(x["open"] for x in w.leases.values()))
        time.sleep(0.05)
        assert w.service.poll() is None, w.text()
    w.wait_settled()
    assert most == 2, most
    assert len(w.runners) >= 5


@scenario(guest=(0.3, 5, 0.2))
def a_slow_runner_is_not_doubled(w):
    """Queued jobs are still listed while a lease of ours is on its way to them."""
    w.vms["vm2"] = dict(state="READY", generation=1, lease="", pool="default")
    w.job(seconds=1)
    w.start()
    one_job_done(w)
    assert len(w.leases) == 1, w.outcomes()


def long_list(w):
    """More runners than one page of GitHub's list holds, and a GitHub that leaves registrations behind when their job has ended."""
    w.behaviour = "keeps-spent"
    for i in range(120):
        w.register("theirs-%d" % i, foreign=True)


@scenario()
def a_list_that_is_cut_proves_nothing(w):
    """Who is missing on the first page of a longer list is not gone: its registration is deleted by its id."""
    long_list(w)
    w.job()
    w.start()
    one_job_done(w)
    assert w.verbs("RUNNERS") and len(w.verbs("DELETE")) == 1


@scenario(vms=4)
def many_are_asked_about_at_once(w):
    """One list instead of a question for each runner; a runner that is gone in it is still deleted before its VM is taken."""
    w.write_yaml("version: 1\npoll_interval: 5s\nrunners:\n  - repo: octo/private\n    labels: [%s]\n    max: 4\n"
                 "    start_timeout: 10s\n    idle_timeout: 10s\n    registered: 3\n" % LABELS)
    w.behaviour = "idle"
    w.start()
    w.wait("three idle", lambda: w.text().count("-> idle") == 3)
    assert w.verbs("RUNNERS") and not w.verbs("RUNNER"), w.verbs("RUNNER")
    w.wait("taken back", lambda: len(w.verbs("RELEASE")) >= 3)
    w.private = False
    w.wait_settled()
    assert set(w.outcomes()) <= {"no job", "never connected"}, w.outcomes()


KILLS = ["LEASE", "REGISTER", "MINT", "DELIVER", "JOB_SEEN", "JOB_OF", "OUTCOME", "DELETE", "REGISTER-2", "REGISTER-3", "RUNNER",
         "RUNNERS", "JOBS", "REPOSITORY", "HELLO"]


@each([v + s for v in KILLS for s in ("", "-after")])
def killed_at(w, where):
    """kill -9 before or after the world has acted on that request; the job is done, once, and nothing is left."""
    action = "kill-after" if where.endswith("-after") else "kill"
    verb = where.replace("-after", "")
    skip = 0
    if verb[-1].isdigit():
        verb, skip = verb[:-2], int(verb[-1]) - 1
    w.job(seconds=7)
    if verb == "RUNNER":
        w.guest = (0.3, 12, 0.2)  # else the list of jobs says busy first
    if verb == "DELETE":
        long_list(w)
    if skip:
        w.on(verb, None, skip)
    w.on(verb, action)
    w.start()
    assert w.service.wait(60) == -signal.SIGKILL, w.text()
    begun = w.text().count("connected to the keeper")
    w.start()
    w.wait("it runs", lambda: w.text().count("connected to the keeper") > begun)  # before that SIGTERM just ends it
    one_job_done(w)
    with w.lock:
        taken = [r for r in w.runners.values() if r["jobs"]]
    assert len(taken) == 1 and len(taken[0]["jobs"]) == 1, w.runners
    assert w.stop() == 0


@scenario()
def killed_in_mid_job(w):
    w.job(seconds=20)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.kill()
    w.restart_after_kill()
    one_job_done(w)
    assert len(w.runners) == 1 and w.outcomes() == ["succeeded"]
    assert "found again: busy" in w.text()


@scenario()
def killed_and_the_job_ends_meanwhile(w):
    w.job(seconds=6)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.kill()
    w.service.wait()
    w.wait("reset", lambda: w.vms["vm1"]["state"] == "READY")
    w.start()
    one_job_done(w)
    assert w.outcomes() == ["succeeded"] and len(w.runners) == 1


@scenario()
def stopped_in_mid_job(w):
    w.job(seconds=15)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    begin = time.monotonic()
    assert w.stop() == 0
    assert time.monotonic() - begin < 3, "an answer was waited for that nobody needs"
    assert w.vms["vm1"]["state"] == "BUSY"
    assert "1 running job goes on in its VM; the next start finds it" in w.text()
    w.start()
    one_job_done(w)
    assert w.outcomes() == ["succeeded"] and len(w.runners) == 1


@scenario()
def stopped_while_minting(w):
    w.on("MINT", "hold")
    w.job()
    w.start()
    w.wait("minting", lambda: w.verbs("MINT"))
    begin = time.monotonic()
    assert w.stop() == 0
    assert time.monotonic() - begin < 10
    lease = list(w.leases.values())[0]
    assert w.verbs("RELEASE", text="not delivered"), "its lease was not given back"
    assert lease["registration"] == "planned", "called gone although GitHub never answered"
    assert not w.verbs("DELIVER")


@scenario()
def stopped_before_delivery(w):
    """The JIT config is there and not delivered: everything is put back within the time a stop has."""
    w.on("REGISTER", None)
    def stop_and_see_it_heard(world, r):
        world.service.terminate()
        end = time.monotonic() + 30
        while "stopping:" not in world.text() and time.monotonic() < end:
            time.sleep(0.02)  # the answer must not overtake the signal

    w.on("REGISTER", stop_and_see_it_heard)
    w.job()
    w.start()
    assert w.service.wait(45) == 0
    w.wait_settled()
    assert w.outcomes() == ["not delivered"] and not w.verbs("DELIVER")


@scenario()
def server_errors(w):
    w.on("MINT", lambda world, r: (_ for _ in ()).throw(world.fault("server", EIO, "503")), 3)
    w.job()
    w.start()
    one_job_done(w, timeout=120)
    assert len(w.verbs("MINT")) == 4
    assert sorted(w.outcomes()) == ["mint failed"] * 3 + ["succeeded"], w.outcomes()


@scenario()
def registered_but_the_answer_is_lost(w):
    def acted(world, r):
        world.register(r["runner_name"])
        raise world.fault("server", EIO, "502", may_exist=1)
    w.on("MINT", acted)
    w.job()
    w.start()
    one_job_done(w)
    assert sorted(w.outcomes()) == ["mint conflict", "succeeded"], w.outcomes()
    assert len(w.runners) == 2


@scenario()
def registered_late(w):
    """The answer is lost and GitHub acts half a minute later: not found is not gone."""
    def late(world, r):
        world.after(20, world.register, r["runner_name"])
        raise world.fault("network", EIO, "no answer", may_exist=1)
    w.on("MINT", late)
    w.job()
    w.start()
    w.wait("the job's end", lambda: jobs_done(w), 90)
    w.wait_settled(120)
    assert len(w.runners) == 2


@scenario()
def child_dies_after_acting(w):
    w.on("MINT", "after")
    w.job()
    w.start()
    one_job_done(w)
    assert "mint conflict" in w.outcomes()


@scenario()
def name_taken(w):
    def taken(world, r):
        world.register(r["runner_name"])
    w.on("MINT", taken)
    w.job()
    w.start()
    one_job_done(w)
    assert sorted(w.outcomes()) == ["mint conflict", "succeeded"], w.outcomes()


@scenario()
def rate_limited(w):
    def limited(world, r):
        raise world.fault("limit", EAGAIN, "API rate limit exceeded", retry_after_ms=12000)
    w.on("MINT", limited)
    w.job()
    w.start()
    w.wait("the limit", lambda: w.verbs("MINT"))
    before = len(w.log)
    time.sleep(10)
    asked = [v for v, _ in w.log[before:] if v in ("JOBS", "MINT", "RUNNER", "RUNNERS", "DELETE", "REPOSITORY")]
    assert not asked, asked
    one_job_done(w)


@scenario()
def limits_apart_do_not_add_up(w):
    """Only a limit that comes again at once makes the wait grow: between these GitHub answers, if only "not modified"."""
    def limited(world, r):
        raise world.fault("limit", EAGAIN, "secondary rate limit", retry_after_ms=1000, limit_kind=2)
    seen, quiet = [], lambda: w.control("STATUS", document=True)["budget"]["limited_for_ms"]
    w.start()
    for _ in range(2):
        n = len(w.verbs("JOBS"))
        w.wait("an answer", lambda: len(w.verbs("JOBS")) > n)
        w.on("REPOSITORY", limited)
        w.wait("the limit", lambda: not w.actions["REPOSITORY"])
        time.sleep(0.1)
        seen.append(quiet())
    assert all(ms <= 1000 for ms in seen), seen


@scenario()
def limited_while_a_job_runs(w):
    def limited(world, r):
        raise world.fault("limit", EAGAIN, "secondary rate limit", retry_after_ms=6000)
    w.job(seconds=12)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.on("JOBS", limited, 2)
    w.on("JOB_OF", limited)
    one_job_done(w)
    assert w.outcomes() == ["succeeded"] and not w.verbs("RELEASE")


@scenario()
def public(w):
    w.private = False
    w.job()
    w.start()
    time.sleep(22)
    assert not w.leases and not w.verbs("MINT")
    assert w.text().count("not private") == 1, w.text()
    w.private = True
    one_job_done(w)


@scenario()
def public_in_between(w):
    """Private when looked at, public when minted."""
    def turns(world, r):
        world.private = False
    w.on("MINT", turns)
    w.job()
    w.start()
    w.wait("minted", lambda: w.verbs("MINT"))
    time.sleep(12)
    assert len(w.verbs("MINT")) == 1 and not w.runners
    assert w.text().count("not private") == 2, w.text()  # the answer, and the alarm
    w.private = True
    one_job_done(w)


@scenario()
def credential(w):
    def bad(world, r):
        raise world.fault("credential", EACCES, "the token is refused (401)")
    w.on("JOBS", bad)
    w.job()
    w.start()
    w.wait("the alarm", lambda: "not served: the token is refused (401)" in w.text())
    before = len(w.verbs("REPOSITORY"))
    time.sleep(8)
    assert len(w.verbs("REPOSITORY")) == before, "retried too fast"
    one_job_done(w, timeout=90)


@scenario()
def idle_runner(w):
    """The job is cancelled before it is picked up; the runner idles and is taken back, its registration first."""
    w.behaviour = "idle"
    job = w.job()
    w.start()
    w.wait("online", lambda: any(r["online"] for r in w.runners.values()))
    job.update(status="completed", conclusion="cancelled")
    w.wait("taken back", lambda: w.verbs("RELEASE"))
    w.wait_settled()
    assert w.outcomes() == ["no job"], w.outcomes()
    order = [v for v, _ in w.log if v in ("DELETE", "RELEASE")]
    assert order == ["DELETE", "RELEASE"], order


@scenario()
def never_connected(w):
    w.behaviour = "never-connect"
    w.job()
    w.start()
    w.wait("taken back", lambda: w.verbs("RELEASE", text="never connected"))
    w.behaviour = "work"
    one_job_done(w)
    assert sorted(w.outcomes()) == ["never connected", "succeeded"], w.outcomes()


@scenario(guest=(12, 0.1, 0.2))
def busy_in_the_last_moment(w):
    """GitHub says offline, then refuses the DELETE: the job goes on."""
    w.job(seconds=8)
    w.start()
    w.wait("delivered", lambda: w.vms["vm1"]["state"] == "DELIVERED")

    def busy(world, r):
        world.guest_online("vm1", 1)
        job = world.jobs[0]
        runner = world.runners[r["runner_id"]]
        job.update(status="in_progress", runner_id=runner["id"], runner_name=runner["name"])
        runner.update(busy=True, online=True, jobs=[job["id"]])
        world.after(8, world.guest_done, "vm1", 1, runner, job)
    w.guest = (1000, 1000, 0.2)
    w.on("DELETE", busy)
    one_job_done(w)
    assert w.outcomes() == ["succeeded"], w.outcomes()
    assert not w.verbs("RELEASE")


@scenario()
def cannot_be_asked_is_not_gone(w):
    """The start time-out passes while GitHub is away: the VM is left alone until it can be asked."""
    def away(world, r):
        raise world.fault("network", EIO, "no route")
    w.behaviour = "never-connect"
    w.job()
    w.start()
    w.wait("delivered", lambda: w.vms["vm1"]["state"] == "DELIVERED")
    w.on("DELETE", away, 2)
    w.wait("asked in vain", lambda: len(w.verbs("DELETE")) == 1)
    assert not w.verbs("RELEASE")
    w.wait("asked", lambda: len(w.verbs("DELETE")) == 3)
    w.behaviour = "work"
    one_job_done(w)


@scenario()
def cancelled(w):
    w.job(conclusion="cancelled", seconds=1)
    w.start()
    one_job_done(w, "cancelled")


@scenario()
def guest_dies_in_job(w):
    job = w.job(seconds=None)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    with w.lock:
        w.stopped("vm1", 1, "crashed")
    w.wait("named", lambda: w.outcomes() == ["guest died"], 90)
    assert list(w.leases.values())[0]["registration"] == "made", "GitHub still calls it busy"
    # GitHub gives the runner up.
    with w.lock:
        job.update(status="completed", conclusion="failure")
        list(w.runners.values())[0].update(busy=False, gone=True)
    w.wait_settled(60)


@scenario()
def guest_dies_before_the_job(w):
    w.behaviour = "idle"
    job = w.job()
    w.start()
    w.wait("online", lambda: any(r["online"] for r in w.runners.values()))
    job.update(status="completed", conclusion="cancelled")
    with w.lock:
        w.stopped("vm1", 1, "crashed")
    w.wait_settled(120)
    assert w.outcomes() == ["guest died"], w.outcomes()


@scenario()
def deadline(w):
    w.job(seconds=None)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    lease = list(w.leases.values())[0]
    assert lease["ttl_ms"] == (10 + 10 + 6 * 3600 + 60) * 1000, lease["ttl_ms"]
    w.wait("the job's own time", lambda: w.verbs("RENEW", lease=lease["id"], ttl_ms=6 * 3600 * 1000, flags=1))
    with w.lock:
        w.apply("vm1", "RESETTING", "EXPIRED", "its lease has expired")
    w.wait("named", lambda: w.outcomes() == ["job deadline"])
    with w.lock:
        w.jobs[0].update(status="completed", conclusion="failure")
        list(w.runners.values())[0].update(busy=False, gone=True)
    w.wait_settled(60)


@scenario(yaml_more="    job_timeout: 1m\n")
def job_timeout(w):
    """From the moment in which the job is seen the lease is as long as a job may be, however it was taken."""
    w.job(seconds=None)
    w.on("RENEW", lambda world, r: (_ for _ in ()).throw(Refused(EIO, "not now")))
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    begin = time.monotonic()
    w.wait("ended", lambda: w.vms["vm1"]["state"] != "BUSY", 90)
    assert 55 < time.monotonic() - begin < 72, time.monotonic() - begin
    assert len(w.verbs("RENEW")) == 2, "asked again when the keeper could not"
    w.wait("named", lambda: w.outcomes() == ["job deadline"])
    with w.lock:
        w.jobs[0].update(status="completed", conclusion="failure")
        list(w.runners.values())[0].update(busy=False, gone=True)
    w.wait_settled(60)


@scenario(yaml_more="    job_timeout: 1m\n")
def job_timeout_after_a_kill(w):
    """Killed between JOB_SEEN and RENEW: the next life sees a lease that is too long."""
    w.job(seconds=None)
    w.on("RENEW", "kill")
    w.start()
    w.restart_after_kill()
    w.wait("renewed", lambda: len(w.verbs("RENEW", ttl_ms=60000)) == 2, 20)
    w.kill()
    w.restart_after_kill()
    time.sleep(8)
    assert len(w.verbs("RENEW")) == 2, "a job's time began anew"
    with w.lock:
        w.jobs[0].update(status="completed", conclusion="success")
        list(w.runners.values())[0].update(busy=False, gone=True, online=False)
        w.stopped("vm1", 1)
    one_job_done(w)


@scenario(vms=2)
def delivery_fails(w):
    def broken(world, r):
        lease = world.leases[r["lease"]]
        world.apply(lease["vm"], "DELIVERED", "DELIVER")
        world.apply(lease["vm"], "RESETTING", "DOUBT", "the host key is another one")
        raise Refused(EIO, "the host key is another one")

    def refused(world, r):
        raise Refused(EIO, "the network filter is not in force")
    w.on("DELIVER", broken)
    w.on("DELIVER", refused)
    w.job()
    w.start()
    one_job_done(w)
    assert sorted(w.outcomes()) == ["delivery failed", "delivery failed", "succeeded"], w.outcomes()


@scenario(vms=2)
def a_slow_delivery_delays_nobody(w):
    w.on("DELIVER", "hold")
    w.job()
    w.job()
    w.start()
    w.wait("one job", lambda: any(j["status"] == "completed" for j in w.jobs), 30)
    w.wait("its outcome", lambda: "succeeded" in w.outcomes(), 30)


@scenario()
def keeper_gone_in_mid_job(w):
    w.job(seconds=12)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    w.keeper_stop()
    one_job_done(w)
    assert w.keeper_up, "nobody started a keeper"
    assert w.outcomes() == ["succeeded"] and len(w.runners) == 1


@each(["LEASE", "REGISTER", "MINT", "DELIVER", "JOB_SEEN", "OUTCOME"])
def keeper_gone_at(w, verb):
    def gone(world, r):
        world.keeper_stop()
        return "drop" if verb != "MINT" else None
    w.on(verb, gone)
    w.job(seconds=6)
    w.start()
    one_job_done(w)
    assert len([r for r in w.runners.values() if r["jobs"]]) == 1


@scenario()
def keeper_forgets_to_tell(w):
    """An event is missed: the list of leases tells it a minute later."""
    w.job(seconds=6)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    with w.lock:
        for s, kind in list(w.clients.items()):
            if kind == "subscriber":
                w.clients[s] = "keeper"
    one_job_done(w, timeout=120)


@scenario()
def github_child_killed(w):
    w.job(seconds=12)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    for _ in range(3):
        with w.lock:
            for s, kind in list(w.clients.items()):
                if kind == "github":
                    w.drop(s)
        time.sleep(2)
    one_job_done(w)
    assert w.text().count("GitHub: https://api.github.test") >= 2


@scenario()
def github_child_talks_rubbish(w):
    def rubbish(world, r):
        r["_socket"].send(b"x" * 100)
        return "hold"

    def wrong_seq(world, r):
        r["seq"] += 7
    w.on("JOBS", rubbish)
    w.on("REPOSITORY", wrong_seq)
    w.job()
    w.start()
    one_job_done(w)


@scenario()
def gone_runner_is_replaced(w):
    """GitHub drops an idle registration; the guest powers off with exit 0: no job, and the next lease does it."""
    w.behaviour = "idle"
    w.job()
    w.start()
    w.wait("online", lambda: any(r["online"] for r in w.runners.values()))
    with w.lock:
        w.behaviour = "work"
        for r in w.runners.values():
            r.update(gone=True, online=False)
    one_job_done(w, timeout=150)
    assert sorted(w.outcomes()) == ["no job", "succeeded"], w.outcomes()


@scenario(reset=0.1)
def no_endless_minting(w):
    """Guests that end at once without a job: few registrations, growing waits, one alarm."""
    def dies(world, r):
        lease = world.leases[r["lease"]]
        world.apply(lease["vm"], "DELIVERED", "DELIVER")
        world.apply(lease["vm"], "RESETTING", "DOUBT", "it does not answer")
        raise Refused(EIO, "it does not answer")
    w.on("DELIVER", dies, 1000)
    w.job()
    w.start()
    time.sleep(75)
    assert 4 <= len(w.verbs("MINT")) <= 7, len(w.verbs("MINT"))
    assert "leases in a row got no job" in w.text()
    w.jobs.clear()
    w.wait_settled()


@scenario()
def foreign_runners(w):
    foreign = w.register("somebody-else", foreign=True)
    w.job()
    w.start()
    one_job_done(w)
    assert not foreign["gone"]


@scenario()
def one_at_a_time(w):
    w.start()
    w.wait("it runs", lambda: w.verbs("REPOSITORY"))
    env = dict(os.environ, BOXERY_CONFIG_DIR=w.dir + "/config", BOXERY_STATE_DIR=w.dir + "/state",
               BOXERY_RUNTIME_DIR=w.dir + "/run")
    second = subprocess.run([w.dir + "/bin/boxery-runners"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=20)
    assert second.returncode == 4 and "(process %d)" % w.service.pid in second.stdout, second
    assert w.stop() == 0
    w.start()
    time.sleep(1)
    assert w.service.poll() is None


@scenario(pool="other")
def empty_pool(w):
    w.job()
    w.start()
    w.wait("the line", lambda: "pool default has no VM" in w.text())
    time.sleep(6)
    assert not w.leases and w.service.poll() is None


@scenario()
def told_to_systemd(w):
    path = w.dir + "/notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path)
    s.settimeout(20)
    env = {"PATH": os.environ["PATH"], "HOME": w.dir, "BOXERY_TEST_DIR": w.dir, "BOXERY_CONFIG_DIR": w.dir + "/config",
           "BOXERY_STATE_DIR": w.dir + "/state", "BOXERY_RUNTIME_DIR": w.dir + "/run", "NOTIFY_SOCKET": path,
           "WATCHDOG_USEC": "2000000"}
    w.service = subprocess.Popen([w.dir + "/bin/boxery-runners"], env=env, stdin=subprocess.DEVNULL, stdout=w.output,
                                 stderr=w.output)
    got, end = "", time.monotonic() + 20
    while time.monotonic() < end and not all(x in got for x in ("READY=1", "STATUS=octo/private: serving", "WATCHDOG=1")):
        got += s.recv(4096).decode() + "\n"
    assert "READY=1" in got and "WATCHDOG=1" in got and "STATUS=octo/private: serving" in got, got
    assert w.stop() == 0
    while "STOPPING=1" not in got:
        got += s.recv(4096).decode() + "\n"


@scenario()
def nothing_secret_in_sight(w):
    """The JIT config is in no argument, environment, file or line of the service while a job runs."""
    w.job(seconds=6)
    w.start()
    w.wait("busy", lambda: w.vms["vm1"]["state"] == "BUSY")
    needle = b"QUJDQUJD"
    for name in ("environ", "cmdline"):
        with open("/proc/%d/%s" % (w.service.pid, name), "rb") as f:
            assert needle not in f.read()
    for root, _, names in os.walk(w.dir):
        for name in names:
            path = os.path.join(root, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    assert needle not in f.read(), path
    links = [os.readlink("/proc/%d/fd/%s" % (w.service.pid, n)) for n in os.listdir("/proc/%d/fd" % w.service.pid)]
    assert not any("memfd" in x for x in links), links
    one_job_done(w)


def run_one(name, function, options):
    world = None
    try:
        world = World(PROGRAM, **options)
        function(world)
        if world.service.poll() is None:
            assert world.stop() == 0, "it does not end well"
        wrong = world.check() if name.split("[")[0] not in (
            "stopped_while_minting", "a_slow_delivery_delays_nobody", "storm") else []
        assert not wrong, wrong
        return name, None
    except Exception:
        return name, traceback.format_exc() + ("\n--- its words:\n" + world.text() if world else "")
    finally:
        if world:
            world.close()


def main():
    wanted = sys.argv[2:]
    chosen = [s for s in SCENARIOS if not wanted or any(x in s[0] for x in wanted)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("SCENARIOS", "16"))) as pool:
        begin = time.monotonic()
        for done in concurrent.futures.as_completed([pool.submit(run_one, *s) for s in chosen]):
            name, fault = done.result()
            print("%s %-45s %6.1f s" % ("ok  " if not fault else "FAIL", name, time.monotonic() - begin), flush=True)
            if fault:
                failed += 1
                print(fault, flush=True)
    print("%d scenarios, %d failed" % (len(chosen), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
