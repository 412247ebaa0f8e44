#!/usr/bin/python3
"""The emulator's own tests: GitHub's refusals, the state machine, faults, and the stand-in runner run on this host."""
import base64
import json
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
from emu.client import Emulator  # noqa: E402

RUNNERS = "/repos/octo/demo/actions/runners"
MINT = RUNNERS + "/generate-jitconfig"


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="emulator-test.")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.emu = Emulator.start(os.path.join(cls.folder.name, "state"), "--repo", "octo/demo")
        cls.addClassCleanup(cls.emu.stop)
        tarball = os.path.join(cls.folder.name, "runner.tar.gz")
        pack_runner.pack(tarball)
        cls.tarball = tarball

    def setUp(self):
        self.emu.reset()

    def rest(self, *args, **more):
        return self.emu.rest(*args, **more)

    def mint(self, name="r1", labels=("self-hosted", "linux"), path=MINT, **more):
        status, _, body = self.rest("POST", path, {"name": name, "runner_group_id": 1, "labels": list(labels), **more})
        self.assertEqual(status, 201, body)
        return body

    def runner_state(self, name="r1"):
        return [r for r in self.emu.runners() if r["name"] == name][-1]


class Refusals(Base):
    def test_user_agent(self):
        status, _, body = self.rest("GET", "/user", headers={"User-Agent": ""})
        self.assertEqual(status, 403)
        self.assertIn("User-Agent", body)

    def test_credentials(self):
        for path in ("/user", "/repos/octo/demo", RUNNERS):
            status, _, body = self.rest("GET", path, token="wrong")
            self.assertEqual((status, body["message"]), (401, "Bad credentials"))
        self.assertEqual(self.rest("GET", "/user", token="")[0], 401)
        self.assertEqual(self.rest("GET", "/repos/octo/demo", token="")[0], 404, "a private repository is hidden")
        self.emu.repo("octo/open", private=False)
        self.assertEqual(self.rest("GET", "/repos/octo/open", token="")[0], 200)
        self.assertEqual(self.rest("GET", "/repos/octo/open/actions/runners", token="")[0], 401)

    def test_permissions(self):
        self.emu.call("POST", "tokens", {"token": "weak", "permissions": {"metadata": "read", "actions": "read"}})
        status, headers, body = self.rest("POST", MINT, {}, token="weak")
        self.assertEqual(status, 403)
        self.assertEqual(headers["x-accepted-github-permissions"], "administration=write")
        self.assertIn("Resource not accessible", body["message"])
        self.assertEqual(self.rest("GET", "/repos/octo/demo/actions/runs", token="weak")[0], 200)
        self.emu.call("POST", "tokens", {"token": "elsewhere", "repos": ["octo/other"]})
        status, headers, _ = self.rest("GET", RUNNERS, token="elsewhere")
        self.assertEqual((status, headers["x-accepted-github-permissions"]), (404, "administration=read"))
        self.emu.call("POST", "tokens", {"token": "old", "expired": True})
        self.assertEqual(self.rest("GET", "/user", token="old")[0], 401)

    def test_versions(self):
        for version, expected in (("2022-11-28", 200), ("2026-03-10", 200), ("1999-01-01", 400)):
            self.assertEqual(self.rest("GET", "/user", headers={"X-GitHub-Api-Version": version})[0], expected)

    def test_paths(self):
        self.assertEqual(self.rest("GET", RUNNERS + "/")[0], 404)
        self.assertEqual(self.rest("GET", "/_emulator/state")[0], 404, "the admin calls have their own port")
        self.assertEqual(self.rest("GET", "/repos/octo/none")[0], 404)
        self.assertEqual(self.rest("GET", "/api/v3/repos/Octo/DEMO")[2]["full_name"], "octo/demo")
        self.assertEqual(self.rest("GET", "/orgs/nobody/actions/runners")[0], 404)

    def test_mint_validation(self):
        good = {"name": "n", "runner_group_id": 1, "labels": ["a"]}
        for change, words in (({"name": None}, "/name"), ({"runner_group_id": "1"}, "/runner_group_id"),
                              ({"labels": []}, "1 item required"), ({"labels": "a"}, "/labels"), ({"labels": [1]}, "/labels"),
                              ({"labels": ["x"] * 101}, "100 items"), ({"work_folder": 3}, "/work_folder")):
            status, _, body = self.rest("POST", MINT, {**good, **change})
            self.assertEqual(status, 422, change)
            self.assertIn(words, body["message"])
        for key in good:
            status, _, body = self.rest("POST", MINT, {k: v for k, v in good.items() if k != key})
            self.assertEqual((status, "missing required key: " + key in body["message"]), (422, True))
        self.assertEqual(self.rest("POST", MINT, b"{nonsense")[0], 400)
        self.assertEqual(self.rest("POST", MINT, b"[" * 100000)[0], 400)
        self.assertEqual(self.rest("POST", MINT, {**good, "runner_group_id": 2})[0], 403)
        self.assertEqual(self.rest("POST", MINT, {**good, "runner_group_id": 99})[0], 404)
        self.assertEqual(self.rest("POST", MINT, b"x" * (2 << 20))[0], 413)
        self.assertEqual(self.emu.runners(), [], "a refused call registers nothing")


