"""What a runner does with its registration: open a session, wait for a message, take a job, finish, leave."""
import secrets
import select
import time

from .model import Refused

ALIVE_CHECK = 1.0  # seconds between looks at whether the waiting runner's connection is still there


def gone_message(runner):
    return "The runner registration has been deleted from the server (%s)." % (runner.ended or "gone")


def find_by_canary(world, canary):
    for r in world.runners.values():
        if r.config and secrets.compare_digest(r.config["canary"], canary):
            return r
    raise Refused("unknown", "No registration has this credential.")


def open_session(world, canary, version):
    """Returns (runner, answer fields)."""
    with world.lock:
        world.tick()
        r = find_by_canary(world, canary)
        kind = r.behaviour.get("kind", "none")
        r.sessions += 1
        if r.state in ("gone", "done"):
            raise Refused("deleted", gone_message(r))
        if kind == "deprecated":
            raise Refused("deprecated", "Runner version v%s is deprecated and cannot receive messages." % version)
        if kind == "conflict" or r.session:
            raise Refused("conflict", "A session for this runner already exists.")
        answer = {"poll": world.settings["poll_seconds"], "behaviour": kind, "code": r.behaviour.get("code", 0),
                  "seconds": r.behaviour.get("seconds", 0)}
        if kind in ("never-connect", "exit"):
            answer["session"] = "none"
            return r, answer
        r.session = answer["session"] = secrets.token_hex(24)
        world.sessions[r.session] = r
        r.version, r.os = version, "linux"
        r.times["connected"] = r.times["connected"] or time.time()
        r.touch()
        # A busy runner that lost its session and comes back keeps its job until the lease ends.
        if r.state == "offline":
            r.become("online")
        world.changed.notify_all()
        return r, answer


def _find(world, session):
    r = world.sessions.get(session)
    if r is None:
        raise Refused("unknown", "No such session.")
    if r.session != session:
        raise Refused("deleted", gone_message(r)) if r.state in ("done", "gone") else Refused("unknown", "The session has ended.")
    return r


def _connected(connection):
    """False once the peer has closed: a job must not be handed to a wire nobody holds."""
    readable, _, _ = select.select([connection], [], [], 0)
    return not readable


def poll(world, session, connection=None):
    """Waits for something to say. Returns None, ("job", job) or ("cancel", job). Raises deleted when the registration goes."""
    with world.lock:
        world.tick()
        r = _find(world, session)
        r.touch()
        # A waiting runner must come back before it counts as offline.
        wait = min(50.0, float(world.settings["poll_seconds"]), 0.6 * world.settings["offline_after"])
        deadline = time.monotonic() + wait
        while True:
            world.tick()
            _find(world, session)
            if connection is not None and not _connected(connection):
                return None
            if r.state == "busy" and r.job and r.job.cancel_wanted:
                return "cancel", r.job
            if r.state == "online" and r.behaviour.get("kind") not in ("idle", "vanish"):
                job = next((j for j in world.jobs.values() if world.fits(r, j)), None)
                if job:
                    r.job, job.runner, job.assigned = job, r, time.time()
                    r.times["assigned"] = job.assigned
                    r.touch()
                    r.become("assigned")
                    world.changed.notify_all()
                    return "job", job
            left = deadline - time.monotonic()
            if left <= 0:
                r.touch()
                return None
            world.changed.wait(min(left, ALIVE_CHECK if not world.settings["assign_delay_ms"] else 0.1))


def _with_job(world, session, job_id):
    r = _find(world, session)
    r.touch()
    if r.job is None or r.job.id != job_id:
        raise Refused("conflict", "This job is not assigned to this runner.")
    return r, r.job


def acquire(world, session, job_id):
    with world.lock:
        world.tick()
        r, job = _with_job(world, session, job_id)
        if r.behaviour.get("kind") == "no-acquire":
            raise Refused("conflict", "The job could not be acquired.")
        if r.state == "assigned":
            job.status, job.started = "in_progress", time.time()
            r.jobs.append(job.id)
            r.become("busy")
            world.changed.notify_all()


def append_log(world, session, job_id, data):
    with world.lock:
        _, job = _with_job(world, session, job_id)
        room = max(0, world.settings["log_max"] - len(job.log))
        job.log += data[:room]
        job.log_truncated = job.log_truncated or len(data) > room


def finish(world, session, job_id, result, exit_code):
    with world.lock:
        world.tick()
        r, job = _with_job(world, session, job_id)
        if r.state != "busy":
            raise Refused("conflict", "This job is not running.")
        world.complete(job, result, exit_code)
        r.job, r.ended, r.times["consumed"] = None, "consumed", time.time()
        world.drop_session(r)
        r.become("done")
        world.tick()
        world.changed.notify_all()


def close(world, session):
    with world.lock:
        world.tick()
        r = _find(world, session)
        if r.state == "assigned":
            world.requeue_or_fail(r)
        elif r.state == "busy":
            world.complete(r.job, "Canceled", None)
            r.job, r.ended, r.times["consumed"] = None, "consumed", time.time()
        world.drop_session(r)
        r.become("done" if r.ended else "offline")
        world.changed.notify_all()
