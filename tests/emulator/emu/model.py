"""What GitHub would know: repositories, organisations, tokens, runners, runs, jobs. One lock; time passes in tick().

A registration's life, one value, changed by Runner.become() only:

    offline -> online -> assigned -> busy -> done -> gone
       ^_________|  ^________|   (not acquired in time)

offline: registered and not connected, or lost. assigned: a job was handed to it; REST still says not busy, DELETE says 422.
done: the job is over, the row is still listed. gone: not listed; kept here so that tests can see every registration there was.
"""
import hashlib
import itertools
import re
import threading
import time

from . import jit

STATES = ("offline", "online", "assigned", "busy", "done", "gone")
JOBS_MAX = 10000
RUNNERS_MAX = 20000
DEFAULTS = {
    "poll_seconds": 20, "offline_after": 45, "lease_seconds": 600, "acquire_seconds": 60, "linger_seconds": 0,
    "unconnected_expires": 86400, "idle_vanishes": 0, "conflict_retry_seconds": 30, "conflict_limit_seconds": 240,
    "rate_limit": 5000, "rate_remaining": 5000, "rate_reset_in": 3600, "log_max": 1 << 20, "assign_delay_ms": 0,
    "clock_skew": 0,
    "downloads": [
        {"os": "linux", "architecture": arch, "filename": "actions-runner-linux-%s-2.338.0.tar.gz" % arch,
         "download_url": "https://github.com/actions/runner/releases/download/v2.338.0/"
                         "actions-runner-linux-%s-2.338.0.tar.gz" % arch, "sha256_checksum": digest}
        for arch, digest in (("x64", "af4b794c1bc41d73d40535e3fe092a39f9679cd8d965954c2aca25a05ca41d32"),
                             ("arm64", "628b4a7258487b80c1d3c221095a7ded349f5ae0175fd3dfab708d07428f041b"))],
    "deprecations": {
        "2.335.1": {"registration_deprecates_at": "2026-09-24T00:00:00Z", "runtime_deprecates_at": "2026-09-24T00:00:00Z"},
        "2.336.0": {"registration_deprecates_at": "2026-11-05T00:00:00Z", "runtime_deprecates_at": "2026-11-05T00:00:00Z"},
        "2.337.0": {"registration_deprecates_at": None, "runtime_deprecates_at": None},
        "2.338.0": {"registration_deprecates_at": None, "runtime_deprecates_at": None},
    },
}
CONCLUSIONS = {"Succeeded": "success", "SucceededWithIssues": "success", "Failed": "failure", "Canceled": "cancelled",
               "Skipped": "skipped", "Abandoned": "failure"}


