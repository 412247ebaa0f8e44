"""The tests' own calls under /_emulator/: see API.md."""
import json
import re
import time
from urllib.parse import unquote

from .apps import App
from .model import DEFAULTS, Refused, Token
from .web import Response

KINDS = ("none", "exit", "never-connect", "idle", "vanish", "no-acquire", "die-in-job", "hang-after-job", "conflict",
         "deprecated", "linger")
WAIT_MAX = 3600


class Bad(Exception):
    pass


def need(body, key, kind):
    if not isinstance(body.get(key), kind):
        raise Bad("%s: missing or of a wrong type" % key)
    return body[key]


def show_runner(r):
    config = r.config or {}
    return {"id": r.id, "scope": "/".join(r.scope), "name": r.name, "labels": r.labels, "group_id": r.group.id,
            "foreign": r.foreign, "state": r.state, "ended": r.ended, "created": r.created, **r.times, "jobs": r.jobs,
            "sessions": r.sessions, "canary": config.get("canary"), "needles": config.get("needles", []),
            "encoded_jit_config": config.get("encoded"), "behaviour": r.behaviour, "version": r.version}


def show_job(j, log=False):
    out = {"id": j.id, "run_id": j.run_id, "repo": j.repo.full_name, "name": j.name, "labels": j.labels, "status": j.status,
           "conclusion": j.conclusion, "runner_id": j.runner.id if j.runner else None,
           "runner_name": j.runner.name if j.runner else None, "created": j.created, "assigned": j.assigned,
           "started": j.started, "completed": j.completed, "result": j.result, "exit_code": j.exit_code,
           "log_size": len(j.log), "log_truncated": j.log_truncated}
    if log:
        out["log"] = j.log.decode("utf-8", "replace")
    return out


def show_repo(r):
    return {"id": r.id, "full_name": r.full_name, "private": r.private, "visibility": r.visibility,
            "override": r.override, "drop": r.drop}


def show_token(t):
    return {"sha256": t.sha256, "login": t.login, "repos": t.repos, "permissions": t.permissions, "expired": t.expired}


def state(app, request, body):
    w = app.world
    w.tick()
    return Response.json({"url": w.url, "time": app.world.wall(), "settings": w.settings, "rate": w.rate(),
                          "repos": [show_repo(r) for r in w.repos.values()],
                          "orgs": {k: [g.__dict__ for g in v] for k, v in w.orgs.items()},
                          "runners": [show_runner(r) for r in w.runners.values()],
                          "jobs": [show_job(j) for j in w.jobs.values()], "faults": app.faults.show(),
                          "behaviours": w.behaviours})


def post_repo(app, request, body):
    name = need(body, "full_name", str)
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", name):
        raise Bad("full_name: OWNER/NAME")
    old = app.world.repos.get(name.lower())
    repo = app.world.put_repo(name, body.get("private", old.private if old else True), body.get("visibility"))
    repo.override, repo.drop = body.get("override", {}), body.get("drop", [])
    return Response.json(show_repo(repo))


def post_org(app, request, body):
    groups = app.world.put_org(need(body, "login", str), body.get("groups", []))
    return Response.json({"login": body["login"], "groups": [g.__dict__ for g in groups]})


def post_token(app, request, body):
    t = Token(need(body, "token", str), body.get("login", "octocat"), body.get("repos", "*"), body.get("permissions"),
              bool(body.get("expired", False)))
    t.announced = body.get("announced")
    app.world.tokens[t.sha256] = t
    return Response.json(show_token(t))


def post_app(app, request, body):
    a = App(need(body, "app_id", str), need(body, "installation_id", int), need(body, "public_key", str),
            body.get("permissions"), body.get("repos", "*"), body.get("token_seconds", 3600))
    app.world.apps[a.id] = a
    return Response.json(a.show(), 201)


def get_apps(app, request, body):
    return Response.json([a.show() for a in app.world.apps.values()])


def delete_token(app, request, body):
    if app.world.tokens.pop(Token(need(body, "token", str)).sha256, None) is None:
        raise LookupError
    return Response.json({})


def get_tokens(app, request, body):
    return Response.json([show_token(t) for t in app.world.tokens.values()])


def post_job(app, request, body):
    repo = app.world.repos.get(need(body, "repo", str).lower())
    if repo is None:
        raise Bad("repo: unknown, POST /_emulator/repos first")
    job = app.world.queue(repo, need(body, "labels", list), need(body, "script", str), body.get("name", "build"),
                          body.get("run_id"), body.get("workflow_name", "ci"), body.get("timeout", 21600))
    return Response.json(show_job(job), 201)


def job_of(app, number):
    app.world.tick()
    return app.world.jobs[int(number)]


def get_job(app, request, body, number):
    return Response.json(show_job(job_of(app, number), log=True))


def get_log(app, request, body, number):
    return Response.text(bytes(job_of(app, number).log))


def cancel_job(app, request, body, number):
    app.world.cancel(job_of(app, number))
    return get_job(app, request, body, number)


def post_runner(app, request, body):
    w, where = app.world, body.get("repo") or body.get("org")
    if not isinstance(where, str):
        raise Bad("repo or org: missing")
    if where.lower() not in (w.repos if "repo" in body else w.orgs):
        raise Bad("repo or org: unknown, make it first")
    r = w.register(("repo" if "repo" in body else "org", where.lower()), need(body, "name", str), 1,
                   need(body, "labels", list), foreign=True)
    r.os = body.get("os", "linux")
    return patch_runner(app, request, {"status": "online", **body}, r.id, 201)


