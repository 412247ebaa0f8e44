#!/usr/bin/python3
"""test_service_real.py BUILD_DIR [NAME...] - the runner service with the real keeper, the real boxery-github and the GitHub
emulator; only VMs and ssh are played: a "guest" is the stand-in runner as a process of this host.

Each scenario runs in a process and a network namespace of its own."""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1])
os.environ.setdefault("BOXERY_FAULT_BINARIES", os.path.join(BUILD, "tests", "fault"))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "emulator")]
import keeper_world  # noqa: E402
import pack_runner  # noqa: E402
from emu.client import Emulator  # noqa: E402
from proto import until  # noqa: E402

REPO, LABELS = "octo/private", ["self-hosted", "linux", "x64", "boxery"]
TOKEN = "github_pat_of_a_test"

# Where boxery-deliver would be: the secret goes to a runner that outlives everybody here, as a guest does. When the runner
# ends, its domain is gone: the guest powers itself off.
DELIVER = r'''#!/usr/bin/python3
import os, subprocess, sys
sys.path.insert(0, %(lib)r)
import proto, socket
world = os.environ["BOXERY_TEST_WORLD"]
ours = socket.socket(fileno=3)
request = proto.DELIVER_REQUEST.unpack(ours.recv(8192))
_, name, generation = request["host_key"].split("+")
name = name.replace("/", "-")
jit = os.pread(4, 1 << 16, 0).decode()
guest = os.path.join(world, "guest-%%s-%%s" %% (name, generation))
subprocess.check_call(["cp", "-a", os.path.join(world, "runner"), guest])
script = """cd "$1"; bin/Runner.Listener run >log 2>&1; echo "exit $?" >>log
read -r g _ <"$2"; [ "$g" = "$3" ] && rm -f "$2"
"""
with open(os.path.join(guest, "guest.log"), "w") as log:
    subprocess.Popen(["/bin/bash", "-c", script, "guest", guest, os.path.join(world, "domains", name), generation],
                     env={"PATH": os.environ["PATH"], "HOME": guest, "ACTIONS_RUNNER_INPUT_JITCONFIG": jit,
                          "CURL_CA_BUNDLE": os.path.join(world, "ca.pem"), "RUNNER_ALLOW_RUNASROOT": "1",
                          "ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED": "true"},
                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True)
with open(os.path.join(world, "deliveries.log"), "a") as f:
    f.write(request["host_key"] + "\n")
ours.send(proto.DELIVER_RESULT.pack(seq=1, step=7, total_ms=1, text="the guest has it"))
'''