class Refused(Exception):
    """A call that the model refuses; `code` is one of the words used below."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Repo:
    def __init__(self, number, full_name, private=True, visibility=None):
        self.id, self.full_name, self.created = number, full_name, time.time()
        self.override, self.drop = {}, []
        self.set_private(private, visibility)

    def set_private(self, private, visibility=None):
        self.private = bool(private)
        self.visibility = visibility or ("private" if private else "public")

    @property
    def owner(self):
        return self.full_name.split("/")[0]


class Group:
    def __init__(self, number, name, visibility="all", repositories=(), allows_public=False, default=False):
        self.id, self.name, self.visibility, self.default = number, name, visibility, default
        self.repositories = [r.lower() for r in repositories]
        self.allows_public = allows_public

    def admits(self, repo):
        if not repo.private and not self.allows_public:
            return False
        return self.visibility in ("all", "private") or repo.full_name.split("/")[1].lower() in self.repositories


class Token:
    def __init__(self, text, login="octocat", repos="*", permissions=None, expired=False):
        self.sha256, self.login, self.expired = hashlib.sha256(text.encode()).hexdigest(), login, expired
        self.repos = "*" if repos == "*" else [r.lower() for r in repos]
        self.permissions = permissions  # None: everything
        self.expires, self.announced = None, None  # epoch seconds; announced: the header of a personal token's answers

    def sees(self, full_name):
        return self.repos == "*" or full_name.lower() in self.repos

    def may(self, permission, level):
        if self.permissions is None:
            return True
        has = self.permissions.get(permission)
        return has in ("write", "admin") or has == level


class Runner:
    def __init__(self, number, scope, name, group, labels, work_folder="_work"):
        self.id, self.scope, self.name, self.group, self.work_folder = number, scope, name, group, work_folder
        self.labels = sorted({x.lower() for x in labels})
        self.os, self.version, self.foreign, self.foreign_busy = "unknown", None, False, False
        self.state, self.ended, self.behaviour = "offline", None, {}
        self.created, self.since, self.seen = time.time(), time.monotonic(), time.monotonic()
        self.times = {k: None for k in ("connected", "assigned", "consumed", "deleted", "gone", "last_seen")}
        self.session, self.sessions, self.jobs, self.job, self.config = None, 0, [], None, None

    def become(self, state):
        assert state in STATES, state
        if self.state != state:
            self.state, self.since = state, time.monotonic()
            if state == "gone":
                self.times["gone"] = time.time()

    def touch(self):
        self.seen, self.times["last_seen"] = time.monotonic(), time.time()

    @property
    def listed(self):
        return self.state != "gone"


class Job:
    def __init__(self, number, run_id, repo, labels, name, script, timeout):
        self.id, self.run_id, self.repo, self.labels, self.name = number, run_id, repo, list(labels), name
        self.script, self.timeout = script, timeout
        self.status, self.conclusion, self.cancel_wanted = "queued", None, False
        self.runner, self.result, self.exit_code = None, None, None
        self.created, self.queued_at = time.time(), time.monotonic()
        self.assigned = self.started = self.completed = None
        self.log, self.log_truncated = bytearray(), False


class Run:
    def __init__(self, number, repo, workflow_name):
        self.id, self.repo, self.workflow_name, self.created, self.jobs = number, repo, workflow_name, time.time(), []

    @property
    def status(self):
        states = {j.status for j in self.jobs}
        if "in_progress" in states or ("queued" in states and "completed" in states):
            return "in_progress"
        return "queued" if "queued" in states else "completed"

    @property
    def conclusion(self):
        if self.status != "completed":
            return None
        found = {j.conclusion for j in self.jobs}
        for word in ("cancelled", "failure"):
            if word in found:
                return word
        return "success"


class World:
    def __init__(self, url="http://127.0.0.1", tokens=(), repos=(), settings=None):
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.url, self.fixed_tokens, self.fixed_repos, self.fixed_settings = url, list(tokens), list(repos), settings or {}
        self.reset()

    def reset(self):
        with self.lock:
            self.settings = {**DEFAULTS, **self.fixed_settings}
            self.repos, self.orgs, self.runners, self.runs, self.jobs = {}, {}, {}, {}, {}
            self.sessions, self.behaviours, self.apps = {}, [], {}
            self.numbers = itertools.count(int(time.time()) % 100000 * 10 + 1)
            self.tokens = {t.sha256: t for t in (Token(x) for x in self.fixed_tokens)}
            self.rate_used, self.rate_since = 0, time.monotonic()
            for name in self.fixed_repos:
                self.put_repo(name)
            self.changed.notify_all()

    def wall(self):
        """GitHub's clock."""
        return time.time() + self.settings["clock_skew"]

    def number(self):
        return next(self.numbers)

    # -- repositories, organisations -------------------------------------------------------------------------
    def put_repo(self, full_name, private=True, visibility=None):
        repo = self.repos.get(full_name.lower())
        if repo is None:
            repo = self.repos[full_name.lower()] = Repo(self.number(), full_name, private, visibility)
        else:
            repo.set_private(private, visibility)
        return repo

    def put_org(self, login, groups=()):
        org = [Group(1, "Default", default=True)]
        for g in groups:
            org.append(Group(len(org) + 2, g["name"], g.get("visibility", "all"), g.get("repositories", ()),
                             g.get("allows_public_repositories", False)))
        self.orgs[login.lower()] = org
        return org

    def group(self, scope, group_id):
        """The group a registration names: raises forbidden for GitHub's own, not-found for one nobody knows."""
        if group_id == 2:
            raise Refused("forbidden", "Runners cannot be registered to the GitHub-hosted runner group.")
        groups = self.orgs[scope[1]] if scope[0] == "org" else [Group(1, "Default", default=True)]
        for g in groups:
            if g.id == group_id:
                return g
        raise Refused("not-found", "Not Found")

    # -- registrations ---------------------------------------------------------------------------------------
    def listed(self, scope):
        self.tick()
        return [r for r in self.runners.values() if r.listed and r.scope == scope]

    def register(self, scope, name, group_id, labels, work_folder="_work", foreign=False):
        self.tick()
        group = self.group(scope, group_id)
        if any(r.name.lower() == name.lower() for r in self.runners.values() if r.listed and r.scope == scope):
            raise Refused("conflict", "Already exists - A runner with the name %s already exists." % name)
        if len(self.runners) >= RUNNERS_MAX:
            raise Refused("forbidden", "The emulator holds no more than %d registrations." % RUNNERS_MAX)
        runner = Runner(self.number(), scope, name, group, labels, work_folder)
        runner.foreign = foreign
        if not foreign:
            runner.config = jit.make(runner.id, name, group.id, group.name, self.url + "/" + scope[1],
                                     self.url + "/_runner", work_folder)
            runner.behaviour = self._behaviour_for(name)
        self.runners[runner.id] = runner
        self.changed.notify_all()
        return runner

    def _behaviour_for(self, name):
        for b in self.behaviours:
            if b["count"] and re.search(b["name"], name):
                if b["count"] > 0:
                    b["count"] -= 1
                return dict(b["behaviour"])
        return {}

    def unregister(self, runner, ended="deleted"):
        self.tick()
        if runner.state in ("assigned", "busy") or runner.foreign_busy:
            raise Refused("busy", 'Runner "%s" is currently running a job and cannot be deleted.' % runner.name)
        runner.times["deleted"] = time.time()
        self.drop(runner, ended)

    def drop(self, runner, ended):
        """The registration ends, whatever its state; a job it holds goes back to the queue or fails."""
        if runner.job:
            self.requeue_or_fail(runner)
        runner.ended = runner.ended or ended
        self.drop_session(runner)
        runner.become("gone")
        self.changed.notify_all()

    def drop_session(self, runner):
        runner.session = None  # still known in self.sessions: its owner is told why it ended

    def requeue_or_fail(self, runner):
        job, runner.job = runner.job, None
        if job.status == "queued":
            job.runner, job.assigned = None, None
        elif job.status == "in_progress":
            self.complete(job, "Failed", None)

    # -- jobs ------------------------------------------------------------------------------------------------
    def queue(self, repo, labels, script, name, run_id=None, workflow_name="ci", timeout=21600):
        if len(self.jobs) >= JOBS_MAX:
            raise Refused("full", "The emulator holds no more than %d jobs." % JOBS_MAX)
        run = self.runs.get(run_id) if run_id else None
        if run is None:
            run = Run(self.number(), repo, workflow_name)
            self.runs[run.id] = run
        job = Job(self.number(), run.id, repo, labels, name, script, timeout)
        run.jobs.append(job)
        self.jobs[job.id] = job
        self.changed.notify_all()
        return job

    def cancel(self, job):
        if job.status == "in_progress":
            job.cancel_wanted = True
        elif job.status == "queued":
            if job.runner is not None and job.runner.job is job:
                job.runner.job = None
                job.runner.become("online")
            self.complete(job, "Canceled", None)
        self.changed.notify_all()

    def complete(self, job, result, exit_code):
        job.status, job.conclusion, job.result = "completed", CONCLUSIONS[result], result
        job.exit_code, job.completed = exit_code, time.time()
        self.changed.notify_all()

    def fits(self, runner, job):
        if job.status != "queued" or job.runner is not None:
            return False
        if time.monotonic() - job.queued_at < self.settings["assign_delay_ms"] / 1000:
            return False
        kind, where = runner.scope
        if kind == "repo" and job.repo.full_name.lower() != where:
            return False
        if kind == "org" and (job.repo.owner.lower() != where or not runner.group.admits(job.repo)):
            return False
        return {x.lower() for x in job.labels} <= set(runner.labels)

    # -- time ------------------------------------------------------------------------------------------------
    def tick(self):
        """Applies whatever has become due. Idempotent; called with the lock held before anything is read."""
        now, s = time.monotonic(), self.settings
        for r in self.runners.values():
            if r.foreign or not r.listed:
                continue
            unseen, since = now - r.seen, now - r.since
            if r.state == "done":
                if since >= (r.behaviour["seconds"] if r.behaviour.get("kind") == "linger" else s["linger_seconds"]):
                    self.drop(r, "consumed")
            elif r.state == "assigned" and since >= s["acquire_seconds"]:
                self.requeue_or_fail(r)
                r.become("online")
                self.changed.notify_all()
            elif r.state == "busy" and unseen >= s["lease_seconds"]:
                self.drop(r, "lost")
            elif r.state == "online" and unseen >= s["offline_after"]:
                self.drop_session(r)
                r.become("offline")
                self.changed.notify_all()
            elif r.state == "offline" and not r.times["connected"] and since >= s["unconnected_expires"]:
                self.drop(r, "expired")
            if r.state == "online":
                limit = r.behaviour["seconds"] if r.behaviour.get("kind") == "vanish" else s["idle_vanishes"]
                if (limit or r.behaviour.get("kind") == "vanish") and now - r.since >= limit:
                    self.drop(r, "vanished")

    # -- primary quota ---------------------------------------------------------------------------------------
    def rate(self):
        s, now = self.settings, time.monotonic()
        if now - self.rate_since >= s["rate_reset_in"]:
            self.rate_used, self.rate_since = 0, now
        remaining = max(0, s["rate_remaining"] - self.rate_used)
        return {"limit": s["rate_limit"], "remaining": remaining, "used": s["rate_limit"] - remaining,
                "reset": int(self.wall() + s["rate_reset_in"] - (now - self.rate_since)), "resource": "core"}
