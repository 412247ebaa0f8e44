"""A host without VMs and a GitHub without a network, for tests of the runner service alone.

The service under test runs with a keeper's socket and a boxery-github that both end here: one thread, one lock, a model of
VMs, leases, registrations and jobs that keeps the promises of pool/proto.h and github/proto.h and can break each of them on
demand. `World.on(verb, action)` decides what happens to the next such request; `World.check()` says which rules the service
has broken, whatever the test was about.
"""
import heapq
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import proto  # noqa: E402

KEEPER_VERBS = ("HELLO NEW LIST START STOP REMOVE POOL_ADD POOL_REMOVE POOL_REPAIR LEASE LEASES REGISTER DELIVER JOB_SEEN "
                "RELEASE OUTCOME HISTORY SUBSCRIBE CHECK FILTER QUIT NOTE "
                "POOL_SET POOLS POOL_KEEP RENEW").split()
# POOL_ADD's count, POOL_SET's settings.
SETTINGS_FORMAT = "I I I I I I I I I I"
SETTINGS_NAMES = "count set_cpus set_memory_mib disk_mib_per_s disk_iops net_kib_per_s reserve_service reserve_local start standby"
REQUEST = proto.Layout(1, "41s 41s 41s 48s 33s 141s I I I I I Q Q Q 1024s " + SETTINGS_FORMAT,
                       "name pool image holder lease scope flags registration cpus memory_mib disk_gib ttl_ms wait_ms "
                       "runner_id text " + SETTINGS_NAMES)
REPLY = proto.Layout(65, "i 41s 33s 65s 46s Q 512s 512s", "code name lease runner_name address generation text host_key")
EVENT = proto.Layout(66, "41s 33s Q i i i 512s", "name lease generation from to what text")
REGISTRATIONS = ["none", "planned", "made", "gone"]
STATES = ["PLAIN", "COLD", "STARTING", "READY", "LEASED", "DELIVERED", "BUSY", "RESETTING", "BROKEN", "MAINTENANCE",
          "ADDING", "KEPT"]
HAPPENINGS = ("START STARTED START_FAILED LEASE DELIVER JOB_SEEN RELEASE STOPPED DEADLINE EXPIRED HOLDER_LOST DOUBT RESET_DONE "
              "RESET_FAILED REPAIR ADD MAINTAIN MAINTAINED MAINTAIN_FAILED INTERRUPTED KEEP "
              "INSPECT SHORT_LIFE").split()
EAGAIN, ENOENT, EALREADY, EEXIST, EBUSY, EACCES, EIO, EPERM, ENOTCONN = 11, 2, 114, 17, 16, 13, 5, 1, 107
LABELS = "self-hosted,linux,x64,boxery"
JIT = b"QUJD" * 1000

RELAY = """#!/usr/bin/python3
# Stands where boxery-github would be: passes messages between fd 3 and the test.
import os, select, socket
ours = socket.socket(fileno=3)
test = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
test.connect(os.environ["BOXERY_TEST_DIR"] + "/github.sock")
while True:
    for s in select.select([ours, test], [], [])[0]:
        data, fds, _, _ = socket.recv_fds(s, 8192, 4)
        if not data:
            os._exit(0)
        socket.send_fds(test if s is ours else ours, [data], fds)
        for fd in fds:
            os.close(fd)
"""
KEEPER = """#!/bin/sh
# Stands where boxery-keeper would be: asks the test to be the keeper again.
: > "$BOXERY_TEST_DIR/keeper-wanted"
exec sleep 3
"""


class Refused(Exception):
    def __init__(self, code, text, **more):
        super().__init__(text)
        self.code, self.text, self.more = code, text, more


