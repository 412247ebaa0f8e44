#!/usr/bin/python3
"""cli_runners.py DOCS/json.md - boxery-host runners status, explain, history, show and logs, against the real service and keeper;
GitHub is a stand-in for boxery-github that answers from a file, and a guest is a file too. What --json prints is what the page says."""
import json

from cli_json import Tried, schemas
from cli_world import Case, main, os, re, run, signal, subprocess, sys, until
from keeper_world import SECRET

GITHUB = '''#!/usr/bin/python3
import json, os, socket, sys
sys.path.insert(0, %(lib)r)
import proto
folder = os.environ["BOXERY_TEST_WORLD"]
verbs = {v: k for k, v in proto.GITHUB_VERBS.items()}
s = socket.socket(fileno=3)
while True:
    data = s.recv(8192)
    if not data:
        break
    verb, r = verbs[proto.HEAD.unpack(data[:16])[2]], proto.GITHUB_REQUEST.unpack(data)
    with open(folder + "/github.json") as f:
        told = json.load(f)
    reply, fds = {}, []
    if verb == "HELLO":
        reply = {"text": "https://api.github.test, a token"}
    elif verb == "REPOSITORY":
        reply = {"is_private": 1, "calls_free": 1, "rate_limit": 5000, "rate_remaining": 4990, "rate_reset_s": 1800}
    elif verb == "MINT":
        with open(folder + "/minted", "w") as f:
            f.write(r["runner_name"])
        reply, fds = {"runner_id": 4711, "calls": 1}, [proto.memfd(%(secret)r)]
    elif verb in ("JOBS", "JOB_OF"):
        wanted = ("queued", "in_progress") if verb == "JOBS" else ("completed",)
        jobs = [j for j in told["jobs"] if j["status"] in wanted]
        reply, fds = {"calls": 1}, [proto.memfd(json.dumps({"jobs": jobs, "truncated": False}).encode())]
    elif verb == "RUNNER":
        reply = {"found": 1, "runner_id": 4711, "online": 1, "calls": 1}
    elif verb == "RUNNERS":
        reply, fds = {"calls": 1}, [proto.memfd(b'{"runners": [], "truncated": false}')]
    socket.send_fds(s, [proto.GITHUB_REPLY.pack(seq=r["seq"], **reply)], fds)
'''
LABELS = ["self-hosted", "linux", "x64", "boxery"]
PAGE = schemas(sys.argv.pop(1))
YAML = "version: 1\npoll_interval: 5s\nrunners:\n  - repo: octo/private\n    labels: [%s]\n    max: 1\n" % ", ".join(LABELS)