class Host:
    def __init__(self, vms=1, emulator=None, token=TOKEN):
        """emulator: another host's, which has it started."""
        self.world = keeper_world.World()
        w = self.world
        self.token, self.owns_emulator = token, not emulator
        os.mkdir(w.path("emulator"), 0o700)
        self.emulator = emulator or Emulator.start(w.path("emulator"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--repo",
                                                   REPO, "--poll-seconds", "2", "--offline-after", "6", token=token)
        os.mkdir(w.path("world/runner"))
        pack_runner.pack(w.path("world/runner.tar.gz"))
        subprocess.check_call(["tar", "-xzf", w.path("world/runner.tar.gz"), "-C", w.path("world/runner")])
        os.symlink(self.emulator.ca, w.path("world/ca.pem"))
        os.unlink(w.path("bin/boxery-deliver"))
        with open(w.path("bin/boxery-deliver"), "w") as f:
            f.write(DELIVER % {"lib": os.path.join(HERE, "..", "lib")})
        os.chmod(w.path("bin/boxery-deliver"), 0o755)
        for name in ("boxery-runners", "boxery-github"):
            subprocess.check_call(["cp", os.path.join(BUILD, name), w.path("bin", name)])
        w.write("config/runners.env", "GITHUB_TOKEN=%s\nBOXERY_GITHUB_URL=%s\nBOXERY_GITHUB_CA_FILE=%s\n" % (
            token, self.emulator.url, self.emulator.ca))
        os.chmod(w.path("config/runners.env"), 0o600)
        w.write("config/runners.yaml", "version: 1\npoll_interval: 5s\nrunners:\n  - repo: %s\n    labels: [%s]\n    max: 2\n"
                "    start_timeout: 15s\n    idle_timeout: 10s\n" % (REPO, ", ".join(LABELS)))
        w.start()
        w.pool_vm(*["vm%d" % (i + 1) for i in range(vms)])
        self.log_file = open(w.path("service.log"), "ab")
        self.service = None
        self.begin = time.monotonic()

    def start(self):
        self.service = subprocess.Popen([self.world.path("bin/boxery-runners")], env=self.world.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log_file, stderr=self.log_file)

    def text(self):
        with open(self.world.path("service.log"), errors="replace") as f:
            return f.read()

    def kill(self):
        self.service.kill()
        self.service.wait()

    def keepers(self):
        """Also those that the service has started."""
        out = []
        for pid in os.listdir("/proc"):
            try:
                if os.readlink("/proc/%s/exe" % pid) == self.world.path("bin/boxery-keeper"):
                    out.append(int(pid))
            except OSError:
                continue
        return out

    def kill_keeper(self):
        for pid in self.keepers():
            os.kill(pid, 9)
        if self.world.keeper:
            self.world.keeper.wait()
            self.world.keeper = None

    def stop(self):
        self.service.terminate()
        return self.service.wait(15)

    def job(self, script="sleep 1", **more):
        return self.emulator.job(REPO, LABELS, script, **more)["id"]

    def finished(self, job, conclusion="success", timeout=90):
        end = time.monotonic() + timeout
        while True:
            j = self.emulator.call("GET", "jobs/%d" % job)
            if j["status"] == "completed":
                assert j["conclusion"] == conclusion, j
                return j
            assert time.monotonic() < end, (j, self.emulator.state()["runners"])
            time.sleep(0.2)

    def busy(self, name="vm1", timeout=60):
        until(lambda: self.world.state(name) == "BUSY", timeout, 0.1)

    def settled(self, timeout=90):
        """All VMs READY again, no lease on the keeper's list, no registration of ours at GitHub."""
        end = time.monotonic() + timeout
        while True:
            vms, leases = self.world.vms().values(), self.world.leases()
            left = [r["name"] for r in self.emulator.runners() if not r["foreign"] and r["state"] != "gone"]
            if all(v["state"] == "READY" for v in vms) and not leases and not left:
                return
            assert time.monotonic() < end, ([v["state"] for v in vms], leases, left)
            time.sleep(0.3)

    def outcomes(self):
        """As the service reported them, once per lease."""
        return list({lease: word for word, lease in re.findall(
            r"outcome: ([a-z ]+?)(?:, job .*)? vm=\S+ lease=(\w+)", self.text())}.values())

    def mints(self):
        return [r for r in self.emulator.requests() if r["method"] == "POST" and "generate-jitconfig" in r["path"]]

    def check(self):
        names = [r["name"] for r in self.emulator.runners() if not r["foreign"]]
        assert len(names) == len(set(names))
        for r in self.emulator.runners():
            assert len(r["jobs"]) <= 1, r
        given = self.world.delivered()
        assert len(given) == len(set(given)), given
        for what in (self.token, *[n for r in self.emulator.runners() for n in r["needles"]]):
            assert what not in self.text() and what not in self.world.log(), "a secret is in a log"
        for name in ("state/boxery.db", "state/boxery.db-wal"):
            if os.path.exists(self.world.path(name)):
                with open(self.world.path(name), "rb") as f:
                    data = f.read()
                assert self.token.encode() not in data
                for r in self.emulator.runners():
                    assert not any(n.encode() in data for n in r["needles"]), "a JIT config is in the database"
        assert "Sanitizer" not in self.text() and "runtime error" not in self.text(), self.text()

    def close(self):
        if self.service and self.service.poll() is None:
            self.kill()
        # Guests outlive the host's programs by design: end them by what they were started with.
        for pid in os.listdir("/proc"):
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if (b"HOME=" + self.world.path("world/guest-").encode()) in f.read():
                        os.kill(int(pid), 9)
            except (OSError, ValueError):
                continue
        self.kill_keeper()
        if self.owns_emulator:
            self.emulator.stop()
        self.log_file.close()
        self.world.close()


SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def done_once(h, job, conclusion="success", outcomes=("succeeded",)):
    h.finished(job, conclusion)
    h.settled()
    assert sorted(h.outcomes()) == sorted(outcomes), h.outcomes()
    taken = [r for r in h.emulator.runners() if r["jobs"]]
    assert len(taken) == 1, taken


@scenario
def two_jobs_one_vm(h):
    h.start()
    first, second = h.job("echo one; sleep 2"), h.job("echo two; exit 3")
    h.finished(first)
    h.finished(second, "failure")
    h.settled()
    assert sorted(h.outcomes()) == ["failed", "succeeded"], h.outcomes()
    assert len(h.mints()) == 2
    assert [g for n, g in h.world.delivered()] == [1, 2], h.world.delivered()
    assert all(r["ended"] == "consumed" for r in h.emulator.runners())
    assert h.stop() == 0


@scenario
def everybody_killed_in_mid_job(h):
    h.start()
    job = h.job("sleep 25")
    h.busy()
    h.kill()
    time.sleep(1)
    h.start()
    time.sleep(3)
    h.kill_keeper()
    time.sleep(4)
    assert h.keepers(), "the service has not started a keeper"
    h.kill()
    h.kill_keeper()
    time.sleep(1)
    h.start()
    done_once(h, job)
    assert len(h.mints()) == 1
    assert h.stop() == 0


@scenario
def keeper_killed_and_started_by_the_service(h):
    h.start()
    job = h.job("sleep 12")
    h.busy()
    for _ in range(3):
        h.kill_keeper()
        time.sleep(1.5)
    done_once(h, job)


@scenario
def stopped_in_mid_job(h):
    h.start()
    job = h.job("sleep 12")
    h.busy()
    assert h.stop() == 0
    h.finished(job)
    until(lambda: h.world.state("vm1") == "READY", 30)
    h.start()
    done_once(h, job)


@scenario
def mint_503(h):
    h.emulator.fault("POST", "generate-jitconfig$", "answer", status=503, body="busy", count=3)
    h.start()
    job = h.job()
    h.finished(job, timeout=150)
    h.settled(150)
    assert len(h.mints()) == 4
    assert [r for r in h.emulator.runners() if r["jobs"]] and len(h.emulator.runners()) == 1


@scenario
def mint_acts_and_drops(h):
    h.emulator.fault("POST", "generate-jitconfig$", "drop-after", count=1)
    h.start()
    job = h.job()
    h.finished(job)
    h.settled()
    assert sorted(h.outcomes()) == ["mint conflict", "succeeded"], h.outcomes()
    assert sorted(r["ended"] for r in h.emulator.runners()) == ["consumed", "deleted"], h.emulator.runners()


@scenario
def mint_409(h):
    h.emulator.fault("POST", "generate-jitconfig$", "answer", status=409, count=1, body={
        "message": "Already exists - A runner with the name X already exists.", "documentation_url": "https://docs"})
    h.start()
    job = h.job()
    h.finished(job)
    h.settled(150)
    assert sorted(h.outcomes()) == ["mint conflict", "succeeded"], h.outcomes()


@scenario
def rate_limit(h):
    h.emulator.fault("GET", "actions/runs", "rate-limit", kind="secondary", status=429, count=1, headers={"retry-after": "8"})
    h.start()
    job = h.job()
    done_once(h, job)


@scenario
def public(h):
    h.emulator.repo(REPO, private=False)
    h.start()
    job = h.job()
    time.sleep(15)
    assert not h.mints() and not h.world.leases()
    assert h.text().count("not private") == 1, h.text()
    h.emulator.repo(REPO, private=True)
    done_once(h, job)


@scenario
def wrong_token(h):
    h.world.write("config/runners.env", "GITHUB_TOKEN=wrong\nBOXERY_GITHUB_URL=%s\nBOXERY_GITHUB_CA_FILE=%s\n" % (
        h.emulator.url, h.emulator.ca))
    os.chmod(h.world.path("config/runners.env"), 0o600)
    h.start()
    h.job()
    until(lambda: "not served" in h.text(), 20)
    time.sleep(8)
    assert not h.mints() and h.service.poll() is None
    assert h.stop() == 0


@scenario
def open_runners_env(h):
    os.chmod(h.world.path("config/runners.env"), 0o644)
    h.start()
    h.job()
    until(lambda: "runners.env" in h.text(), 20)
    time.sleep(5)
    assert not h.emulator.requests(), "asked with a token that everybody can read"
    os.chmod(h.world.path("config/runners.env"), 0o600)
    until(lambda: "octo/private: served" in h.text(), 90, 0.5)


@scenario
def never_connects(h):
    h.emulator.behaviour("never-connect", count=1)
    h.start()
    job = h.job()
    h.finished(job, timeout=120)
    h.settled()
    assert sorted(h.outcomes()) == ["never connected", "succeeded"], h.outcomes()


@scenario
def idles(h):
    h.emulator.behaviour("idle", count=1)
    h.start()
    job = h.job()
    h.finished(job, timeout=120)
    h.settled()
    assert sorted(h.outcomes()) == ["no job", "succeeded"], h.outcomes()
    assert sorted(r["ended"] for r in h.emulator.runners()) == ["consumed", "deleted"]


@scenario
def vanishes(h):
    h.emulator.behaviour("vanish", seconds=2, count=1)
    h.emulator.settings(assign_delay_ms=8000)
    h.start()
    job = h.job()
    h.finished(job, timeout=150)
    h.settled()
    assert sorted(h.outcomes()) == ["no job", "succeeded"], h.outcomes()


@scenario
def delete_says_busy(h):
    """GitHub's own words for a runner that got its job in the last moment."""
    h.emulator.behaviour("idle", count=1)
    h.emulator.fault("DELETE", "actions/runners/", "answer", status=422, count=1, body={
        "message": "Bad request - Runner \"x\" is currently running a job and cannot be deleted.",
        "documentation_url": "https://docs"})
    h.start()
    job = h.job()
    until(lambda: "deleting -> busy" in h.text(), 60, 0.2)
    h.finished(job, timeout=150)
    h.settled(120)


@scenario
def cancelled(h):
    h.start()
    job = h.job("sleep 60")
    h.busy()
    h.emulator.cancel(job)
    done_once(h, job, "cancelled", ["cancelled"])


@scenario
def guest_destroyed_in_job(h):
    h.emulator.settings(lease_seconds=10)
    h.emulator.behaviour("die-in-job", seconds=3, count=1)
    h.start()
    job = h.job("sleep 60")
    h.finished(job, "failure", timeout=120)
    h.settled(120)
    assert h.outcomes()[0] in ("failed", "guest died"), h.outcomes()


@scenario
def foreign_runners_stay(h):
    for i in range(3):
        h.emulator.call("POST", "runners", {"repo": REPO, "name": "boxery-ffffffff-%d" % i, "labels": LABELS, "status": "offline"})
    h.start()
    job = h.job()
    h.finished(job)
    h.settled()
    assert len([r for r in h.emulator.runners() if r["foreign"] and r["state"] != "gone"]) == 3


@scenario
def killed_around_every_step(h):
    """kill -9 of the service at a random moment, again and again; every job is done once."""
    import random
    random.seed(int(os.environ.get("SEED", "1")))
    h.start()
    jobs = [h.job("sleep 1") for _ in range(4)]
    for _ in range(14):
        time.sleep(random.random() * 3)
        h.kill()
        h.start()
    for job in jobs:
        h.finished(job, timeout=150)
    h.settled(150)
    assert len([r for r in h.emulator.runners() if r["jobs"]]) == 4


@scenario
def filter_not_in_force(h):
    """The keeper's refusal, whatever its code, is a refusal: a few registrations, the reason once, and it goes on when the
    filter is there."""
    h.world.script("FILTER", "fail 107 filter the network filter of boxery-10 is not in force")
    h.start()
    job = h.job()
    time.sleep(45)
    assert 3 <= len(h.mints()) <= 6, len(h.mints())
    assert h.text().count("warning boxery-runners: octo/private: not delivered: ") == 1, h.text()
    h.world.script("FILTER", None)
    h.finished(job, timeout=120)
    h.settled(120)
    assert set(h.outcomes()) == {"delivery failed", "succeeded"}, h.outcomes()


@scenario
def mint_409_for_ever(h):
    h.emulator.fault("POST", "generate-jitconfig$", "answer", status=409, count=-1, body={
        "message": "Already exists - A runner with the name X already exists.", "documentation_url": "https://docs"})
    h.start()
    job = h.job()
    time.sleep(45)
    assert 3 <= len(h.mints()) <= 6, len(h.mints())
    h.emulator.clear_faults()
    h.finished(job, timeout=120)
    h.settled(150)


@scenario
def the_job_has_its_own_time(h):
    h.start()
    job = h.job("sleep 8")
    h.busy()
    until(lambda: any(v["expires_in_ms"] <= 6 * 3600 * 1000 for v in h.world.leases().values()), 10)
    assert all(v["expires_in_ms"] > 6 * 3600 * 1000 - 60000 for v in h.world.leases().values()), h.world.leases()
    done_once(h, job)


@scenario
def interrupted_in_a_terminal(h):
    """Ctrl-C goes to everybody in the terminal; what the service still has to tidy up, it can."""
    h.service = subprocess.Popen([h.world.path("bin/boxery-runners")], env=h.world.env, stdin=subprocess.DEVNULL,
                                 stdout=h.log_file, stderr=h.log_file, start_new_session=True)
    h.emulator.fault("POST", "generate-jitconfig$", "delay", delay_ms=2500, count=1)
    h.job()
    until(lambda: "-> minting" in h.text(), 30, 0.02)
    time.sleep(1)
    os.killpg(h.service.pid, signal.SIGINT)
    assert h.service.wait(15) == 0
    assert "no job is left running" in h.text() and "GitHub cannot be asked" not in h.text(), h.text()
    assert not [r for r in h.emulator.runners() if r["state"] != "gone"], "its registration was left for the next start"
    assert not h.world.leases()


@scenario
def network_not_ready(h):
    """The guest's way to GitHub (its name server, a route) comes some time after its runner: it waits, and so do we."""
    h.world.write("config/runners.yaml", "version: 1\npoll_interval: 5s\nrunners:\n  - repo: %s\n    labels: [%s]\n    start_timeout: 60s\n" % (
        REPO, ", ".join(LABELS)))
    h.emulator.fault("POST", "_runner/session", "drop-before", count=4)
    h.start()
    job = h.job()
    h.finished(job, timeout=120)
    h.settled()
    tries = [r for r in h.emulator.requests("runner") if r["method"] == "POST" and r["path"].endswith("/session")]
    assert len(tries) == 5 and tries[-1]["start"] - tries[0]["start"] > 15, tries
    assert (h.outcomes(), len(h.mints())) == (["succeeded"], 1), h.outcomes()


@scenario
def until_when_github_takes_the_runner(h):
    """`runners check` asks about the runner in each base image, and fails for one that gets no jobs any more."""
    h.emulator.settings(deprecations={"2.338.0": {"runtime_deprecates_at": None}, "2.336.0": {"runtime_deprecates_at": "2999-11-05T00:00:00Z"},
                                      "2.330.0": {"registration_deprecates_at": "2026-01-01T00:00:00Z",
                                                  "runtime_deprecates_at": "2026-02-01T00:00:00Z"}})
    h.start()

    def check(**images):
        shutil.rmtree(h.world.path("images/base"), ignore_errors=True)
        for image, version in images.items():
            os.makedirs(h.world.path("images/base", image))
            h.world.write("images/base/%s/manifest.env" % image, "LAYERS=x\nRUNNER_VERSION=%s\n" % version)
        done = subprocess.run([os.path.join(BUILD, "boxery-host"), "runners", "check"], env=h.world.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr
    status, said, wrong = check(new="2.338.0", older="2.336.0", strange="9.9.9", none="")
    assert (status, wrong) == (0, ""), (status, wrong)
    for line in ("actions/runner 2.338.0 in image new: no end is set\n", "actions/runner 2.336.0 in image older: runs until 2999-11-05T00:00:00Z\n",
                 "actions/runner 9.9.9 in image strange: GitHub knows nothing of this version\n"):
        assert line in said, said
    assert "none" not in said
    status, said, wrong = check(old="2.330.0", new="2.338.0")
    assert status == 6 and "in image old: GitHub gives it no jobs any more (" in wrong and "runs until 2026-02-01" in wrong, (status, wrong)
    assert "in image new: no end is set" in said


VMS = {"killed_around_every_step": 2}


def run_inside(name):
    keeper_world.enter_namespace()
    h = Host(VMS.get(name, 1))
    try:
        SCENARIOS[name](h)
        if h.service.poll() is None:
            assert h.stop() == 0, "it does not end well"
        h.check()
        return 0
    except BaseException:
        traceback.print_exc()
        print("--- the service:\n%s\n--- the keeper:\n%s" % (h.text()[-12000:], h.world.log()[-6000:]))
        return 1
    finally:
        h.close()


def main():
    if len(sys.argv) == 4 and sys.argv[2] == "--inside":
        return run_inside(sys.argv[3])
    chosen = [n for n in SCENARIOS if len(sys.argv) < 3 or any(x in n for x in sys.argv[2:])]

    def one(name):
        begin = time.monotonic()
        done = subprocess.run([sys.executable, os.path.abspath(sys.argv[0]), BUILD, "--inside", name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=500)
        return name, done, time.monotonic() - begin
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("SCENARIOS", "5"))) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, n) for n in chosen]):
            name, done, took = future.result()
            if done.returncode == keeper_world.SKIP:
                print(done.stdout)
                return keeper_world.SKIP
            print("%s %-40s %6.1f s" % ("ok  " if done.returncode == 0 else "FAIL", name, took), flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout, flush=True)
    print("%d scenarios, %d failed" % (len(chosen), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
