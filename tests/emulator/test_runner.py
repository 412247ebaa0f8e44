#!/usr/bin/python3
"""The stand-in runner as a plain process on this host, against the emulator on loopback; its tarball and the file server."""
import base64
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import pack_runner  # noqa: E402
from test_emulator import RUNNERS, Base  # noqa: E402


class StandIn(Base):
    """The stand-in runner as a plain process in a folder of its own, as its user would unpack it."""

    def setUp(self):
        super().setUp()
        self.emu.settings(poll_seconds=2, conflict_retry_seconds=1, conflict_limit_seconds=2)
        self.root = self.unpack()

    def unpack(self):
        root = tempfile.TemporaryDirectory(prefix="runner.", dir=self.folder.name)
        self.addCleanup(root.cleanup)
        subprocess.run(["tar", "-xzf", self.tarball, "-C", root.name], check=True)
        return root.name

    def start(self, config, *args, program="bin/Runner.Listener", root=None, **env):
        """A started listener; its output is collected by a thread, so that a full pipe cannot stop it."""
        base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CURL_CA_BUNDLE": self.emu.ca, "STANDIN_RETRY_SECONDS": "1",
                "TMPDIR": self.folder.name}
        if config:
            base["ACTIONS_RUNNER_INPUT_JITCONFIG"] = config
        command = [os.path.join(root or self.root, program)] + (["run"] if "Listener" in program else []) + list(args)
        p = subprocess.Popen(command, env={**base, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd="/")
        p.lines = []
        p.reader = threading.Thread(target=lambda: p.lines.extend(line.rstrip("\n") for line in p.stdout), daemon=True)
        p.reader.start()
        self.addCleanup(self.finish, p)
        return p

    @staticmethod
    def finish(p):
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        p.reader.join(5)
        p.stdout.close()

    def run_one(self, config, *args, timeout=40, **more):
        p = self.start(config, *args, **more)
        code = p.wait(timeout)
        p.reader.join(5)
        return code, [self.untimed(x) for x in p.lines]

    @staticmethod
    def untimed(line):
        return "T: " + line[22:] if line[4:5] == "-" and line[19:22] == "Z: " else line

    def wait_line(self, p, start, timeout=15):
        deadline = time.monotonic() + timeout
        while not any(self.untimed(x).startswith(start) for x in p.lines):
            self.assertLess(time.monotonic(), deadline, "no line %r in %r" % (start, p.lines))
            time.sleep(0.05)

    def test_one_job(self):
        config = self.mint()["encoded_jit_config"]
        script = "echo out; echo err >&2; env | sort; pwd; tr '\\0' '\\n' </proc/self/environ"
        job = self.emu.job("octo/demo", ["Linux"], script, name="compile it")
        code, lines = self.run_one(config)
        self.assertEqual(code, 0)
        self.assertEqual(lines, ["", "√ Connected to GitHub", "", "Current runner version: '2.338.0'", "T: Listening for Jobs",
                                 "T: Running job: compile it", "T: Job compile it completed with result: Succeeded"])
        done = self.emu.wait_job(job["id"])
        self.assertEqual((done["conclusion"], done["runner_name"], done["exit_code"]), ("success", "r1", 0))
        self.assertIn("out\nerr\n", done["log"])
        self.assertIn("GITHUB_REPOSITORY=octo/demo\n", done["log"])
        self.assertIn(self.root + "/_work/demo/demo\n", done["log"])
        self.assertNotIn("JITCONFIG", done["log"], "children do not inherit the configuration")
        r = self.runner_state()
        self.assertEqual((r["state"], r["ended"], r["jobs"]), ("gone", "consumed", [job["id"]]))
        for name in (".runner", ".credentials", ".credentials_rsaparams", "_work", "_diag"):
            self.assertTrue(os.path.exists(os.path.join(self.root, name)), name)
        rest_job = self.rest("GET", "/repos/octo/demo/actions/jobs/%d" % job["id"])[2]
        self.assertEqual((rest_job["status"], rest_job["runner_id"], rest_job["runner_name"]), ("completed", r["id"], "r1"))
        # The configuration is spent.
        code, lines = self.run_one(config)
        self.assertEqual(code, 1)
        self.assertTrue(lines[0].startswith("Failed to create a session. The runner registration has been deleted"), lines)

    def test_needs_only_what_the_guest_has(self):
        """bash, curl, coreutils, sed, grep: no Python, no jq, not even util-linux."""
        listed = subprocess.run(["dpkg", "-L", "bash", "coreutils", "sed", "grep", "curl"], capture_output=True, text=True, check=True)
        place = tempfile.mkdtemp(dir=self.folder.name)
        for path in listed.stdout.splitlines():
            if "/bin/" in path and os.access(path, os.X_OK) and not os.path.isdir(path):
                os.symlink(path, os.path.join(place, os.path.basename(path)))
        job = self.emu.job("octo/demo", ["linux"], "echo fine")
        code, lines = self.run_one(self.mint()["encoded_jit_config"], PATH=place)
        self.assertEqual((code, len(lines)), (0, 7), lines)
        self.assertEqual(self.emu.wait_job(job["id"])["log"], "fine\n")

    def test_umask_is_the_callers(self):
        config = self.mint()["encoded_jit_config"]
        self.emu.job("octo/demo", ["linux"], "true")
        old = os.umask(0o077)
        try:
            self.assertEqual(self.run_one(config)[0], 0)
        finally:
            os.umask(old)
        self.assertEqual(os.stat(os.path.join(self.root, ".credentials")).st_mode & 0o777, 0o600)

    def test_states_seen_by_rest(self):
        minted = self.mint()
        me = "%s/%d" % (RUNNERS, minted["runner"]["id"])
        p = self.start(None, "--jitconfig", minted["encoded_jit_config"])
        self.emu.wait_runner("r1", "online", 10)
        got = self.rest("GET", me)[2]
        self.assertEqual((got["status"], got["busy"], got["os"], got["version"]), ("online", False, "linux", "2.338.0"))
        job = self.emu.job("octo/demo", ["self-hosted"], "sleep 1.5")
        runs = "/repos/octo/demo/actions/runs"
        self.assertEqual(self.rest("GET", runs + "?status=completed")[2]["total_count"], 0)
        self.emu.wait_runner("r1", "busy", 10)
        self.assertTrue(self.rest("GET", me)[2]["busy"])
        self.assertEqual(self.rest("DELETE", me)[0], 422)
        self.assertEqual(self.rest("GET", runs + "?status=in_progress")[2]["total_count"], 1)
        jobs = self.rest("GET", "%s/%d/jobs" % (runs, job["run_id"]))[2]["jobs"]
        self.assertEqual((jobs[0]["status"], jobs[0]["runner_name"], jobs[0]["labels"]), ("in_progress", "r1", ["self-hosted"]))
        self.assertEqual(p.wait(15), 0)
        self.assertEqual(self.rest("GET", me)[0], 404)
        self.assertEqual(self.rest("GET", runs + "?status=success")[2]["total_count"], 1)

    def test_labels_decide(self):
        self.emu.job("octo/demo", ["gpu"], "true", name="not mine")
        self.emu.repo("octo/other")
        self.emu.job("octo/other", ["linux"], "true", name="elsewhere")
        self.emu.job("octo/demo", ["LINUX", "self-hosted"], "true", name="mine")
        _, lines = self.run_one(self.mint()["encoded_jit_config"])
        self.assertIn("T: Running job: mine", lines)

    def test_failed_job_and_result_codes(self):
        for script, env, expected, word in (("exit 7", {}, 0, "Failed"), ("false\ntrue", {}, 0, "Failed"),
                                            ("exit 7", {"ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED": "true"}, 102, "Failed"),
                                            ("true", {"ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED": "1"}, 100, "Succeeded")):
            self.emu.reset()
            job = self.emu.job("octo/demo", ["linux"], script)
            code, lines = self.run_one(self.mint()["encoded_jit_config"], **env)
            self.assertEqual((code, lines[-1]), (expected, "T: Job build completed with result: " + word))
            self.assertEqual(self.emu.wait_job(job["id"])["result"], word)

    def test_cancel(self):
        job = self.emu.job("octo/demo", ["linux"], "echo begun; sleep 100 & wait", name="long")
        p = self.start(self.mint()["encoded_jit_config"], ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED="true")
        self.emu.wait_job(job["id"], "in_progress", 10)
        self.emu.cancel(job["id"])
        self.assertEqual(p.wait(20), 103)
        done = self.emu.wait_job(job["id"])
        self.assertEqual((done["conclusion"], done["log"]), ("cancelled", "begun\n"))

    def test_cancel_before_pick_up(self):
        job = self.emu.job("octo/demo", ["linux"], "true")
        self.assertEqual(self.rest("POST", "/repos/octo/demo/actions/runs/%d/cancel" % job["run_id"])[0], 202)
        self.assertEqual(self.emu.wait_job(job["id"])["conclusion"], "cancelled")

    def test_signals(self):
        for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, 143)):
            self.emu.reset()
            p = self.start(self.mint()["encoded_jit_config"])
            self.wait_line(p, "T: Listening for Jobs")
            p.send_signal(number)
            self.assertEqual(p.wait(10), code)
            p.reader.join(5)
            self.assertEqual(p.lines[-1], "Exiting...")
            self.assertEqual(self.runner_state()["state"], "offline")
        job = self.emu.job("octo/demo", ["linux"], "sleep 100")
        p = self.start(self.mint("r2")["encoded_jit_config"])
        self.emu.wait_job(job["id"], "in_progress", 10)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(15), 0)
        self.assertEqual(self.emu.wait_job(job["id"])["conclusion"], "cancelled")

    def test_session_conflict(self):
        config = self.mint()["encoded_jit_config"]
        p = self.start(config)
        self.wait_line(p, "T: Listening for Jobs")
        code, lines = self.run_one(config, root=self.unpack())
        self.assertEqual((code, lines[0]), (5, "A session for this runner already exists."))

    def test_exit_codes_on_demand(self):
        for wanted, words in ((1, "An error occurred"), (2, "An error occurred"), (3, "Runner update in progress"),
                              (4, "Runner update in progress"), (5, "A session for this runner already exists."),
                              (7, "An error occurred: Runner version v2.338.0 is deprecated and cannot receive messages.")):
            self.emu.reset()
            self.emu.behaviour("exit", code=wanted)
            code, lines = self.run_one(self.mint()["encoded_jit_config"])
            self.assertEqual(code, wanted)
            self.assertTrue(any(x.startswith(words) for x in lines), lines)

    def test_deprecated(self):
        for env, expected in (({}, 1), ({"ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": "true"}, 7)):
            self.emu.reset()
            self.emu.behaviour("deprecated")
            code, lines = self.run_one(self.mint()["encoded_jit_config"], **env)
            self.assertEqual(code, expected)
            self.assertIn("An error occurred: Runner version v2.338.0 is deprecated and cannot receive messages.", lines)

    def test_vanish(self):
        self.emu.behaviour("vanish", seconds=0.5)
        code, lines = self.run_one(self.mint()["encoded_jit_config"])
        self.assertEqual((code, lines[-1]), (0, "The runner no longer exists on the server. Cleaning up local configuration."))
        self.assertEqual((self.runner_state()["ended"], self.runner_state()["jobs"]), ("vanished", []))

    def test_deleted_while_idle(self):
        minted = self.mint()
        p = self.start(minted["encoded_jit_config"])
        self.emu.wait_runner("r1", "online", 10)
        self.assertEqual(self.rest("DELETE", "%s/%d" % (RUNNERS, minted["runner"]["id"]))[0], 204)
        self.assertEqual(p.wait(10), 0)
        self.assertEqual(self.runner_state()["ended"], "deleted")

    def test_never_connect_and_idle(self):
        self.emu.behaviour("never-connect", name="^r1$")
        self.emu.behaviour("idle", name="^r2$")
        job = self.emu.job("octo/demo", ["linux"], "true")
        p1 = self.start(self.mint()["encoded_jit_config"])
        p2 = self.start(self.mint("r2")["encoded_jit_config"], root=self.unpack())
        self.emu.wait_runner("r2", "online", 10)
        time.sleep(1)
        self.assertEqual((p1.poll(), p2.poll()), (None, None))
        self.assertIsNone(self.runner_state()["connected"])
        self.assertEqual(p1.lines, [])
        self.assertEqual(self.emu.wait_job(job["id"], "queued", 1)["runner_id"], None)

    def test_no_acquire(self):
        self.emu.settings(acquire_seconds=1)
        self.emu.behaviour("no-acquire")
        job = self.emu.job("octo/demo", ["linux"], "true")
        p = self.start(self.mint()["encoded_jit_config"])
        self.emu.wait_runner("r1", "assigned", 10)
        me = "%s/%d" % (RUNNERS, self.runner_state()["id"])
        self.assertEqual((self.rest("GET", me)[2]["busy"], self.rest("DELETE", me)[0]), (False, 422), "DELETE decides")
        self.emu.wait_runner("r1", "online", 10)
        self.assertEqual(self.emu.wait_job(job["id"], "queued", 2)["status"], "queued")
        self.assertIsNone(p.poll())

    def test_death_in_job(self):
        self.emu.settings(lease_seconds=3)
        self.emu.behaviour("die-in-job", seconds=0.5)
        job = self.emu.job("octo/demo", ["linux"], "sleep 3")
        code, _ = self.run_one(self.mint()["encoded_jit_config"])
        self.assertEqual(code, -signal.SIGKILL)
        self.assertTrue(self.rest("GET", RUNNERS)[2]["runners"][0]["busy"], "the lease still holds")
        self.assertEqual(self.emu.wait_job(job["id"], timeout=10)["conclusion"], "failure")
        self.assertEqual(self.runner_state()["ended"], "lost")

    def test_linger_and_hang(self):
        self.emu.behaviour("linger", seconds=1.5)
        self.emu.job("octo/demo", ["linux"], "true")
        self.assertEqual(self.run_one(self.mint()["encoded_jit_config"])[0], 0)
        self.assertEqual(self.rest("GET", RUNNERS + "?name=r1")[2]["total_count"], 1)
        self.emu.wait_runner("r1", "gone", 5)
        self.emu.behaviour("hang-after-job")
        job = self.emu.job("octo/demo", ["linux"], "true")
        p = self.start(self.mint("r2")["encoded_jit_config"])
        self.emu.wait_job(job["id"], timeout=10)
        time.sleep(0.5)
        self.assertIsNone(p.poll())

    def test_offline_after_silence(self):
        self.emu.settings(offline_after=1.5)
        p = self.start(self.mint()["encoded_jit_config"])
        self.emu.wait_runner("r1", "online", 10)
        time.sleep(2.5)
        self.assertEqual(self.runner_state()["state"], "online", "a waiting runner stays online")
        os.killpg(p.pid, signal.SIGKILL)
        self.emu.wait_runner("r1", "offline", 10)

    def test_outage(self):
        p = self.start(self.mint()["encoded_jit_config"])
        self.wait_line(p, "T: Listening for Jobs")
        self.emu.fault("GET", "^/_runner/message", "drop-before", count=2)
        self.wait_line(p, "T: Runner connect error: ")
        self.wait_line(p, "T: Runner reconnected.")

    def test_log_is_capped_and_quiet(self):
        self.emu.settings(log_max=1000)
        job = self.emu.job("octo/demo", ["linux"], "yes | head -c 100000")
        code, lines = self.run_one(self.mint()["encoded_jit_config"])
        self.assertEqual((code, len(lines)), (0, 7))
        done = self.emu.wait_job(job["id"])
        self.assertEqual((done["log_size"], done["log_truncated"]), (1000, True))

    def test_bad_configuration(self):
        for config in ("%%%", base64.b64encode(b"[]").decode(), base64.b64encode(b'{"../x": "eA=="}').decode(), ""):
            code, lines = self.run_one(config)
            self.assertEqual(code, 1, config)
            self.assertTrue(lines, config)
        self.assertEqual(self.run_one("")[1], ["Runner is not configured."])
        self.assertFalse(os.path.exists(os.path.join(os.path.dirname(self.root), "x")))

    def test_untrusted_server(self):
        p = self.start(self.mint()["encoded_jit_config"], CURL_CA_BUNDLE="/etc/ssl/certs/ca-certificates.crt")
        self.wait_line(p, "T: Runner connect error: ")
        self.assertIsNone(self.runner_state()["connected"])

    def test_run_sh(self):
        if os.getuid() == 0:
            code, lines = self.run_one(self.mint()["encoded_jit_config"], program="run.sh")
            self.assertEqual(code, 0)
            self.assertIn("Must not run interactively with sudo", lines)
        self.emu.job("octo/demo", ["linux"], "true")
        code, lines = self.run_one(self.mint("r2")["encoded_jit_config"], program="run.sh", RUNNER_ALLOW_RUNASROOT="1")
        self.assertEqual(code, 0)
        self.assertIn("T: Job build completed with result: Succeeded", lines)
        self.emu.behaviour("exit", code=7)
        code, _ = self.run_one(self.mint("r3")["encoded_jit_config"], program="run.sh", RUNNER_ALLOW_RUNASROOT="1")
        self.assertEqual(code, 7)

    def test_trace_lines(self):
        self.emu.job("octo/demo", ["linux"], "true")
        _, lines = self.run_one(self.mint()["encoded_jit_config"], ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT="true")
        self.assertTrue(any(x.startswith("[RUNNER ") for x in lines) and any(x.startswith("[WORKER ") for x in lines), lines)
        for name in os.listdir(self.root + "/_diag"):
            if name.endswith(".log"):
                with open(os.path.join(self.root, "_diag", name)) as f:
                    self.assertNotIn(self.runner_state()["canary"], f.read())

    def test_organisation_group_decides(self):
        self.emu.call("POST", "orgs", {"login": "acme", "groups": [
            {"name": "few", "visibility": "selected", "repositories": ["one"]}]})
        self.emu.repo("acme/one")
        self.emu.repo("acme/two")
        self.emu.job("acme/two", ["linux"], "true", name="not allowed")
        self.emu.job("acme/one", ["linux"], "true", name="allowed")
        config = self.mint(path="/orgs/acme/actions/runners/generate-jitconfig", runner_group_id=3)["encoded_jit_config"]
        self.assertIn("T: Running job: allowed", self.run_one(config)[1])


