"""GitHub's REST calls: who may ask (authorise), what is asked (ROUTES), how it is answered (the functions)."""
import hashlib
import json
import re
import time

from . import apps, render
from .model import Refused
from .web import Response

VERSIONS = ("2022-11-28", "2026-03-10")
NO_AGENT = ("Request forbidden by administrative rules. Please make sure your request has a User-Agent header "
            "(https://docs.github.com/en/rest/overview/resources-in-the-rest-api#user-agent-required). "
            "Check https://developer.github.com for other possible causes.\n")


class Call:
    """One request on its way: the world (its lock held), the request, what the route's path named."""

    def __init__(self, world, request, match):
        self.world, self.request, self.match = world, request, match
        self.repo = self.scope = self.token = None
        self.url = world.url + ("/api/v3" if request.ghes else "")


# -- runners ---------------------------------------------------------------------------------------------------
def page(call, items, key, shape):
    def number(name, default, most):
        text = call.request.query.get(name, "")
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else default
        return min(max(value, 1), most)

    per_page, at = number("per_page", 30, 100), number("page", 1, 10 ** 8)
    last = max(1, -(-len(items) // per_page))
    links = []
    for rel, target, there in (("prev", at - 1, at > 1), ("next", at + 1, at < last), ("last", last, at < last),
                               ("first", 1, at > 1)):
        if there:
            query = {**call.request.query, "page": str(target)}
            text = "&".join("%s=%s" % kv for kv in query.items())
            links.append('<%s%s?%s>; rel="%s"' % (call.url, call.request.path, text, rel))
    shown = [shape(i) for i in items[(at - 1) * per_page:at * per_page]]
    return Response.json({"total_count": len(items), key: shown}, headers={"Link": ", ".join(links)} if links else None)


def shape_runner(call):
    after, now = call.world.settings["offline_after"], time.monotonic()
    return lambda r: render.runner(r, after, now)


def list_runners(call):
    found = call.world.listed(call.scope)
    if "name" in call.request.query:
        found = [r for r in found if r.name == call.request.query["name"]]
    return page(call, found, "runners", shape_runner(call))


def one_runner(call):
    wanted = int(call.match["id"])
    for r in call.world.listed(call.scope):
        if r.id == wanted:
            return r
    raise Refused("not-found", "Not Found")


def get_runner(call):
    return Response.json(shape_runner(call)(one_runner(call)))


def delete_runner(call):
    call.world.unregister(one_runner(call))
    return Response(204)


def invalid(message):
    return Response.error(422, message)


def jitconfig(call):
    try:
        body = json.loads(call.request.body or b"{}")
    except (ValueError, RecursionError):
        return Response.error(400, "Problems parsing JSON")
    if not isinstance(body, dict):
        return Response.error(400, "Body should be a JSON object")
    for key in ("name", "runner_group_id", "labels"):
        if key not in body:
            return invalid("Invalid input: object is missing required key: %s" % key)
    name, group, labels, folder = body["name"], body["runner_group_id"], body["labels"], body.get("work_folder", "_work")
    if not isinstance(name, str) or not name:
        return invalid("Invalid property /name: `%s` is not a string." % json.dumps(name))
    if not isinstance(group, int) or isinstance(group, bool):
        return invalid("Invalid property /runner_group_id: `%s` is not an integer." % json.dumps(group))
    if not isinstance(labels, list) or not all(isinstance(x, str) for x in labels):
        return invalid("Invalid property /labels: not an array of strings.")
    if not labels:
        return invalid("Invalid property /labels: 1 item required; only 0 were supplied.")
    if len(labels) > 100:
        return invalid("Invalid property /labels: 100 items allowed; %d were supplied." % len(labels))
    if not isinstance(folder, str):
        return invalid("Invalid property /work_folder: not a string.")
    r = call.world.register(call.scope, name, group, labels, folder)
    return Response.json({"runner": shape_runner(call)(r), "encoded_jit_config": r.config["encoded"]}, 201)


def downloads(call):
    return Response.json(call.world.settings["downloads"])


def deprecations(call):
    version = call.match["version"]
    found = call.world.settings["deprecations"].get(version)
    if found is None or call.request.ghes:
        raise Refused("not-found", "Not Found")
    return Response.json({"runner_version": version, **found})


# -- runner groups ---------------------------------------------------------------------------------------------
def list_groups(call):
    groups = call.world.orgs[call.scope[1]]
    name = call.request.query.get("visible_to_repository")
    if name:
        repo = call.world.repos.get("%s/%s" % (call.scope[1], name.lower()))
        groups = [g for g in groups if repo and g.admits(repo)]
    return page(call, groups, "runner_groups", lambda g: render.group(call.url, call.match["org"], g))


def one_group(call):
    for g in call.world.orgs[call.scope[1]]:
        if g.id == int(call.match["id"]):
            return g
    raise Refused("not-found", "Not Found")


def get_group(call):
    return Response.json(render.group(call.url, call.match["org"], one_group(call)))


def group_repositories(call):
    g = one_group(call)
    repos = [r for r in call.world.repos.values() if r.owner.lower() == call.scope[1] and g.admits(r)]
    return page(call, repos, "repositories", lambda r: render.minimal_repo(call.url, r, "Organization"))


def group_runners(call):
    g = one_group(call)
    return page(call, [r for r in call.world.listed(call.scope) if r.group is g], "runners", shape_runner(call))


# -- runs and jobs ---------------------------------------------------------------------------------------------
def list_runs(call):
    q = call.request.query
    call.world.tick()
    runs = [r for r in call.world.runs.values() if r.repo is call.repo]
    if "status" in q:
        runs = [r for r in runs if q["status"] in (r.status, r.conclusion)]
    if "branch" in q:
        runs = [r for r in runs if q["branch"] == "main"]
    if "event" in q:
        runs = [r for r in runs if q["event"] == "push"]
    runs.sort(key=lambda r: -r.id)
    return page(call, runs[:1000], "workflow_runs", lambda r: render.run(call.url, r))


def one_run(call):
    call.world.tick()
    r = call.world.runs.get(int(call.match["id"]))
    if r is None or r.repo is not call.repo:
        raise Refused("not-found", "Not Found")
    return r


def get_run(call):
    return Response.json(render.run(call.url, one_run(call)))


def run_jobs(call):
    r = one_run(call)
    return page(call, r.jobs, "jobs", lambda j: render.job(call.url, j, r))


def cancel_run(call):
    r = one_run(call)
    if r.status == "completed":
        return Response.error(409, "Cannot cancel a workflow run that is completed.")
    for j in r.jobs:
        call.world.cancel(j)
    return Response.json({}, 202)


def get_job(call):
    call.world.tick()
    j = call.world.jobs.get(int(call.match["id"]))
    if j is None or j.repo is not call.repo:
        raise Refused("not-found", "Not Found")
    return Response.json(render.job(call.url, j, call.world.runs[j.run_id]))


# -- the rest --------------------------------------------------------------------------------------------------
def get_repo(call):
    kind = "Organization" if call.repo.owner.lower() in call.world.orgs else "User"
    return Response.json(render.full_repo(call.url, call.repo, kind))


def get_user(call):
    return Response.json(render.public_user(call.url, call.token.login))


def viewer(call):
    """Of GraphQL only what `gh auth status` asks."""
    return Response.json({"data": {"viewer": {"login": call.token.login}}})


def get_rate(call):
    return Response.json(render.rate_limit(call.world.rate()))


def get_root(call):
    return Response.json({"current_user_url": call.url + "/user", "rate_limit_url": call.url + "/rate_limit"},
                         headers={"X-OAuth-Scopes": "repo, read:org, gist"})


REPO = r"/repos/(?P<owner>[^/]+)/(?P<repo>[^/]+)"
ORG = r"/orgs/(?P<org>[^/]+)"
RUNNERS = (
    ("POST", "/actions/runners/generate-jitconfig", jitconfig), ("GET", "/actions/runners", list_runners),
    ("GET", r"/actions/runners/(?P<id>\d{1,18})", get_runner), ("DELETE", r"/actions/runners/(?P<id>\d{1,18})", delete_runner),
    ("GET", "/actions/runners/downloads", downloads),
    ("GET", r"/actions/runners/deprecations/(?P<version>[^/]+)", deprecations),
)
# (method, pattern, function, permission, level); permission None: any valid token, or none at all for "".
ROUTES = [(m, re.compile(REPO + p), f, "administration", "read" if m == "GET" else "write") for m, p, f in RUNNERS]
ROUTES += [(m, re.compile(ORG + p), f, "organization_self_hosted_runners", "read" if m == "GET" else "write")
           for m, p, f in RUNNERS]
ROUTES += [(m, re.compile(ORG + p), f, "organization_self_hosted_runners", "read") for m, p, f in (
    ("GET", "/actions/runner-groups", list_groups), ("GET", r"/actions/runner-groups/(?P<id>\d{1,18})", get_group),
    ("GET", r"/actions/runner-groups/(?P<id>\d{1,18})/repositories", group_repositories),
    ("GET", r"/actions/runner-groups/(?P<id>\d{1,18})/runners", group_runners))]
ROUTES += [(m, re.compile(REPO + p), f, "actions", "read" if m == "GET" else "write") for m, p, f in (
    ("GET", "/actions/runs", list_runs), ("GET", r"/actions/runs/(?P<id>\d{1,18})", get_run),
    ("GET", r"/actions/runs/(?P<id>\d{1,18})/jobs", run_jobs), ("POST", r"/actions/runs/(?P<id>\d{1,18})/cancel", cancel_run),
    ("GET", r"/actions/jobs/(?P<id>\d{1,18})", get_job))]
ROUTES += [("GET", re.compile(REPO), get_repo, "metadata", "read"), ("GET", re.compile("/user"), get_user, None, None),
           ("POST", re.compile("(/api)?/graphql"), viewer, None, None),
           ("POST", re.compile(r"/app/installations/(?P<id>\d{1,18})/access_tokens"), apps.installation_token, "app", None),
           ("GET", re.compile("/rate_limit"), get_rate, "", None), ("GET", re.compile("/"), get_root, "", None)]


def authorise(call, permission, level):
    """None, or the refusal. Order as GitHub's: credential, then what is visible, then what is permitted."""
    world, text = call.world, call.request.bearer()
    call.token = world.tokens.get(hashlib.sha256(text.encode()).hexdigest()) if text else None
    if permission == "app":
        return None  # it looks at the statement itself
    if text is not None and (call.token is None or call.token.expired or
                             (call.token.expires or world.wall() + 1) <= world.wall()):
        return Response.error(401, "Bad credentials")
    if permission is None and call.token is None:
        return Response.error(401, "Requires authentication")
    groups, sees = call.match.groupdict(), True
    accepted = {"X-Accepted-GitHub-Permissions": "%s=%s" % (permission, level)} if permission else None
    if "repo" in groups:
        call.repo = world.repos.get(("%s/%s" % (groups["owner"], groups["repo"])).lower())
        sees = call.repo is not None and call.token is not None and call.token.sees(call.repo.full_name)
        if call.repo is None or (call.repo.private and not sees):
            return Response.error(404, "Not Found", accepted)
        call.scope = ("repo", call.repo.full_name.lower())
        if not call.repo.private and level == "read" and permission != "administration":
            return None  # anyone may read this of a public repository
    elif "org" in groups:
        call.scope = ("org", groups["org"].lower())
        if call.token is not None and call.scope[1] not in world.orgs:
            return Response.error(404, "Not Found", accepted)
    if permission and call.token is None:
        return Response.error(401, "Requires authentication")
    if permission and not (sees and call.token.may(permission, level)):
        return Response.error(403, "Resource not accessible by personal access token", accepted)
    return None


REFUSALS = {"not-found": 404, "conflict": 409, "busy": 422, "forbidden": 403}


def _route(world, request):
    for method, pattern, function, permission, level in ROUTES:
        match = pattern.fullmatch(request.path)
        if not match or request.method not in (method, "HEAD" if method == "GET" else method):
            continue
        call = Call(world, request, match)
        refusal = authorise(call, permission, level)
        if refusal:
            return refusal
        try:
            return function(call)
        except Refused as e:
            status = REFUSALS[e.code]
            accepted = {"X-Accepted-GitHub-Permissions": "%s=%s" % (permission, level)}
            return Response.error(status, str(e), accepted if status in (403, 404) else None)
    return Response.error(404, "Not Found")


def answer(world, request):
    """GitHub's answer to a request, with its headers. The world's lock is taken here."""
    if not request.headers.get("user-agent"):
        return Response(403, NO_AGENT.encode(), {"Content-Type": "text/html; charset=utf-8"})
    version = request.headers.get("x-github-api-version")
    if version is not None and version not in VERSIONS:
        return Response.error(400, '"%s" is not a supported API version.' % version)
    with world.lock:
        free = request.path == "/rate_limit"
        rate = world.rate()
        if rate["remaining"] <= 0 and not free:
            response = Response.error(403, "API rate limit exceeded for user ID 1.")
        else:
            response = _route(world, request)
            if request.method in ("GET", "HEAD") and response.status == 200:
                tag = 'W/"%s"' % hashlib.sha256(response.body).hexdigest()
                response.headers["ETag"] = tag
                sent = [t.strip() for t in request.headers.get("if-none-match", "").split(",")]
                if tag in sent or tag[2:] in sent:
                    response = Response(304, b"", {"ETag": tag})
            if response.status != 304 and not free:
                world.rate_used += 1
                rate = world.rate()
    response.headers.update({"x-ratelimit-" + k: str(v) for k, v in rate.items()})
    token = world.tokens.get(hashlib.sha256((request.bearer() or "").encode()).hexdigest())
    if token and token.announced:
        response.headers["github-authentication-token-expiration"] = token.announced
    response.headers["X-GitHub-Api-Version-Selected"] = version or VERSIONS[0]
    response.headers["X-GitHub-Media-Type"] = "github.v3; format=json"
    return response
