"""JSON as GitHub shapes it. Checked against GitHub's OpenAPI description by tests/contract."""
import base64
import datetime
import hashlib

REPO_URLS = ("archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare", "contents",
             "contributors", "deployments", "downloads", "events", "forks", "git_commits", "git_refs", "git_tags", "hooks",
             "issue_comment", "issue_events", "issues", "keys", "labels", "languages", "merges", "milestones",
             "notifications", "pulls", "releases", "stargazers", "statuses", "subscribers", "subscription", "tags", "teams",
             "trees")
USER_URLS = ("events", "followers", "following", "gists", "organizations", "received_events", "repos", "starred",
             "subscriptions")


def when(epoch):
    if epoch is None:
        return None
    return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_id(kind, number):
    return base64.b64encode(("%s:%s" % (kind, number)).encode()).decode()


def sha(text):
    return hashlib.sha1(text.encode()).hexdigest()


def simple_user(url, login, kind="User"):
    me = "%s/users/%s" % (url, login)
    user = {"login": login, "id": int(sha(login)[:6], 16), "node_id": node_id("U", login), "avatar_url": url + "/avatars/u/1",
            "gravatar_id": "", "url": me, "html_url": "%s/%s" % (url, login), "type": kind, "site_admin": False}
    user.update({u + "_url": "%s/%s" % (me, u) for u in USER_URLS})
    return user


def public_user(url, login):
    return {**simple_user(url, login), "name": login, "company": None, "blog": "", "location": None, "email": None,
            "hireable": None, "bio": None, "public_repos": 0, "public_gists": 0, "followers": 0, "following": 0,
            "user_view_type": "public", "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z"}


def minimal_repo(url, repo, kind="User"):
    owner, name = repo.full_name.split("/")
    me = "%s/repos/%s" % (url, repo.full_name)
    out = {"id": repo.id, "node_id": node_id("R", repo.id), "name": name, "full_name": repo.full_name,
           "private": repo.private, "owner": simple_user(url, owner, kind), "html_url": "%s/%s" % (url, repo.full_name),
           "description": None, "fork": False, "url": me}
    out.update({u + "_url": "%s/%s" % (me, u) for u in REPO_URLS})
    return out


def full_repo(url, repo, kind="User"):
    html = "%s/%s" % (url, repo.full_name)
    out = {**minimal_repo(url, repo, kind), "visibility": repo.visibility, "clone_url": html + ".git", "default_branch": "main",
           "forks": 0, "forks_count": 0, "git_url": html.replace("https:", "git:") + ".git", "has_issues": True,
           "has_projects": True, "has_wiki": True, "has_pages": False, "has_discussions": False, "homepage": None,
           "language": None, "archived": False, "disabled": False, "mirror_url": None, "open_issues": 0,
           "open_issues_count": 0, "license": None, "pushed_at": when(repo.created), "size": 1,
           "ssh_url": "git@%s.git" % html.split("//")[-1], "stargazers_count": 0, "svn_url": html, "watchers": 0,
           "watchers_count": 0, "created_at": when(repo.created), "updated_at": when(repo.created), "network_count": 0,
           "subscribers_count": 0, "permissions": {"admin": True, "maintain": True, "push": True, "triage": True, "pull": True}}
    out.update(repo.override)
    for key in repo.drop:
        out.pop(key, None)
    return out


def runner(r, offline_after, now):
    alive = r.state in ("online", "assigned", "busy") and (r.foreign or now - r.seen < offline_after)
    return {"id": r.id, "name": r.name, "os": r.os, "status": "online" if alive else "offline",
            "busy": r.state == "busy" or r.foreign_busy, "ephemeral": not r.foreign, "version": r.version,
            "runner_group_id": r.group.id,
            "labels": [{"id": i + 1, "name": x, "type": "read-only" if x in ("self-hosted", "linux", "x64") else "custom"}
                       for i, x in enumerate(r.labels)]}


def job(url, j, run):
    me = "%s/repos/%s/actions/jobs/%d" % (url, j.repo.full_name, j.id)
    out_runner = j.runner if j.status != "queued" else None
    return {"id": j.id, "run_id": run.id, "run_attempt": 1, "workflow_name": run.workflow_name, "head_branch": "main",
            "run_url": "%s/repos/%s/actions/runs/%d" % (url, j.repo.full_name, run.id), "node_id": node_id("J", j.id),
            "head_sha": sha(j.repo.full_name), "url": me, "name": j.name, "labels": j.labels, "steps": [],
            "html_url": "%s/%s/actions/runs/%d/job/%d" % (url, j.repo.full_name, run.id, j.id),
            "status": j.status, "conclusion": j.conclusion, "created_at": when(j.created),
            "started_at": when(j.started or j.created), "completed_at": when(j.completed),
            "check_run_url": "%s/repos/%s/check-runs/%d" % (url, j.repo.full_name, j.id),
            "runner_id": out_runner.id if out_runner else None, "runner_name": out_runner.name if out_runner else None,
            "runner_group_id": out_runner.group.id if out_runner else None,
            "runner_group_name": out_runner.group.name if out_runner else None}


def run(url, w):
    api = "%s/repos/%s" % (url, w.repo.full_name)
    me = "%s/actions/runs/%d" % (api, w.id)
    head = sha(w.repo.full_name)
    person = {"name": w.repo.owner, "email": w.repo.owner + "@users.noreply.example.com"}
    return {"id": w.id, "name": w.workflow_name, "node_id": node_id("W", w.id), "head_branch": "main", "head_sha": head,
            "path": ".github/workflows/ci.yml", "run_number": 1, "run_attempt": 1, "display_title": w.workflow_name,
            "event": "push", "status": w.status, "conclusion": w.conclusion, "workflow_id": 1, "url": me,
            "html_url": "%s/%s/actions/runs/%d" % (url, w.repo.full_name, w.id), "pull_requests": [],
            "created_at": when(w.created), "updated_at": when(w.created), "run_started_at": when(w.created),
            "jobs_url": me + "/jobs", "logs_url": me + "/logs", "check_suite_url": api + "/check-suites/1",
            "artifacts_url": me + "/artifacts", "cancel_url": me + "/cancel", "rerun_url": me + "/rerun",
            "previous_attempt_url": None, "workflow_url": api + "/actions/workflows/1",
            "actor": simple_user(url, w.repo.owner), "triggering_actor": simple_user(url, w.repo.owner),
            "head_commit": {"id": head, "tree_id": sha(head), "message": "A commit", "timestamp": when(w.created),
                            "author": person, "committer": person},
            "repository": minimal_repo(url, w.repo), "head_repository": minimal_repo(url, w.repo)}


def group(url, org, g):
    me = "%s/orgs/%s/actions/runner-groups/%d" % (url, org, g.id)
    out = {"id": g.id, "name": g.name, "visibility": g.visibility, "default": g.default, "runners_url": me + "/runners",
           "inherited": False, "allows_public_repositories": g.allows_public, "restricted_to_workflows": False,
           "selected_workflows": [], "workflow_restrictions_read_only": False}
    if g.visibility == "selected":
        out["selected_repositories_url"] = me + "/repositories"
    return out


def rate_limit(core):
    rest = {"limit": 30, "remaining": 30, "used": 0, "reset": core["reset"]}
    core = {k: v for k, v in core.items() if k != "resource"}
    return {"resources": {"core": core, "search": rest, "graphql": dict(rest, limit=5000, remaining=5000)}, "rate": core}
