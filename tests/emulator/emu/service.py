"""The calls of the stand-in runner: text/plain lines `key value`. Not GitHub's protocol; see API.md."""
import base64

from . import sessions
from .model import CONCLUSIONS, Refused
from .web import Response

STATUS = {"unknown": 401, "deleted": 403, "conflict": 409, "deprecated": 426}


def lines(pairs):
    return "".join("%s %s\n" % kv for kv in pairs)


def _b64(text):
    return base64.b64encode(text.encode()).decode()


def _fields(request):
    return dict(line.split(" ", 1) for line in request.body.decode("utf-8", "replace").splitlines() if " " in line)


def _job_id(request):
    text = request.query.get("job", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def _session(world, request):
    if request.method == "DELETE":
        sessions.close(world, request.bearer() or "")
        return Response.text("")
    _, answer = sessions.open_session(world, request.bearer() or "", _fields(request).get("version", "0")[:64])
    return Response.text(lines(answer.items()))


def _message(world, request):
    try:
        found = sessions.poll(world, request.bearer() or "", request.connection)
    except Refused as e:
        if e.code == "deleted":
            return Response.text(lines([("message", e)]), 410)
        raise
    if found is None:
        return Response(204)
    kind, job = found
    pairs = [("kind", kind), ("id", job.id)]
    if kind == "job":
        pairs += [("repo", job.repo.full_name), ("run_id", job.run_id), ("timeout", int(job.timeout)),
                  ("name_b64", _b64(job.name)), ("script_b64", _b64(job.script))]
    return Response.text(lines(pairs))


def _acquire(world, request):
    sessions.acquire(world, request.bearer() or "", _job_id(request))
    return Response.text("")


def _log(world, request):
    sessions.append_log(world, request.bearer() or "", _job_id(request), request.body)
    return Response.text("")


def _finish(world, request):
    f = _fields(request)
    result, code = f.get("result", ""), f.get("exit_code", "")
    if result not in CONCLUSIONS:
        return Response.text("message no such result\n", 400)
    sessions.finish(world, request.bearer() or "", _job_id(request), result, int(code) if code.isdigit() else None)
    return Response.text("")


ROUTES = {("POST", "session"): _session, ("DELETE", "session"): _session, ("GET", "message"): _message,
          ("POST", "acquire"): _acquire, ("POST", "log"): _log, ("POST", "finish"): _finish}


def answer(world, request):
    function = ROUTES.get((request.method, request.path[len("/_runner/"):]))
    if function is None:
        return Response.text("message no such call\n", 404)
    try:
        return function(world, request)
    except Refused as e:
        pairs = [("message", e)]
        if e.code == "conflict":
            pairs += [(word, int(world.settings["conflict_%s_seconds" % word])) for word in ("retry", "limit")]
        return Response.text(lines(pairs), STATUS[e.code])
