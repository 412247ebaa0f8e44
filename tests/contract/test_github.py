#!/usr/bin/python3
"""boxery-github against the GitHub emulator: every verb, every way GitHub says no, and where the token goes.

usage: test_github.py BOXERY_GITHUB [slow]"""
import base64
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from github_case import (EACCES, EAGAIN, EBADMSG, EBUSY, EEXIST, EFBIG, EINVAL, EIO, ENOENT, ENOTCONN, EPERM,  # noqa: E402
                         EPIPE, ETIMEDOUT, HERE, LABELS, PROGRAM, TOKEN, GitHubCase, proto)

SLOW = False


class GitHubTest(GitHubCase):
    # --- what works

    def test_hello(self):
        self.assertEqual(self.ok("HELLO", scope="")["text"], f"{self.emu.url}, fine-grained personal token")
        self.assertEqual(self.seen(), [])

    def test_repository(self):
        reply = self.ok("REPOSITORY")
        self.assertEqual(reply["is_private"], 1)
        self.assertEqual(reply["http_status"], 200)
        self.assertGreater(reply["rate_limit"], 0)
        self.assertLess(reply["rate_remaining"], reply["rate_limit"])
        self.assertEqual(self.ok("REPOSITORY", scope="o/open")["is_private"], 0)
        self.assertEqual(self.ok("REPOSITORY", scope="O/R")["is_private"], 1)

    def test_request_headers(self):
        self.ok("REPOSITORY")
        (r,) = self.seen()
        h = r["headers"]
        self.assertTrue(r["tls"])
        self.assertEqual(h["accept"], "application/vnd.github+json")
        self.assertEqual(h["x-github-api-version"], "2022-11-28")
        self.assertRegex(h["user-agent"], r"^boxery/\d")
        self.assertEqual(h["authorization"], "sha256:" + hashlib.sha256(f"Bearer {TOKEN}".encode()).hexdigest())
        self.assertEqual(set(h) - {"host"}, {"accept", "x-github-api-version", "user-agent", "authorization"})

    def test_mint(self):
        reply, fds = self.mint()
        self.assertEqual((reply["code"], reply["is_private"], reply["http_status"], reply["may_exist"]), (0, 1, 201, 0),
                         reply["text"])
        (runner,) = self.emu.runners()
        self.assertEqual(reply["runner_id"], runner["id"])
        self.assertEqual(runner["name"], "boxery-h1-1")
        self.assertEqual(sorted(runner["labels"]), sorted(LABELS.lower().split(",")))
        with os.fdopen(fds[0], "r+b", buffering=0) as f:
            self.assertEqual(f.read().decode(), runner["encoded_jit_config"])
            with self.assertRaises(OSError):
                f.write(b"x")
        self.assertEqual([(r["method"], r["path"]) for r in self.seen()],
                         [("GET", "/repos/o/r"), ("POST", "/repos/o/r/actions/runners/generate-jitconfig")])
        post = self.seen("POST")[0]
        self.assertEqual(post["headers"]["content-type"], "application/json")
        self.assertEqual(json.loads(post["body"]), {"name": "boxery-h1-1", "runner_group_id": 1,
                                                    "labels": LABELS.split(","), "work_folder": "_work"})

    def test_runner(self):
        self.assertEqual(self.ok("RUNNER", runner_name="boxery-h1-1")["found"], 0)
        self.assertEqual(self.ok("RUNNER", runner_id=123456)["found"], 0)
        minted, fds = self.mint()
        os.close(fds[0])
        self.emu.call("POST", "runners", {"repo": "o/r", "name": "boxery-h1-10", "labels": ["x"], "busy": True})
        for fields in ({"runner_name": "boxery-h1-1"}, {"runner_id": minted["runner_id"]}):
            r = self.ok("RUNNER", **fields)
            self.assertEqual((r["found"], r["runner_id"], r["online"], r["busy"]), (1, minted["runner_id"], 0, 0))
        r = self.ok("RUNNER", runner_name="boxery-h1-10")
        self.assertEqual((r["found"], r["online"], r["busy"]), (1, 1, 1))

    def test_delete(self):
        minted, fds = self.mint()
        os.close(fds[0])
        self.assertEqual(self.ok("DELETE", runner_id=minted["runner_id"])["http_status"], 204)
        self.assertEqual(self.emu.runners()[0]["ended"], "deleted")
        self.assertEqual(self.ok("DELETE", runner_id=minted["runner_id"])["http_status"], 404)
        starts = [r["start"] for r in self.seen() if r["method"] in ("POST", "DELETE")]
        self.assertEqual(len(starts), 3)
        for a, b in zip(starts, starts[1:]):
            self.assertGreaterEqual(b - a, 0.99)  # GitHub asks for a second between writes

    def test_delete_busy(self):
        busy = self.emu.call("POST", "runners", {"repo": "o/r", "name": "other", "labels": ["x"], "busy": True})
        self.no(EBUSY, "busy", "running a job", "DELETE", runner_id=busy["id"])
        self.assertIsNone([r for r in self.emu.runners() if r["id"] == busy["id"]][0]["ended"])

    def test_gone_only_where_it_can_be_seen(self):
        """A 404 below a repository that the token does not see says nothing about the runner."""
        for verb in ("DELETE", "RUNNER"):
            self.emu.fault("GET", r"/repos/o/r$", "answer", status=404, body={"message": "Not Found"})
            self.no(ENOENT, "absent", "repository o/r", verb, runner_id=99)
        self.emu.fault("GET", r"/repos/o/r$", "answer", status=503, body="x")
        self.no(EIO, "server", "503", "DELETE", runner_id=99)

    def test_jobs(self):
        a = self.emu.job("o/r", ["self-hosted", "linux"], "true", name="first", workflow_name="ci")
        self.emu.job("o/r", ["gpu"], "true", name="second ✓" + "é" * 300, run_id=a["run_id"])
        done = self.emu.job("o/r", ["x"], "true")
        self.emu.cancel(done["id"])
        out = self.document("JOBS")
        self.assertIs(out["truncated"], False)
        jobs = {j["id"]: j for j in out["jobs"]}
        self.assertEqual(len(jobs), 2)
        self.assertEqual(set(jobs[a["id"]]), {"id", "run_id", "name", "workflow_name", "status", "conclusion", "labels",
                                              "runner_id", "runner_name", "created_at", "started_at", "completed_at"})
        self.assertEqual(jobs[a["id"]]["labels"], ["self-hosted", "linux"])
        self.assertEqual(jobs[a["id"]]["status"], "queued")
        self.assertIsNone(jobs[a["id"]]["runner_id"])
        name = [j for j in jobs.values() if j["id"] != a["id"]][0]["name"]
        self.assertTrue(name.startswith("second ✓éé"))
        self.assertLessEqual(len(name.encode()), 200)

    def test_jobs_cost_nothing_when_nothing_changes(self):
        self.emu.job("o/r", ["x"], "true")
        first = self.document("JOBS")
        rate = self.emu.state()["rate"]
        self.emu.call("DELETE", "requests")
        self.assertEqual(self.document("JOBS"), first)
        self.assertEqual({r["status"] for r in self.seen()}, {304})
        self.assertEqual(self.emu.state()["rate"], rate)
        self.emu.job("o/r", ["y"], "true")
        self.assertEqual(len(self.document("JOBS")["jobs"]), 2)

    def test_jobs_many_pages(self):
        for _ in range(230):
            self.emu.job("o/r", ["x"], "true")
        out = self.document("JOBS")
        self.assertEqual(len({j["id"] for j in out["jobs"]}), 230)
        self.assertIs(out["truncated"], False)
        self.assertEqual(len(self.seen("GET", "/actions/runs$")), 4)  # three pages queued, one in progress

    def test_jobs_many_in_a_run(self):
        run = self.emu.job("o/r", ["x"], "true")["run_id"]
        for _ in range(349):
            self.emu.job("o/r", ["x"], "true", run_id=run)
        out = self.document("JOBS")
        self.assertEqual(len(out["jobs"]), 300)
        self.assertIs(out["truncated"], True)

    def test_jobs_odd_answers(self):
        job = self.emu.job("o/r", ["x"], "true")
        self.emu.fault("GET", "status=queued", "patch", json={"total_count": "2,500+"})
        self.assertEqual(len(self.document("JOBS")["jobs"]), 1)
        # a run that is deleted between the two calls
        self.emu.fault("GET", r"/jobs\?", "answer", status=404, body={"message": "Not Found"})
        self.assertEqual(self.document("JOBS")["jobs"], [])
        # jobs that are not what they should be are left out, the others stay
        odd = [None, 7, {}, {"id": 5}, {"id": -1, "run_id": 1, "labels": [], "status": "queued"},
               {"id": 8, "run_id": 1, "labels": [3], "status": "queued"}, {"id": 9, "run_id": 1, "status": "queued"},
               {"id": 10, "run_id": 1, "labels": ["x"], "status": "queued"}]
        self.emu.fault("GET", r"/jobs\?", "patch", status=200, json={"jobs": odd}, headers={"ETag": 'W/"odd"'})
        self.assertEqual([j["id"] for j in self.document("JOBS")["jobs"]], [10])
        self.emu.fault("GET", "status=queued", "patch", status=200, json={"workflow_runs": [{"id": "x"}]})
        self.no(EBADMSG, "server", "without an id", "JOBS")
        self.emu.fault("GET", "status=queued", "patch", status=200, json={"workflow_runs": {}})
        self.no(EBADMSG, "server", "no list of workflow runs", "JOBS")
        self.assertEqual(self.document("JOBS")["jobs"][0]["id"], job["id"])

    def test_job_of(self):
        self.assertEqual(self.document("JOB_OF", runner_name="boxery-h1-1")["jobs"], [])
        job = self.emu.job("o/r", ["x"], "true")
        self.emu.job("o/r", ["x"], "true")
        self.emu.fault("GET", rf"/runs/{job['run_id']}/jobs", "patch", count=-1, json={"jobs": [
            {"id": job["id"], "run_id": job["run_id"], "status": "completed", "conclusion": "success", "labels": ["x"],
             "runner_id": 4, "runner_name": "boxery-h1-1", "name": "n"}]})
        (found,) = self.document("JOB_OF", runner_name="boxery-h1-1")["jobs"]
        self.assertEqual((found["id"], found["conclusion"], found["runner_id"]), (job["id"], "success", 4))
        self.assertEqual(self.document("JOB_OF", runner_name="boxery-h1-2")["jobs"], [])

    def test_runners(self):
        """The list of runners: whole only when nothing was left out, unchanged ones cost nothing."""
        self.assertEqual(self.document("RUNNERS"), {"runners": [], "truncated": False})
        minted, fds = self.mint()
        os.close(fds[0])
        listed = self.document("RUNNERS")
        self.assertEqual(listed, {"runners": [{"id": minted["runner_id"], "name": "boxery-h1-1", "online": False, "busy": False}],
                                  "truncated": False})
        reply, fds = self.call("RUNNERS")
        os.close(fds[0])
        self.assertEqual((reply["calls"], reply["calls_free"]), (0, 1))
        row = {"id": 7, "name": "x", "status": "online", "busy": True}
        odd = [None, {}, dict(row, name=5), dict(row, id="7"), {"id": 8, "name": "y", "status": "online"}, row]
        self.emu.fault("GET", r"/runners\?", "patch", status=200, json={"runners": odd}, headers={"ETag": 'W/"odd"'})
        self.assertEqual(self.document("RUNNERS"), {"runners": [{"id": 7, "name": "x", "online": True, "busy": True}],
                                                    "truncated": True})
        self.emu.fault("GET", r"/runners\?", "patch", status=200, json={"runners": {}}, headers={"ETag": 'W/"none"'})
        self.no(EBADMSG, "server", "no list of runners", "RUNNERS")
        self.assertEqual(self.document("RUNNERS"), listed)
        self.emu.fault("GET", r"/runners\?", "patch", status=200, json={"runners": [row]}, headers={
            "ETag": 'W/"long"', "Link": '<https://api.github.com/x?page=2>; rel="next"'})
        self.assertTrue(self.document("RUNNERS")["truncated"])

    def test_deprecation(self):
        self.emu.settings(deprecations={"2.338.0": {"runtime_deprecates_at": None}, "2.334.0": {
            "registration_deprecates_at": "2026-07-01T00:00:00Z", "runtime_deprecates_at": "2026-08-10T00:00:00Z"}})
        self.assertEqual(self.ok("DEPRECATION", text="2.338.0")["text"], "")
        self.assertEqual(self.ok("DEPRECATION", text="2.334.0")["text"],
                         "registers until 2026-07-01T00:00:00Z, runs until 2026-08-10T00:00:00Z")
        self.no(ENOENT, "absent", "runner version 9.9.9", "DEPRECATION", text="9.9.9")
        for bad in ("", "../x", "2.3/4", "v2"):
            self.no(EINVAL, "invalid", "looks like", "DEPRECATION", text=bad)

    def test_requests_fit_the_description(self):
        """Every call, once, held against GitHub's own OpenAPI description."""
        self.emu.job("o/r", LABELS.split(","), "true")
        minted, fds = self.mint()
        os.close(fds[0])
        self.ok("REPOSITORY")
        self.ok("RUNNER", runner_id=minted["runner_id"])
        self.ok("RUNNER", runner_name="boxery-h1-1")
        self.document("RUNNERS")
        self.document("JOBS")
        self.document("JOB_OF", runner_name="boxery-h1-1")
        self.ok("DEPRECATION", text="2.338.0")
        self.ok("DELETE", runner_id=minted["runner_id"])
        done = subprocess.run(["/usr/bin/python3", os.path.join(HERE, "validate_requests.py"), self.emu.admin],
                              capture_output=True, text=True)
        if done.returncode == 2:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # --- the repository has to be private

    def test_public_repository(self):
        reply = self.no(EACCES, "public", ["o/open", "not private"], "MINT", scope="o/open", runner_name="n", labels="x")
        self.assertEqual(reply["is_private"], 0)
        self.assertEqual(self.seen("POST"), [])

    def test_only_a_boolean_true_is_private(self):
        for value in ("true", 1, None, "private", [True], {}):
            self.emu.repo("o/r", private=True, override={"private": value})
            self.assertEqual(self.ok("REPOSITORY")["is_private"], 0)
            self.no_mint(EACCES, "public", "not private", 0)
        self.emu.repo("o/r", private=True, override={}, drop=["private"])
        self.no_mint(EACCES, "public", "not private", 0)
        # Nor one that is said to be public all the same, or to be something that nobody knows.
        for value in ("public", "Private", "restricted", None, 1):
            self.emu.repo("o/r", private=True, override={"visibility": value}, drop=[])
            self.assertEqual(self.ok("REPOSITORY")["is_private"], 0)
            self.no_mint(EACCES, "public", "not private", 0)

    def test_internal_is_private(self):
        """As GitHub has it: to an enterprise, whose members are known."""
        self.emu.repo("o/r", private=True, override={"visibility": "internal"}, drop=[])
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)
        os.close(self.mint()[1][0])
        self.emu.repo("o/r", private=True, override={}, drop=["visibility"])  # older servers do not say it
        os.close(self.mint("another")[1][0])
        self.assertEqual(len(self.seen("POST")), 2)

    def test_answer_about_another_repository(self):
        self.emu.repo("o/r", private=True, override={"full_name": "o/renamed"})
        self.no(EBADMSG, "server", "another repository", "REPOSITORY")
        self.no_mint(EBADMSG, "server", "another repository", 0)
        self.assertEqual(self.seen("POST"), [])

    def test_no_mint_when_visibility_is_not_known(self):
        for fault, code, name in (("drop-before", ENOTCONN, "network"), ("answer", EIO, "server")):
            self.emu.fault("GET", r"/repos/o/r$", fault, status=500, count=-1)
            self.no_mint(code, name, "", 0)
            self.emu.clear_faults()
        self.assertEqual(self.seen("POST"), [])

    # --- the ways GitHub says no

    def test_credential(self):
        self.write_env(GITHUB_TOKEN="ghp_expired0000000000000000000000000000000")
        self.emu.call("POST", "tokens", {"token": "ghp_expired0000000000000000000000000000000", "expired": True})
        self.no(EACCES, "credential", ["401", "Bad credentials", "runners.env"], "REPOSITORY")
        self.no_mint(EACCES, "credential", "401", 0)
        self.write_env()  # a new token counts at once
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)

    def test_permission(self):
        self.emu.call("POST", "tokens", {"token": "github_pat_reader", "repos": ["o/r"],
                                         "permissions": {"metadata": "read", "actions": "read", "administration": "read"}})
        self.write_env(GITHUB_TOKEN="github_pat_reader")
        self.no_mint(EPERM, "permission", ["403", "administration=write"], 0)
        self.no(EPERM, "permission", "administration=write", "DELETE", runner_id=5)

    def test_absent(self):
        self.no(ENOENT, "absent", ["repository o/none", "cannot see it"], "REPOSITORY", scope="o/none")
        reply = self.no(ENOENT, "absent", "no runner group named 'none'", "MINT", scope="acme", group="none",
                        runner_name="n", labels="x")
        self.assertEqual(reply["may_exist"], 0)
        self.no(ENOENT, "absent", "organization nobody", "MINT", scope="nobody", group="few", runner_name="n", labels="x")

    def test_conflict(self):
        os.close(self.mint()[1][0])
        self.no_mint(EEXIST, "conflict", ["409", "already exists"], 1)
        self.assertEqual(len(self.seen("POST")), 2)

    def test_invalid(self):
        self.emu.fault("POST", "generate-jitconfig", "answer", status=422, body={"message": "Validation Failed"})
        self.no_mint(EINVAL, "invalid", ["422", "Validation Failed"], 0)
        for status in (400, 410, 413, 418):
            self.emu.fault("GET", r"/repos/o/r$", "answer", status=status, body="?")
            self.no(EINVAL, "invalid", str(status), "REPOSITORY")

    def test_limits(self):
        for status in (403, 429):
            self.emu.fault("GET", "", "rate-limit", kind="secondary", status=status, retry_after=17)
            self.assertEqual(self.no(EAGAIN, "limit", "17 s", "REPOSITORY")["retry_after_ms"], 17000)
            self.emu.fault("GET", "", "rate-limit", kind="secondary-no-retry-after", status=status)
            self.assertEqual(self.no(EAGAIN, "limit", "rate limit", "REPOSITORY")["retry_after_ms"], 60000)
            self.emu.settings(rate_reset_in=100)
            self.emu.fault("GET", "", "rate-limit", kind="primary", status=status)
            reply = self.no(EAGAIN, "limit", "rate limit", "REPOSITORY")
            self.assertTrue(90000 <= reply["retry_after_ms"] <= 103000, reply)
            self.assertEqual(reply["rate_remaining"], 0)
        self.emu.fault("GET", "", "answer", status=429, body="slow down")
        self.no(EAGAIN, "limit", "429", "REPOSITORY")
        self.emu.fault("POST", "", "rate-limit", kind="secondary", status=403)
        self.no_mint(EAGAIN, "limit", "60 s", 0)
        # a 403 with some quota left and no words of a limit is a permission
        self.emu.fault("GET", "", "answer", status=403, headers={"x-ratelimit-remaining": "12"}, body={"message": "no"})
        self.no(EPERM, "permission", "403", "REPOSITORY")
        # odd values do not become odd waits
        for value, ms in (("99999999999999999999", 60000), ("-5", 60000), ("soon", 60000), ("0", 1000),
                          ("999999999", 24 * 3600 * 1000)):
            self.emu.fault("GET", "", "answer", status=429, headers={"retry-after": value}, body="")
            self.assertEqual(self.no(EAGAIN, "limit", "429", "REPOSITORY")["retry_after_ms"], ms, value)

    def test_server_failures(self):
        for status in (500, 502, 503):
            self.emu.fault("POST", "", "answer", status=status, body="<html>bad gateway</html>")
            self.no_mint(EIO, "server", str(status), 1)
        self.assertEqual(self.emu.runners(), [])
        self.emu.fault("POST", "", "answer", status=503, headers={"retry-after": "9"})
        self.assertEqual(self.no_mint(EIO, "server", "503", 1)["retry_after_ms"], 9000)
        self.emu.fault("POST", "", "answer", status=202, body={})
        self.no_mint(EIO, "server", "202", 1)

    def test_registered_all_the_same(self):
        """GitHub acted, the answer got lost: told, and not tried again."""
        n = 0
        for action, fields in (("answer-after", {"status": 502}), ("drop-after", {}), ("truncate", {"bytes": 100}),
                               ("patch", {"json": {"encoded_jit_config": "!" * 400}}),
                               ("patch", {"json": {"encoded_jit_config": None}}),
                               ("patch", {"json": {"encoded_jit_config": "A" * 100000}}),
                               ("patch", {"json": {"runner": {"id": 5, "name": "somebody-else"}}}),
                               ("patch", {"json": {"runner": None}}),
                               ("answer-after", {"status": 201, "body": "[" * 100}),
                               ("answer-after", {"status": 201, "body": "x" * 10_000_000})):
            with self.subTest(action=action, **{k: str(v)[:40] for k, v in fields.items()}):
                self.emu.fault("POST", "generate-jitconfig", action, **fields)
                name = f"boxery-h1-{n}"
                reply, fds = self.call("MINT", runner_name=name, labels="x")
                n += 1
                self.assertEqual((reply["may_exist"], fds), (1, []), reply)
                self.assertIn(reply["fault"], ("server", "network"))
                self.assertEqual(len(self.seen("POST")), n)  # exactly one request each
                self.assertEqual(self.ok("RUNNER", runner_name=name)["found"], 1)
                config = [r for r in self.emu.runners() if r["name"] == name][0]["encoded_jit_config"]
                self.assertNotIn(config[:20], reply["text"])

    def test_connection_faults(self):
        self.emu.fault("POST", "", "drop-before")
        self.no_mint(ENOTCONN, "network", "cannot be reached", 1)  # sent, so it may have been acted upon
        self.emu.fault("GET", "", "drop-before")
        self.no(ENOTCONN, "network", "cannot be reached", "REPOSITORY")
        self.emu.fault("GET", "", "truncate", bytes=20)
        self.emu.repo("o/r", visibility="internal")  # else there is nothing to cut: not modified
        self.no(EPIPE, "server", "cut off", "REPOSITORY")
        for raw in (b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: zz\r\n\r\n{}", b"HTTP/9.9 200\r\n\r\n", b"\0" * 3000,
                    b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200000):
            self.emu.fault("GET", "", "raw", data_b64=base64.b64encode(raw).decode())
            reply, _ = self.call("REPOSITORY")
            self.assertIn(reply["fault"], ("network", "server"))
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)

    def test_bodies(self):
        for body, words in (("x" * 10_000_000, "larger than"), ("[" * 50000, "deeper"), ('{"a":' * 40 + "1" + "}" * 40, "deeper"),
                            ("{\"full_name\":\"o/r\",\"private\":true,\"private\":true}", "not JSON"), ("", "empty"),
                            ("[]", "not an object"), ("hello", "not JSON"), ('{"private":tr', "not JSON"), ("null", "not JSON"),
                            ("{\"full_name\":\"o/r\",\"private\":true}trailing", "not JSON"), ("\0\0", "not JSON")):
            with self.subTest(body=body[:40]):
                self.emu.fault("GET", r"/repos/o/r$", "answer", status=200, body=body)
                code = EFBIG if words == "larger than" else EBADMSG
                self.no(code, "server", words, "REPOSITORY")
        odd = [{"busy": "no"}, {"busy": None}, {"id": "5"}, {"status": 4}]
        os.close(self.mint()[1][0])
        number = self.emu.runners()[0]["id"]
        for patch in odd:  # what cannot be told must not look like "not busy"
            self.emu.fault("GET", rf"runners/{number}$", "patch", json=patch)
            self.no(EBADMSG, "server", "without id, busy or status", "RUNNER", runner_id=number)

    def test_unfiltered_list(self):
        for i in range(120):
            self.emu.call("POST", "runners", {"repo": "o/r", "name": f"foreign-{i}", "labels": ["x"]})
        self.assertEqual(self.ok("RUNNER", runner_name="foreign-119")["found"], 1)
        page = [{"id": i + 1, "name": f"n{i}", "status": "online", "busy": False} for i in range(100)]
        self.emu.fault("GET", r"runners\?name", "patch", json={"runners": page},
                       headers={"Link": f"<{self.emu.url}/x?page=2>; rel=\"next\""})
        self.no(EBADMSG, "server", "not filtered", "RUNNER", runner_name="mine")

    def test_redirects_are_not_followed(self):
        target = self.other.url + "/repos/o/r"
        for status in (301, 302, 303, 307, 308):
            self.emu.fault("GET", r"/repos/o/r$", "answer", status=status, headers={"Location": target}, body={"message": "Moved"})
            self.no(EINVAL, "invalid", "renamed" if status in (301, 308) else "redirect", "REPOSITORY")
        self.emu.fault("POST", "", "answer", status=307, headers={"Location": target})
        self.no_mint(EINVAL, "invalid", "redirect", 0)
        self.emu.fault("DELETE", "", "answer", status=307, headers={"Location": target})
        self.no(EINVAL, "invalid", "redirect", "DELETE", runner_id=5)
        # tearDown: nothing has arrived at the other one

    # --- runners.env

    def test_env_refused(self):
        path = self.write_env(mode=0o644)
        self.no(EACCES, "credential", ["mode 0644", f"chmod 600 {path}"], "REPOSITORY")
        self.no(EACCES, "credential", "0644", "HELLO", scope="")
        for mode in (0o640, 0o604, 0o602, 0o660):
            self.write_env(mode=mode)
            self.no(EACCES, "credential", f"{mode:04o}", "REPOSITORY")
        os.unlink(path)
        self.no(ENOENT, "credential", [path, "GITHUB_TOKEN="], "REPOSITORY")
        for text, words in ((f"# c\n\nGITHUB_TOKEN={TOKEN}\nGITHUB_TOKN=x\n", ":4: unknown setting GITHUB_TOKN"),
                            (f"GITHUB_TOKEN={TOKEN}\nGITHUB_TOKEN={TOKEN}\n", ":2: "), ("GITHUB_TOKEN=\n", ":1: GITHUB_TOKEN is empty"),
                            (f"GITHUB_TOKEN=\"{TOKEN}\"\n", ":1: GITHUB_TOKEN has a character"),
                            (f"GITHUB_TOKEN={TOKEN} x\n", ":1: "), ("GITHUB_TOKEN=" + "a" * 3000 + "\n", ":1: "),
                            ("BOXERY_GITHUB_URL=https://x\n", "GITHUB_TOKEN is missing"), ("nonsense\n", ":1: "),
                            (f"GITHUB_TOKEN={TOKEN}\nBOXERY_GITHUB_CA_FILE=ca.pem\n", ":2: BOXERY_GITHUB_CA_FILE must be an absolute"),
                            (f"GITHUB_TOKEN={TOKEN}\nBOXERY_GITHUB_URL=http://example.com\n", ":2: BOXERY_GITHUB_URL: http:// would send"),
                            (f"GITHUB_TOKEN={TOKEN}\nBOXERY_GITHUB_URL=ftp://x\n", ":2: BOXERY_GITHUB_URL: the URL must begin")):
            self.write_env(text=text)
            self.no(EBADMSG, "credential", words, "REPOSITORY")
        self.assertEqual(self.seen(), [])

    def test_wrong_ca(self):
        self.write_env(BOXERY_GITHUB_CA_FILE=self.other.ca)
        self.no_mint(ENOTCONN, "network", "certificate", 0)
        self.write_env(BOXERY_GITHUB_CA_FILE=None)
        self.no(ENOTCONN, "network", "certificate", "REPOSITORY")
        self.write_env(BOXERY_GITHUB_CA_FILE=f"{self.dir}/none.pem")
        self.no(ENOTCONN, "network", "", "REPOSITORY")
        self.assertEqual(self.seen(), [])

    def test_wrong_name(self):
        port = self.emu.url.rsplit(":", 1)[1]
        self.write_env(BOXERY_GITHUB_URL=f"https://127.0.0.2:{port}")
        self.no(ENOTCONN, "network", "", "REPOSITORY")
        self.assertEqual(self.seen(), [])

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.write_env(BOXERY_GITHUB_URL=f"https://127.0.0.1:{port}")
        self.no_mint(ENOTCONN, "network", "cannot be reached", 0)

    def test_path_prefix_and_plain_loopback(self):
        self.write_env(BOXERY_GITHUB_URL=self.emu.url + "/api/v3/")
        self.assertEqual(self.mint("boxery-a")[0]["code"], 0)
        self.assertTrue(all(r["path"].startswith("/api/v3/repos/") for r in self.seen()), self.seen())
        self.assertEqual(self.ok("HELLO", scope="")["text"].split(",")[0], self.emu.url + "/api/v3")
        self.emu.call("DELETE", "requests")
        self.write_env(BOXERY_GITHUB_URL=f"http://127.0.0.1:{self.plain}", BOXERY_GITHUB_CA_FILE=None)
        self.assertEqual(self.mint("boxery-b")[0]["code"], 0)
        self.assertEqual([r["tls"] for r in self.seen()], [False, False])

    def test_environment_does_not_matter(self):
        port = self.other.admin.rsplit(":", 1)[1]
        proxy = f"http://127.0.0.1:{port}"
        self.gh = self.start(http_proxy=proxy, https_proxy=proxy, HTTPS_PROXY=proxy, ALL_PROXY=proxy, all_proxy=proxy,
                             SSL_CERT_FILE=self.other.ca, CURL_CA_BUNDLE=self.other.ca, GITHUB_TOKEN="ghp_wrong", GH_TOKEN="x",
                             OPENSSL_CONF="/nonexistent")
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)

    # --- what is asked of it, and by whom

    def test_bad_requests(self):
        for scope in ("", "o", "o/", "/r", "o/r/x", "o/..", "o/r?x", "o r/x", "-/../x", "o/r#", "%2e/x", "a" * 45 + "/x"):
            self.no(EINVAL, "invalid", "", "REPOSITORY", scope=scope)
        for name in ("", "a b", "a/b", "a?b", "a&b=c", "é", "a%20"):
            self.no(EINVAL, "invalid", "", "MINT", runner_name=name, labels="x")
            self.no(EINVAL, "invalid", "", "RUNNER", runner_name=name)
        for labels in ("", ",", "a,", ",a", "a,,b", "a b", "x" * 300, ",".join("abcdefghij"[i % 10] for i in range(101))):
            self.no(EINVAL, "invalid", "label", "MINT", runner_name="n", labels=labels)
        self.no(EINVAL, "invalid", "", "DELETE", runner_id=0)
        self.no(EINVAL, "invalid", "", "DELETE", runner_id=1 << 63)
        self.no(EBADMSG, "invalid", "no end", "REPOSITORY", scope="o/" + "r" * 200)
        self.assertEqual(self.seen(), [])

    def test_ends_with_its_client(self):
        self.gh.sock.close()
        self.assertEqual(self.gh.child.wait(5), 0)

    def test_malformed_messages(self):
        good = proto.GITHUB_REQUEST.pack(kind=1, seq=1)
        for data in (good[:-8], good + b"\0", b"x", b"\0" * len(good), proto.GITHUB_REPLY.pack(seq=1),
                     proto.GITHUB_REQUEST.pack(kind=200, seq=1)):
            gh = self.start()
            gh.sock.send(data)
            self.assertNotEqual(gh.child.wait(5), 0)
            self.assertEqual(gh.sock.recv(8192), b"")
            self.assertIn("boxery-github: ", gh.child.text())

    def test_by_hand(self):
        for args in ([], ["--help"]):
            child = proto.Child(PROGRAM, args=args)
            self.addCleanup(child.close)
            self.assertEqual(child.wait(), 2, child.text())

    # --- what can be seen of it

    def test_nothing_to_see(self):
        reply, fds = self.mint()
        self.assertEqual(reply["code"], 0)
        with os.fdopen(fds[0], "rb") as f:
            jit = f.read()
        self.emu.fault("GET", "", "answer", status=403, body={"message": f"your token {TOKEN} and ghs_other.token-x may not"})
        reply = self.no(EPERM, "permission", "***", "REPOSITORY")
        self.assertNotIn("ghs_other", reply["text"])
        child = self.gh.child
        for where in ("cmdline", "environ"):
            self.assertNotIn(TOKEN.encode(), child.proc(where))
        self.assertEqual(child.proc_status("NoNewPrivs"), "1")
        self.assertTrue(int(child.proc_status("SigIgn"), 16) & 1 << 12)  # SIGPIPE
        time.sleep(0.2)
        # Between requests neither is in its memory, not even in memory that was given back.
        for needle in (TOKEN.encode()[8:], jit[500:540], base64.b64decode(jit)[500:540]):
            self.assertIsNone(child.memory_has(needle), needle)
        self.assertTrue(child.memory_has(b"boxery-github"))
        self.assertEqual(child.text(), "")
        links = [os.readlink(f"/proc/{child.pid}/fd/{n}") for n in os.listdir(f"/proc/{child.pid}/fd")]
        self.assertFalse([x for x in links if "memfd" in x or "runners.env" in x], links)

    def test_memory_search_finds_what_is_there(self):
        self.emu.fault("GET", "", "delay", delay_ms=3000)
        self.gh.sock.send(proto.GITHUB_REQUEST.pack(kind=2, seq=1, scope="o/r"))
        proto.until(lambda: self.gh.child.memory_has(TOKEN.encode()[8:]), timeout=2.9)
        self.gh.sock.settimeout(20)
        self.assertEqual(proto.GITHUB_REPLY.unpack(self.gh.sock.recv(8192))["code"], 0)

    # --- slow ones

    def test_slow_answer(self):
        if not SLOW:
            self.skipTest("takes the whole time-out of a request; run with 'slow'")
        self.emu.fault("GET", r"/repos/o/r$", "delay", delay_ms=33000)
        start = time.monotonic()
        self.no(ETIMEDOUT, "network", "did not answer in time", "REPOSITORY")
        self.assertTrue(29 < time.monotonic() - start < 32)
        self.emu.fault("GET", r"/repos/o/r$", "drip", delay_ms=50)
        self.no(ETIMEDOUT, "server", "did not answer in time", "REPOSITORY")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "slow":
        SLOW = True
        sys.argv[1:] = ["GitHubTest.test_slow_answer"]
    unittest.main(verbosity=2)