def patch_runner(app, request, body, number, status=200):
    r = app.world.runners[int(number)]
    if not r.foreign:
        raise Bad("only a foreign runner's status can be set")
    if "status" in body:
        if body["status"] not in ("online", "offline"):
            raise Bad("status: online or offline")
        r.become(body["status"])
    r.foreign_busy = bool(body.get("busy", r.foreign_busy))
    app.world.changed.notify_all()
    return Response.json(show_runner(r), status)


def drop_runner(app, request, body, number):
    r = app.world.runners[int(number)]
    app.world.drop(r, "vanished")
    return Response.json(show_runner(r))


def post_fault(app, request, body):
    return Response.json(app.faults.add(body).show(), 201)


def delete_fault(app, request, body, number=None):
    app.faults.remove(int(number) if number else None)
    return Response.json({})


def post_behaviour(app, request, body):
    kind = need(body, "behaviour", str)
    if kind not in KINDS:
        raise Bad("behaviour: one of %s" % ", ".join(KINDS))
    what = {"kind": kind, "seconds": body.get("seconds", 0), "code": body.get("code", 0)}
    if "runner" in body:
        app.world.runners[int(body["runner"])].behaviour = what
        app.world.changed.notify_all()
        return Response.json(what, 201)
    rule = {"id": app.world.number(), "name": body.get("name", ""), "count": int(body.get("count", 1)), "behaviour": what}
    re.compile(rule["name"])
    app.world.behaviours.append(rule)
    return Response.json(rule, 201)


def delete_behaviours(app, request, body):
    app.world.behaviours.clear()
    return Response.json({})


def post_settings(app, request, body):
    unknown = set(body) - set(DEFAULTS)
    if unknown:
        raise Bad("unknown settings: %s" % ", ".join(sorted(unknown)))
    app.world.settings.update(body)
    if {"rate_remaining", "rate_limit", "rate_reset_in"} & set(body):
        app.world.rate_used, app.world.rate_since = 0, time.monotonic()
    app.world.changed.notify_all()
    return Response.json(app.world.settings)


def get_requests(app, request, body):
    return Response.json(app.requests.show(int(request.query.get("since", 0)), request.query.get("kind", "rest")))


def delete_requests(app, request, body):
    app.requests.clear()
    return Response.json({})


def wait(app, request, body):
    """Until a job has one of the statuses, or a runner (id or name) one of the states. 408 when it did not come about."""
    w, q = app.world, request.query
    deadline = time.monotonic() + min(float(q.get("timeout", 60)), WAIT_MAX)
    if "job" not in q and "runner" not in q:
        raise Bad("job or runner: missing")
    wanted = (q["status"] if "job" in q else q["state"]).split(",")
    while True:
        w.tick()
        if "job" in q:
            found = w.jobs[int(q["job"])]
            now, shown = found.status, show_job(found, log=True)
        else:
            found = [r for r in w.runners.values() if q["runner"] in (str(r.id), r.name)]
            now, shown = (found[-1].state, show_runner(found[-1])) if found else (None, {})
        if now in wanted:
            return Response.json(shown)
        left = deadline - time.monotonic()
        if left <= 0:
            return Response.json(shown, 408)
        w.changed.wait(min(left, 0.5))


def reset(app, request, body):
    app.faults.remove()
    app.requests.clear()
    app.world.reset()
    return Response.json({})


ROUTES = [(m, re.compile("/_emulator/" + p), f) for m, p, f in (
    ("GET", "state", state), ("POST", "repos", post_repo), ("POST", "orgs", post_org), ("POST", "tokens", post_token),
    ("DELETE", "tokens", delete_token), ("GET", "tokens", get_tokens), ("POST", "apps", post_app), ("GET", "apps", get_apps), ("POST", "jobs", post_job),
    ("GET", r"jobs/(\d+)", get_job), ("GET", r"jobs/(\d+)/log", get_log), ("POST", r"jobs/(\d+)/cancel", cancel_job),
    ("POST", "runners", post_runner), ("POST", r"runners/(\d+)", patch_runner), ("DELETE", r"runners/(\d+)", drop_runner),
    ("POST", "faults", post_fault), ("DELETE", "faults", delete_fault), ("DELETE", r"faults/(\d+)", delete_fault),
    ("POST", "behaviours", post_behaviour), ("DELETE", "behaviours", delete_behaviours), ("POST", "settings", post_settings),
    ("GET", "requests", get_requests), ("DELETE", "requests", delete_requests), ("GET", "wait", wait), ("POST", "reset", reset))]


def answer(app, request):
    for method, pattern, function in ROUTES:
        match = pattern.fullmatch(unquote(request.path))
        if not match or method != request.method:
            continue
        try:
            body = json.loads(request.body) if request.body else {}
            if not isinstance(body, dict):
                raise Bad("the body must be a JSON object")
            with app.world.lock:
                return function(app, request, body, *match.groups())
        except (Bad, ValueError, TypeError, re.error, Refused) as e:
            return Response.json({"error": str(e)}, 400)
        except (KeyError, LookupError) as e:
            return Response.json({"error": "no such thing: %s" % e}, 404)
    return Response.json({"error": "no such call"}, 404)