class World:
    """guest: seconds from delivery to online, from online to a job, from a job's end to power-off."""

    own_thread = True
    credential_expires = 0
    deprecations = {}  # a version's dates, as DEPRECATION answers; what is not here GitHub does not know

    def __init__(self, program, vms=1, pool="default", reset=0.3, guest=(0.3, 0.3, 0.2), yaml_more="", top_more=""):
        self.program = os.path.abspath(program)
        self.dir = tempfile.mkdtemp(prefix="boxery-service-")
        self.vms = {"vm%d" % (i + 1): dict(state="READY", generation=1, lease="", pool=pool) for i in range(vms)}
        self.leases, self.runners, self.jobs, self.n_leases = {}, {}, [], 0
        self.private, self.next_id, self.group_repos = True, 100, ["acme/one", "acme/two"]
        self.reset_time, self.guest = reset, guest
        self.deliver_time, self.behaviour = 0.05, "work"
        self.log, self.actions, self.faults, self.pages = [], {}, [], {}
        self.timers, self.timer_seq = [], 0
        self.clients, self.lock, self.ended = {}, threading.RLock(), False
        self.service, self.output = None, open(os.path.join(self.dir, "service.log"), "w+b")
        self.keeper_up = False
        os.mkdir(self.dir + "/bin")
        for name, text in (("boxery-github", RELAY), ("boxery-keeper", KEEPER)):
            with open(self.dir + "/bin/" + name, "w") as f:
                f.write(text)
            os.chmod(self.dir + "/bin/" + name, 0o755)
        shutil.copy(self.program, self.dir + "/bin/boxery-runners")
        for name in ("config", "state", "run"):
            os.mkdir(self.dir + "/" + name)
        os.makedirs(self.dir + "/images/console")
        with open(self.dir + "/config/host.env", "w") as f:
            f.write("BOXERY_IMAGE_DIR=%s/images\n" % self.dir)
        self.configure(yaml_more, top_more)
        self.github_listen = self.listen(self.dir + "/github.sock")
        self.keeper_listen = None
        self.keeper_start()
        self.wake_r, self.wake_w = os.pipe()
        self.thread = threading.Thread(target=self.run, daemon=True)
        if self.own_thread:
            self.thread.start()

    def configure(self, yaml_more="", top_more=""):
        with open(self.dir + "/config/runners.yaml", "w") as f:
            f.write("version: 1\npoll_interval: 5s\n%srunners:\n  - repo: octo/private\n    labels: [%s]\n"
                    "    max: 2\n    start_timeout: 10s\n    idle_timeout: 10s\n%s" % (top_more, LABELS, yaml_more))

    def write_yaml(self, text):
        with open(self.dir + "/config/runners.yaml", "w") as f:
            f.write(text)

    def console(self, name, text):
        with open(self.dir + "/images/console/%s.log" % name, "w") as f:
            f.write(text)

    def control(self, verb, scope="", document=False):
        """A request on the service's socket: (code, text), or the document."""
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(10)
        s.connect(self.dir + "/run/runners.sock")
        s.send(proto.CONTROL_REQUEST.pack(kind=proto.CONTROL_VERBS[verb], seq=1, scope=scope))
        data, fds, _, _ = socket.recv_fds(s, 8192, 4)
        s.close()
        reply = proto.CONTROL_REPLY.unpack(data)
        if not document:
            return reply["code"], reply["text"]
        with os.fdopen(fds[0]) as f:
            return json.load(f)

    # --- the process under test

    def start(self, *arguments, **more):
        env = {"PATH": os.environ["PATH"], "HOME": self.dir, "BOXERY_TEST_DIR": self.dir,
               "BOXERY_CONFIG_DIR": self.dir + "/config", "BOXERY_STATE_DIR": self.dir + "/state",
               "BOXERY_RUNTIME_DIR": self.dir + "/run"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update(more)
        self.service = subprocess.Popen([self.dir + "/bin/boxery-runners", "--debug", *arguments], env=env,
                                        stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output)

    def kill(self):
        """As kill -9 does it, from any thread."""
        self.service.kill()

    def restart_after_kill(self):
        assert self.service.wait(20) == -signal.SIGKILL, "it ended by itself"
        self.start()

    def stop(self, timeout=15):
        self.service.terminate()
        return self.service.wait(timeout)

    def text(self):
        self.output.flush()
        with open(self.dir + "/service.log", errors="replace") as f:
            return f.read()

    # --- the test's side

    def on(self, verb, action, count=1):
        """action(world, request) before acting: None goes on, "hold", "drop" (connection closed, not acted), "after" (acted,
        then dropped), "kill"/"kill-after" (the service, before or after acting), or raises Refused."""
        with self.lock:
            self.actions.setdefault(verb, []).extend([action if callable(action) else lambda w, r: action] * count)

    def job(self, labels=LABELS, seconds=0.5, conclusion="success", name="build", repo="octo/private"):
        with self.lock:
            self.next_id += 1
            job = dict(id=self.next_id, run_id=1, name=name, workflow_name="ci", status="queued", conclusion=None,
                       labels=labels.split(","), runner_id=None, runner_name=None, created_at="2026-01-01T00:00:00Z",
                       started_at=None, completed_at=None)
            job["_seconds"], job["_conclusion"], job["_repo"] = seconds, conclusion, repo
            self.jobs.append(job)
            return job

    def wait(self, what, probe, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with self.lock:
                if probe():
                    return
            if self.faults:
                raise AssertionError(self.faults[0])
            time.sleep(0.05)
        raise AssertionError("not within %s s: %s" % (timeout, what))

    def verbs(self, verb, **match):
        with self.lock:
            return [r for v, r in self.log if v == verb and all(r.get(k) == x for k, x in match.items())]

    def outcomes(self):
        with self.lock:
            return [lease["outcome"] for lease in self.leases.values()]

    def settled(self):
        """Every lease closed and named, nothing of it left at GitHub, as the keeper knows it."""
        with self.lock:
            return all(not lease["open"] and lease["registration"] in ("none", "gone") and lease["outcome"]
                       for lease in self.leases.values()) and all(v["state"] == "READY" for v in self.vms.values())

    def wait_settled(self, timeout=60):
        self.wait("settled", self.settled, timeout)

    def check(self):
        """What must be true after every test."""
        wrong = list(self.faults)
        for lease in self.leases.values():
            for verb, key in (("MINT", "runner_name"), ("DELIVER", "lease")):
                n = len([r for v, r in self.log if v == verb and r.get(key) == lease["runner_name" if key == "runner_name" else "id"]])
                if n > 1:
                    wrong.append("%d x %s for one lease" % (n, verb))
        for runner in self.runners.values():
            if not runner["foreign"] and not runner["gone"]:
                wrong.append("registration %s is left" % runner["name"])
            if runner["foreign"] and runner["gone"]:
                wrong.append("a foreign runner was deleted")
        if "AddressSanitizer" in self.text() or "runtime error" in self.text():
            wrong.append("a sanitizer complains")
        return wrong

    def close(self):
        if self.service and self.service.poll() is None:
            self.service.kill()
            self.service.wait()
        with self.lock:
            self.ended = True
        os.write(self.wake_w, b"x")
        if self.own_thread:
            self.thread.join(10)
        self.output.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    # --- the thread

    def listen(self, path):
        if os.path.exists(path):
            os.unlink(path)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(path)
        s.listen(16)
        return s

    def keeper_start(self):
        self.keeper_listen = self.listen(self.dir + "/run/keeper.sock")
        self.keeper_up = True

    def keeper_stop(self, how="kill"):
        """The keeper dies; what its next life does at start-up happens when it comes back."""
        with self.lock:
            self.keeper_up = False
            self.keeper_listen.close()
            os.unlink(self.dir + "/run/keeper.sock")
            for s, kind in list(self.clients.items()):
                if kind != "github":
                    self.drop(s)
            for name, vm in self.vms.items():
                if vm["state"] == "LEASED":
                    self.apply(name, "RESETTING", "INTERRUPTED", "the keeper ended before anything was delivered")

    def now(self):
        return time.monotonic()

    def after(self, seconds, function, *arguments):
        self.timer_seq += 1
        heapq.heappush(self.timers, (self.now() + seconds, self.timer_seq, function, arguments))
        os.write(self.wake_w, b"x")

    def drop(self, s):
        self.clients.pop(s, None)
        s.close()

    def run(self):
        import select
        try:
            while not self.ended:
                with self.lock:
                    socks = [self.github_listen, *self.clients] + ([self.keeper_listen] if self.keeper_up else [])
                    wait = max(0, self.timers[0][0] - self.now()) if self.timers else 0.5
                ready = select.select([self.wake_r, *[s for s in socks if s.fileno() >= 0]], [], [], min(wait, 0.2))[0]
                with self.lock:
                    self.turn(ready)
        except Exception:
            self.faults.append(traceback.format_exc())

    def turn(self, ready):
        if not self.keeper_up and os.path.exists(self.dir + "/keeper-wanted"):
            os.unlink(self.dir + "/keeper-wanted")
            self.keeper_start()
        while self.timers and self.timers[0][0] <= self.now():
            _, _, function, arguments = heapq.heappop(self.timers)
            function(*arguments)
        for s in ready:
            if s == self.wake_r:
                os.read(self.wake_r, 4096)
            elif s is self.github_listen:
                self.clients[s.accept()[0]] = "github"
            elif s is self.keeper_listen and self.keeper_up:
                self.clients[s.accept()[0]] = "keeper"
            elif s in self.clients:
                self.message(s)

    def message(self, s):
        try:
            data, fds, _, _ = socket.recv_fds(s, 8192, 4)
        except OSError:
            data, fds = b"", []
        if not data:
            self.drop(s)
            return
        github = self.clients[s] == "github"
        kind = proto.HEAD.unpack(data[:16])[2]
        request = (proto.GITHUB_REQUEST if github else REQUEST).unpack(data)
        verb = (next(v for v, k in proto.GITHUB_VERBS.items() if k == kind) if github else KEEPER_VERBS[kind - 1])
        if not github and verb in ("SUBSCRIBE", "LIST", "LEASES"):
            pass
        else:
            self.log.append((verb, request))
        request["_fds"], request["_socket"] = fds, s
        self.handle(s, verb, request, github)
        for fd in fds:
            os.close(fd)

    def handle(self, s, verb, request, github):
        what, waiting = None, self.actions.get(verb, [])
        try:
            if waiting:
                what = waiting.pop(0)(self, request)
            if what == "kill":
                self.kill()
            if what in ("hold", "kill"):
                return
            if what == "drop":
                self.drop(s)
                return
            reply, fds = getattr(self, ("github_" if github else "keeper_") + verb.lower())(request)
            if github and verb != "HELLO" and reply is not None:
                reply = dict(self.cost(verb, request), **reply)
        except Refused as refused:
            reply, fds = dict(code=-refused.code, text=refused.text, **refused.more), []
        if what == "kill-after":
            self.kill()
        if what in ("after", "kill-after"):
            self.drop(s)
            return
        if reply is None:
            return
        layout = proto.GITHUB_REPLY if github else REPLY
        try:
            socket.send_fds(s, [layout.pack(seq=request["seq"], **reply)], fds)
        except OSError:
            self.drop(s)
        for fd in fds:
            os.close(fd)

    # --- VMs

    def apply(self, name, to, happening, text=""):
        vm = self.vms[name]
        before, vm["state"] = vm["state"], to
        lease = self.leases.get(vm["lease"])
        if to == "RESETTING" and lease and not lease["end_reason"]:
            lease["end_reason"] = happening + (": " + text if text else "")
        event = EVENT.pack(name=name, lease=vm["lease"], generation=vm["generation"], to=STATES.index(to),
                           what=HAPPENINGS.index(happening), text=text, **{"from": STATES.index(before)})
        for s, kind in list(self.clients.items()):
            if kind == "subscriber":
                try:
                    s.send(event)
                except OSError:
                    self.drop(s)
        if to == "RESETTING":
            self.after(self.reset_time, self.was_reset, name)

    def was_reset(self, name):
        vm = self.vms[name]
        lease = self.leases.get(vm["lease"])
        if lease:
            lease["open"] = False
        self.apply(name, "COLD", "RESET_DONE")
        vm["lease"] = ""
        vm["generation"] += 1
        self.apply(name, "STARTING", "START")
        self.after(0.2, lambda: self.apply(name, "READY", "STARTED"))

    def stopped(self, name, generation, word="shutdown"):
        vm = self.vms[name]
        if vm["generation"] == generation and vm["state"] in ("LEASED", "DELIVERED", "BUSY"):
            self.apply(name, "RESETTING", "STOPPED", "the domain has stopped: " + word)

    def runner_of(self, lease):
        return next((r for r in self.runners.values() if r["name"] == lease["runner_name"]), None)

    def guest_online(self, name, generation):
        vm = self.vms[name]
        runner = self.runner_of(self.leases[vm["lease"]]) if vm["generation"] == generation and vm["lease"] else None
        if not runner or vm["state"] != "DELIVERED":
            return
        if runner["gone"]:
            self.stopped(name, generation)
            return
        runner["online"] = True
        self.after(self.guest[1], self.guest_take, name, generation, runner)

    def guest_take(self, name, generation, runner):
        vm = self.vms[name]
        if vm["generation"] != generation or vm["state"] not in ("DELIVERED", "BUSY"):
            return
        if runner["gone"]:
            self.stopped(name, generation)
            return
        scope = self.leases[vm["lease"]]["scope"]
        job = next((j for j in self.jobs if j["status"] == "queued" and j["_repo"].split("/")[:1 + ("/" in scope)] == scope.split("/") and
                    set(x.lower() for x in j["labels"]) <= set(x.lower() for x in runner["labels"])), None)
        if not job or self.behaviour == "idle":
            self.after(0.3, self.guest_take, name, generation, runner)
            return
        job.update(status="in_progress", runner_id=runner["id"], runner_name=runner["name"])
        runner.update(busy=True, jobs=runner["jobs"] + [job["id"]])
        if self.behaviour == "lost-in-job":
            runner.update(online=False)
            return
        if job["_seconds"] is not None:
            self.after(job["_seconds"], self.guest_done, name, generation, runner, job)

    def guest_done(self, name, generation, runner, job):
        if self.vms[name]["generation"] != generation or self.vms[name]["state"] not in ("DELIVERED", "BUSY"):
            return
        job.update(status="completed", conclusion=job["_conclusion"])
        runner.update(busy=False, online=False, gone=self.behaviour != "keeps-spent")
        self.after(self.guest[2], self.stopped, name, generation)

    # --- the keeper's requests

    def keeper_list(self, r):
        return self.document("vms", [dict(name=n, pool=v["pool"], state=v["state"]) for n, v in self.vms.items()])

    def document(self, key, rows, **more):
        return dict(more), [proto.memfd(json.dumps({key: rows}).encode())]

    def keeper_subscribe(self, r):
        self.clients[r["_socket"]] = "subscriber"
        return {}, []

    def keeper_lease(self, r):
        name = next((n for n, v in self.vms.items() if v["state"] == "READY" and v["pool"] == r["pool"]), None)
        if not any(v["pool"] == r["pool"] for v in self.vms.values()):
            raise Refused(ENOENT, "pool %s has no VM" % r["pool"])
        if not name:
            raise Refused(EAGAIN, "no VM is ready")
        self.n_leases += 1  # not the number of those that are there: a test may forget old ones
        lease = dict(id="%032x" % self.n_leases, vm=name, pool=r["pool"], holder=r["holder"], scope=r["scope"],
                     runner_name="boxery-0123abcd-%016x" % self.n_leases, generation=self.vms[name]["generation"],
                     runner_id=0, registration="none", open=True, job="", outcome="", final=False, end_reason="",
                     ttl_ms=r["ttl_ms"])
        self.leases[lease["id"]] = lease
        self.lease_until(lease, r["ttl_ms"])
        self.vms[name]["lease"] = lease["id"]
        self.apply(name, "LEASED", "LEASE")
        return dict(name=name, lease=lease["id"], runner_name=lease["runner_name"], address="192.168.130.10",
                    generation=lease["generation"]), []

    def lease_until(self, lease, ttl_ms):
        lease["expires"] = self.now() + ttl_ms / 1000
        self.after(ttl_ms / 1000, self.expire, lease)

    def expire(self, lease):
        vm = self.vms[lease["vm"]]
        if vm["lease"] == lease["id"] and vm["state"] in ("LEASED", "DELIVERED", "BUSY") and self.now() >= lease["expires"]:
            self.apply(lease["vm"], "RESETTING", "EXPIRED", "its lease has expired")

    def keeper_renew(self, r):
        lease, ttl = self.lease_of(r, held=True), r["ttl_ms"]
        if not r["flags"] & 1:  # FORCE: also shorter
            ttl = max(ttl, int((lease["expires"] - self.now()) * 1000))
        self.lease_until(lease, ttl)
        return {}, []

    def lease_of(self, r, held=False):
        lease = self.leases.get(r["lease"])
        if not lease:
            raise Refused(ENOENT, "there is no such lease")
        if held and (not lease["open"] or self.vms[lease["vm"]]["state"] not in ("LEASED", "DELIVERED", "BUSY")):
            raise Refused(EALREADY, "the lease has ended")
        return lease

    def keeper_leases(self, r):
        rows = []
        for lease in self.leases.values():
            if not lease["open"] and lease["registration"] not in ("planned", "made"):
                continue
            row = {k: v for k, v in lease.items() if k not in ("id", "final", "ttl_ms", "expires")}
            rows.append(dict(row, lease=lease["id"], state=self.vms[lease["vm"]]["state"] if lease["open"] else "",
                             bound=False, opened="", closed="",
                             expires_in_ms=max(0, int((lease["expires"] - self.now()) * 1000))))
        return self.document("leases", rows)

    def keeper_register(self, r):
        lease, to = self.lease_of(r), REGISTRATIONS[r["registration"]]
        if REGISTRATIONS.index(to) < REGISTRATIONS.index(lease["registration"]):
            raise Refused(EALREADY, "never backwards")
        if to == "gone":
            runner = self.runner_of(lease)
            if runner and not runner["gone"]:
                self.faults.append("the registration of %s is called gone and is not" % runner["name"])
        lease["registration"] = to
        if to == "made":
            lease["runner_id"] = r["runner_id"]
        return {}, []

    def keeper_deliver(self, r):
        lease = self.lease_of(r, held=True)
        if lease["registration"] != "made":
            self.faults.append("delivered before the registration's id was recorded")
        if self.vms[lease["vm"]]["state"] != "LEASED":
            raise Refused(EALREADY, "delivered already")
        if os.pread(r["_fds"][0], 1 << 16, 0) != JIT:
            self.faults.append("another secret than the minted one")
        generation = self.vms[lease["vm"]]["generation"]
        self.apply(lease["vm"], "DELIVERED", "DELIVER")
        if self.behaviour != "never-connect":
            self.after(self.deliver_time + self.guest[0], self.guest_online, lease["vm"], generation)
        self.after(self.deliver_time, self.send_later, r["_socket"], r["seq"])
        return None, []

    def send_later(self, s, seq):
        if s not in self.clients:
            return
        try:
            s.send(REPLY.pack(seq=seq))
        except OSError:  # killed meanwhile
            self.drop(s)

    def keeper_job_seen(self, r):
        lease = self.lease_of(r, held=True)
        lease["job"] = r["text"]
        if self.vms[lease["vm"]]["state"] == "DELIVERED":
            self.apply(lease["vm"], "BUSY", "JOB_SEEN")
        return {}, []

    def keeper_release(self, r):
        lease = self.lease_of(r, held=True)
        runner = self.runner_of(lease)
        if self.vms[lease["vm"]]["state"] in ("DELIVERED", "BUSY") and runner and not runner["gone"] and \
                r["text"] != "delivery failed":
            self.faults.append("a running guest was taken back with its registration in place")
        if r["text"]:
            lease["outcome"], lease["final"] = r["text"], True
        self.apply(lease["vm"], "RESETTING", "RELEASE")
        return {}, []

    def keeper_outcome(self, r):
        lease = self.lease_of(r)
        if lease["final"]:
            raise Refused(EALREADY, "it has one")
        lease["outcome"], lease["final"] = r["text"], True
        return {}, []

    def keeper_note(self, r):
        self.lease_of(r)
        return {}, []

    # --- GitHub's

    def cost(self, verb, r):
        """What boxery-github would say: the exchanges behind a verb that use up the quota, and those whose answer has not changed
        since it was read last. Every job has a run of its own."""
        jobs = [j for j in self.jobs if j["_repo"] == r["scope"]]
        lists = {state: [j["id"] for j in jobs if j["status"] == state] for state in ("queued", "in_progress")}
        pages = {"private": self.private} if verb in ("REPOSITORY", "GROUP", "MINT") else {}
        if verb == "JOBS":
            pages.update(lists)
            pages.update({"jobs %d" % j["id"]: (j["status"], j["runner_name"]) for j in jobs if j["status"] in lists})
        elif verb == "JOB_OF":
            pages["all %d" % r["run_id"]] = [(j["id"], j["status"]) for j in jobs if j["runner_name"] == r["runner_name"]]
            if not r["run_id"]:
                pages.update(in_progress=lists["in_progress"], latest=[(j["id"], j["status"]) for j in jobs[-50:]])
        elif verb == "RUNNER":
            pages["runner %s" % (r["runner_id"] or r["runner_name"])] = self.github_runner(r)[0]
        elif verb == "RUNNERS":
            pages["runners"] = [(x["id"], x["online"], x["busy"]) for x in self.runners.values() if not x["gone"]]
        read = self.pages.setdefault(r["scope"], {})
        changed = sum(read.get(k) != v for k, v in pages.items())
        read.update(pages)
        for old in list(read)[:-500]:
            del read[old]
        return dict(calls=changed + (verb in ("MINT", "DELETE", "DEPRECATION")), calls_free=len(pages) - changed,
                    credential_expires=self.credential_expires)

    def fault(self, fault, code, text, **more):
        return Refused(code, text, fault=proto.GITHUB_FAULTS.index(fault), **more)

    def github_hello(self, r):
        return dict(text="https://api.github.test, a token"), []

    def github_repository(self, r):
        return dict(is_private=int(self.private), text="octo/private"), []

    def github_group(self, r):
        if r["group"] != "few":
            raise self.fault("absent", ENOENT, "no runner group named '%s'" % r["group"])
        return dict(is_private=int(self.private), group_id=3), [proto.memfd(json.dumps(
            {"visibility": "selected", "repositories": self.group_repos, "truncated": False}).encode())]

    def github_mint(self, r):
        if not self.private:
            raise self.fault("public", EACCES, "octo/private is not private")
        lease = next((x for x in self.leases.values() if x["runner_name"] == r["runner_name"]), None)
        if not lease or lease["registration"] != "planned":
            self.faults.append("minted before the keeper knew of the plan: %s" % (lease or r["runner_name"]))
        if any(x["name"] == r["runner_name"] and not x["gone"] for x in self.runners.values()):
            raise self.fault("conflict", EEXIST, "Already exists")
        if r["labels"] != LABELS:
            self.faults.append("labels: " + r["labels"])
        return dict(runner_id=self.register(r["runner_name"])["id"]), [proto.memfd(JIT)]

    def register(self, name, foreign=False):
        self.next_id += 1
        runner = dict(id=self.next_id, name=name, online=False, busy=False, gone=False, labels=LABELS.split(","), jobs=[],
                      foreign=foreign)
        self.runners[runner["id"]] = runner
        return runner

    def github_runner(self, r):
        runner = self.runners.get(r["runner_id"]) if r["runner_id"] else \
            next((x for x in self.runners.values() if x["name"] == r["runner_name"] and not x["gone"]), None)
        if not runner or runner["gone"]:
            return dict(found=0), []
        return dict(found=1, runner_id=runner["id"], online=int(runner["online"]), busy=int(runner["busy"])), []

    def github_runners(self, r):
        rows = [{k: x[k] for k in ("id", "name", "online", "busy")} for x in self.runners.values() if not x["gone"]]
        return {}, [proto.memfd(json.dumps({"runners": rows[:100], "truncated": len(rows) > 100}).encode())]

    def github_delete(self, r):
        runner = self.runners.get(r["runner_id"])
        if not runner:
            self.faults.append("DELETE of an id that never was: %d" % r["runner_id"])
        elif runner["busy"]:
            raise self.fault("busy", EBUSY, "it is running a job")
        elif runner["foreign"]:
            self.faults.append("DELETE of a foreign runner")
        else:
            runner["gone"] = True
        return {}, []

    def public_jobs(self, jobs):
        return self.document("jobs", [{k: v for k, v in j.items() if k[0] != "_"} for j in jobs])

    def github_jobs(self, r):
        return self.public_jobs([j for j in self.jobs if j["status"] in ("queued", "in_progress") and j["_repo"] == r["scope"]])

    def github_deprecation(self, r):
        if r["text"] not in self.deprecations:
            raise self.fault("absent", ENOENT, "no such version")
        return dict(text=self.deprecations[r["text"]]), []

    def github_job_of(self, r):
        return self.public_jobs([j for j in self.jobs if j["runner_name"] == r["runner_name"] and j["_repo"] == r["scope"]][:1])