class Registrations(Base):
    def test_mint(self):
        body = self.mint(labels=("Self-Hosted", "GPU"))
        self.assertEqual({x["name"] for x in body["runner"]["labels"]}, {"self-hosted", "gpu"})
        self.assertEqual((body["runner"]["status"], body["runner"]["busy"]), ("offline", False))
        encoded = body["encoded_jit_config"]
        self.assertTrue(3500 < len(encoded) < 6000, len(encoded))
        files = json.loads(base64.b64decode(encoded))
        self.assertEqual(set(files), {".runner", ".credentials", ".credentials_rsaparams"})
        config = json.loads(base64.b64decode(files[".runner"]))
        self.assertEqual((config["AgentName"], config["ServerUrlV2"]), ("r1", self.emu.url + "/_runner"))
        shown = self.runner_state()
        plain, once, twice = shown["needles"]
        self.assertEqual(plain, shown["canary"])
        self.assertIn(plain, base64.b64decode(files[".credentials"]).decode())
        self.assertIn(once, files[".credentials"])
        self.assertIn(twice, encoded)

    def test_names_are_unique(self):
        self.mint()
        status, _, body = self.rest("POST", MINT, {"name": "R1", "runner_group_id": 1, "labels": ["a"]})
        self.assertEqual((status, body["message"]), (409, "Already exists - A runner with the name R1 already exists."))

    def test_list_find_delete(self):
        ids = [self.mint("n%d" % i)["runner"]["id"] for i in range(5)]
        status, headers, body = self.rest("GET", RUNNERS + "?per_page=2&page=2")
        self.assertEqual((status, body["total_count"], [r["id"] for r in body["runners"]]), (200, 5, ids[2:4]))
        for rel in ("prev", "next", "last", "first"):
            self.assertIn('rel="%s"' % rel, headers["link"])
        self.assertIn("per_page=2&page=3", headers["link"])
        self.assertNotIn("link", self.rest("GET", RUNNERS)[1])
        self.assertEqual([r["id"] for r in self.rest("GET", RUNNERS + "?name=n3")[2]["runners"]], [ids[3]])
        self.assertEqual(self.rest("GET", RUNNERS + "?name=n")[2]["total_count"], 0)
        self.assertEqual(self.rest("DELETE", "%s/%d" % (RUNNERS, ids[0]))[0], 204)
        self.assertEqual(self.rest("DELETE", "%s/%d" % (RUNNERS, ids[0]))[0], 404)
        self.assertEqual(self.rest("GET", "%s/%d" % (RUNNERS, ids[1]))[2]["name"], "n1")
        self.assertEqual(self.rest("GET", RUNNERS + "/12345")[0], 404)
        self.assertEqual(self.runner_state("n0")["ended"], "deleted")

    def test_foreign(self):
        r = self.emu.call("POST", "runners", {"repo": "octo/demo", "name": "theirs", "labels": ["a"], "busy": True})
        status, _, body = self.rest("DELETE", "%s/%d" % (RUNNERS, r["id"]))
        self.assertEqual(status, 422)
        self.assertIn("currently running a job and cannot be deleted", body["message"])
        self.emu.call("POST", "runners/%d" % r["id"], {"busy": False, "status": "offline"})
        self.assertEqual(self.rest("GET", "%s/%d" % (RUNNERS, r["id"]))[2]["status"], "offline")
        self.assertEqual(self.rest("DELETE", "%s/%d" % (RUNNERS, r["id"]))[0], 204)

    def test_unconnected_expires(self):
        self.emu.settings(unconnected_expires=0.2)
        self.mint()
        self.emu.wait_runner("r1", "gone", 5)
        self.assertEqual(self.runner_state()["ended"], "expired")

    def test_organisation(self):
        org = self.emu.call("POST", "orgs", {"login": "acme", "groups": [
            {"name": "few", "visibility": "selected", "repositories": ["one"]}]})
        self.emu.repo("acme/one")
        self.emu.repo("acme/two")
        few = org["groups"][1]["id"]
        names = [g["name"] for g in self.rest("GET", "/orgs/acme/actions/runner-groups?visible_to_repository=two")[2]["runner_groups"]]
        self.assertEqual(names, ["Default"])
        self.assertEqual(self.rest("GET", "/orgs/acme/actions/runner-groups/%d/repositories" % few)[2]["total_count"], 1)
        self.mint("o1", path="/orgs/acme/actions/runners/generate-jitconfig", runner_group_id=few)
        self.assertEqual(self.rest("GET", "/orgs/acme/actions/runner-groups/%d/runners" % few)[2]["total_count"], 1)
        self.assertEqual(self.rest("GET", "/orgs/acme/actions/runner-groups/77")[0], 404)

    def test_downloads_and_deprecations(self):
        found = self.rest("GET", RUNNERS + "/downloads")[2]
        self.assertEqual({d["architecture"] for d in found}, {"x64", "arm64"})
        self.assertIsNone(self.rest("GET", RUNNERS + "/deprecations/2.338.0")[2]["runtime_deprecates_at"])
        self.assertEqual(self.rest("GET", RUNNERS + "/deprecations/1.0.0")[0], 404)
        self.assertEqual(self.rest("GET", "/api/v3" + RUNNERS + "/deprecations/2.338.0")[0], 404)