class Story:
    """A service in a keeper's world: `told` is what GitHub says."""

    def __init__(self, w):
        self.w = w
        self.job = dict(id=7, run_id=3, name="build \x1b[31m", workflow_name="ci", status="queued", conclusion=None, labels=LABELS,
                        runner_id=None, runner_name=None, created_at="2026-01-01T00:00:00Z", started_at=None, completed_at=None)
        stray = dict(self.job, id=8, name="stray", labels=LABELS[:3] + ["boxry"])
        self.jobs = [self.job, stray]
        w.write("bin/boxery-github", GITHUB % {"secret": SECRET, "lib": os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "..", "lib")})
        os.chmod(w.path("bin/boxery-github"), 0o755)
        with open(os.environ["BOXERY_RUNNERS"], "rb") as f, open(w.path("bin/boxery-runners"), "wb") as out:
            out.write(f.read())
        os.chmod(w.path("bin/boxery-runners"), 0o755)
        w.write("config/runners.yaml", YAML)
        os.makedirs(w.path("images/console"), exist_ok=True)
        self.tell()
        self.log = open(w.path("service.log"), "wb")
        self.service = subprocess.Popen([w.path("bin/boxery-runners")], env=w.env, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)

    def tell(self, **job):
        self.job.update(job)
        self.w.write("world/github.new", json.dumps({"jobs": self.jobs}))
        os.rename(self.w.path("world/github.new"), self.w.path("world/github.json"))

    def lease(self):
        return next((x for x in self.w.call("LEASES", flags=8)["document"]["leases"]), None)

    def state(self, name, wanted):
        try:
            until(lambda: self.w.vms()[name]["state"] == wanted, 40)
        except TimeoutError as e:
            raise AssertionError("%s is not %s\n%s" % (name, wanted, self.text()[-4000:])) from e

    def runs(self, name):
        """Its runner has the job."""
        self.state(name, "DELIVERED")
        with open(self.w.path("world/minted"), encoding="ascii") as f:
            self.tell(status="in_progress", runner_id=4711, runner_name=f.read(), started_at="2026-01-01T00:00:42Z")
        self.state(name, "BUSY")

    def ends(self, name, console):
        """The job, and its guest, which has printed this."""
        with open(self.w.path("images/console/%s.log" % name), "wb") as f:
            f.write(console)
        self.tell(status="completed", conclusion="success", completed_at="2026-01-01T00:01:42Z")
        self.w.stop_domain(name)
        until(lambda: self.lease()["registration"] == "gone" and self.w.vms()[name]["state"] == "READY", 60)

    def text(self):
        with open(self.w.path("service.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def close(self):
        self.service.send_signal(signal.SIGTERM)
        self.service.wait(20)
        self.log.close()


class Runners(Case):
    def test_seeing(self):
        w, json_of = self.w, Tried(self.w, PAGE)
        w.start()
        self.assertEqual(run(w, "runners", "status").returncode, 8)  # there is no service
        w.pool_vm("one")
        story = Story(w)
        self.addCleanup(story.close)
        story.runs("one")
        lease = story.lease()["lease"]
        shown = run(w, "runners", "status")
        self.assertRegex(shown.stdout, r"GitHub: \d+ calls in the last hour.*4990 of 5000 left")
        self.assertRegex(shown.stdout, r"octo/private +serving .* 0 +1 +1 .*\n(.*\n)*" + lease + " +one +octo/private +busy ")
        self.assertNotIn("\x1b", shown.stdout)
        self.assertIn('octo/private: job "stray": no entry has the label "boxry"; was "boxery" meant?\n',
                      run(w, "runners", "explain").stdout)
        json_of("runners status")
        self.assertEqual(json_of("runners explain")["jobs"][0]["labels_off"], 1)
        missing = run(w, "runners", "logs", lease)
        self.assertEqual(missing.returncode, 3)
        self.assertIn("a lease's console is kept when it ends", missing.stderr)
        story.ends("one", b"hello \x1b[31m\xff\tend\r\nboxery: listener exited 0\r\n")
        self.assertEqual(run(w, "runners", "logs", lease).stdout, "hello \\x1b[31m\\xff\tend\nboxery: listener exited 0\n")
        self.assertRegex(run(w, "runners", "history").stdout, lease + ".* one .*succeeded")
        self.timeline(run(w, "runners", "show", lease).stdout, lease)
        (row,) = json_of("runners history")["leases"]
        self.assertEqual((row["lease"], row["outcome"], row["job"]), (lease, "succeeded", "build \\x1b[31m"))
        notes = [e["text"] for e in json_of("runners show", lease)["events"] if e["kind"] == "note" and "GitHub: job" in e["text"]]
        self.assertEqual(notes, ["GitHub: job queued 2026-01-01T00:00:00Z", "GitHub: job started 2026-01-01T00:00:42Z",
                                 "GitHub: job completed 2026-01-01T00:01:42Z"])
        self.assertEqual(json_of.faults, [])
        self.assertEqual(json_of.used, {c for c in PAGE if c.startswith("runners ")})
        for bad in (["logs", "../one"], ["show", "0" * 32], ["logs", "0" * 32]):
            r = run(w, "runners", *bad)
            self.assertNotEqual((r.returncode, r.stderr), (0, ""), bad)
            self.assertEqual(r.stdout, "", bad)

    def timeline(self, text, lease):
        """Every step of the job, in the order of its time: GitHub's where GitHub has told it."""
        lines = text.splitlines()[1:]
        what = [re.split(r"\s{2,}", line.strip()) for line in lines]
        steps = [next((s for s in ("queued", "job started", "job completed", "LEASE", "registration", "DELIVER", "the runner is online",
                                   "JOB_SEEN", "STOPPED", "RESET_DONE", "STARTED") if s in cells), None) for cells in what]
        steps = [s for s in steps if s]
        self.assertEqual(steps[:3], ["queued", "job started", "job completed"], text)  # long ago by GitHub's clock
        self.assertRegex(lines[0], r"^2026-01-01T00:00:00Z +-\d+\.\d{3} .*queued .*by GitHub's clock")
        rest = [s for s in steps[3:] if s != "registration"]
        for a, b in zip(("LEASE", "DELIVER", "JOB_SEEN", "STOPPED", "RESET_DONE"), ("DELIVER", "JOB_SEEN", "STOPPED", "RESET_DONE",
                                                                                  "STARTED")):
            self.assertLess(rest.index(a), rest.index(b), text)
        self.assertEqual(steps.count("registration"), 3, text)


if __name__ == "__main__":
    main()