class Files(unittest.TestCase):
    def test_modes(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/f", "wb") as f:
                f.write(b"0123456789")
            p = subprocess.Popen(["/usr/bin/python3", HERE + "/serve_files.py", folder], stdout=subprocess.PIPE, text=True)
            try:
                url = p.stdout.readline().split()[1]

                def get(mode, path="/f"):
                    subprocess.run(["curl", "-sS", "--noproxy", "*", "-d", mode, url + "/_serve/mode"], check=True)
                    out = subprocess.run(["curl", "-s", "--noproxy", "*", "--path-as-is", "-w", "|%{http_code}", url + path],
                                         capture_output=True, text=True)
                    return out.returncode, out.stdout

                self.assertEqual(get("ok"), (0, "0123456789|200"))
                self.assertEqual(get("wrong"), (0, "0123446789|200"))
                self.assertEqual(get("short"), (0, "01234|200"))
                self.assertEqual(get("truncate")[0], 18)
                self.assertEqual(get("missing"), (0, "|404"))
                self.assertEqual(get("redirect"), (0, "|302"))
                self.assertEqual(get("ok", "/../../../etc/passwd"), (0, "|404"))
            finally:
                p.terminate()
                self.assertEqual(p.wait(10), 0)
                p.stdout.close()

    def test_pack_is_deterministic(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = pack_runner.pack(folder + "/a"), pack_runner.pack(folder + "/b")
            self.assertEqual(first, second)
            self.assertNotEqual(first, pack_runner.pack(folder + "/c", version="2.999.0"))


if __name__ == "__main__":
    unittest.main()