class Limits(Base):
    def test_etag(self):
        _, headers, _ = self.rest("GET", RUNNERS)
        left = int(headers["x-ratelimit-remaining"])
        again = {"If-None-Match": headers["etag"]}
        status, headers, body = self.rest("GET", RUNNERS, headers=again)
        self.assertEqual((status, body, int(headers["x-ratelimit-remaining"])), (304, "", left))
        self.mint()
        self.assertEqual(self.rest("GET", RUNNERS, headers=again)[0], 200)

    def test_quota(self):
        self.emu.settings(rate_remaining=1)
        self.assertEqual(self.rest("GET", "/user")[0], 200)
        status, headers, body = self.rest("GET", "/user")
        self.assertEqual((status, headers["x-ratelimit-remaining"]), (403, "0"))
        self.assertIn("rate limit", body["message"])
        self.assertEqual(self.rest("GET", "/rate_limit")[2]["rate"]["remaining"], 0)


class Faults(Base):
    def test_answer_and_count(self):
        self.emu.fault("POST", "generate-jitconfig$", "answer", status=503, body="busy", headers={"retry-after": "7"}, count=2, skip=1)
        got = [self.rest("POST", MINT, {"name": "n%d" % i, "runner_group_id": 1, "labels": ["a"]}) for i in range(4)]
        self.assertEqual([s for s, _, _ in got], [201, 503, 503, 201])
        self.assertEqual((got[1][1]["retry-after"], got[1][2]), ("7", "busy"))
        self.assertEqual(len(self.emu.runners()), 2)

    def test_drops(self):
        for action, registered in (("drop-before", 0), ("drop-after", 1)):
            self.emu.reset()
            self.emu.fault("POST", "generate-jitconfig$", action)
            with self.assertRaises(OSError):
                self.rest("POST", MINT, {"name": "n", "runner_group_id": 1, "labels": ["a"]})
            self.assertEqual(len(self.emu.runners()), registered)

    def test_answer_after(self):
        self.emu.fault("POST", "", "answer-after", status=502, body="<html>")
        self.assertEqual(self.rest("POST", MINT, {"name": "n", "runner_group_id": 1, "labels": ["a"]})[0], 502)
        self.assertEqual(self.rest("GET", RUNNERS + "?name=n")[2]["total_count"], 1)

    def test_patch_truncate_delay_raw(self):
        self.emu.fault("GET", "^/repos/octo/demo$", "patch", json={"private": "true"})
        self.assertEqual(self.rest("GET", "/repos/octo/demo")[2]["private"], "true")
        self.emu.fault("GET", "^/user$", "truncate", bytes=10)
        with self.assertRaises(Exception):
            self.rest("GET", "/user")
        self.emu.fault("GET", "^/user$", "delay", delay_ms=300)
        start = time.monotonic()
        self.assertEqual(self.rest("GET", "/user")[0], 200)
        self.assertGreaterEqual(time.monotonic() - start, 0.3)
        self.emu.fault("GET", "^/user$", "raw", data_b64=base64.b64encode(b"nonsense\r\n").decode())
        with self.assertRaises(Exception):
            self.rest("GET", "/user")

    def test_rate_limit_kinds(self):
        for kind, status, header in (("primary", 403, "x-ratelimit-reset"), ("secondary", 429, "retry-after"),
                                     ("secondary-no-retry-after", 403, None)):
            self.emu.fault("GET", "^/user$", "rate-limit", kind=kind, status=status)
            got, headers, body = self.rest("GET", "/user")
            self.assertEqual(got, status)
            self.assertIn("rate limit", body["message"])
            self.assertTrue(header is None or header in headers)
            self.assertEqual("retry-after" in headers, kind == "secondary")

    def test_bad_faults(self):
        for spec in ({"action": "explode"}, {"path": "("}):
            with self.assertRaises(RuntimeError):
                self.emu.call("POST", "faults", spec)

    def test_request_log(self):
        self.mint()
        entry = self.emu.requests()[-1]
        self.assertEqual((entry["method"], entry["path"], entry["status"], entry["tls"]), ("POST", MINT, 201, True))
        self.assertTrue(entry["headers"]["authorization"].startswith("sha256:"))
        self.assertNotIn(self.emu.token, json.dumps(self.emu.requests("all")))
        self.assertEqual(json.loads(entry["body"])["name"], "r1")

    def test_silent_client_stops_nobody(self):
        import socket
        host, port = self.emu.url.split("//")[1].split(":")
        with socket.create_connection((host, int(port))):
            self.assertEqual(self.rest("GET", "/user", timeout=5)[0], 200)


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
        job = self.emu.job("octo/demo", ["Linux"], "echo out; echo err >&2; env | sort; pwd; cat /proc/self/environ | tr '\\0' '\\n'",
                           name="compile it")
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
        self.assertEqual(self.rest("DELETE", "%s/%d" % (RUNNERS, self.runner_state()["id"]))[0], 422, "GET says idle, DELETE busy")
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
        with open(os.path.join(self.root, "_diag", [f for f in os.listdir(self.root + "/_diag") if f.startswith("Runner_")][0])) as f:
            self.assertNotIn(self.runner_state()["canary"], f.read())

    def test_organisation_group_decides(self):
        self.emu.call("POST", "orgs", {"login": "acme", "groups": [{"name": "few", "visibility": "selected", "repositories": ["one"]}]})
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
