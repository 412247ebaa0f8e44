#!/usr/bin/python3
"""The emulator against GitHub's OpenAPI description: its answers by path, method and status, and what it accepts and refuses."""
import base64
import json
import os
import sys
import tempfile
import time
import unittest

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "emulator")]
import openapi  # noqa: E402
import validate_requests  # noqa: E402
from emu.client import Emulator  # noqa: E402

DESCRIPTION = None  # set by main
REPO, ORG = "/repos/octo/demo", "/orgs/acme"
GOOD = {"name": "r", "runner_group_id": 1, "labels": ["self-hosted", "linux"]}


class Contract(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="contract-test.")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.emu = Emulator.start(os.path.join(cls.folder.name, "state"), "--repo", "octo/demo")
        cls.addClassCleanup(cls.emu.stop)

    def setUp(self):
        self.emu.reset()
        self.emu.call("POST", "orgs", {"login": "acme", "groups": [
            {"name": "few", "visibility": "selected", "repositories": ["one"]}]})
        self.emu.repo("acme/one")

    def answer(self, method, path, body=None, status=200, documented=True, **more):
        """Makes the call, checks the status and the body against the description; returns the body."""
        got, headers, value = self.emu.rest(method, path, body, **more)
        self.assertEqual(got, status, "%s %s: %s" % (method, path, value))
        _, operation, _ = DESCRIPTION.operation(method, openapi.plain_path(path.split("?")[0]))
        self.assertIsNotNone(operation, "%s %s is not in the description" % (method, path))
        named, schema = DESCRIPTION.response_schema(operation, status)
        self.assertEqual(named, documented, "whether %d is documented for %s %s" % (status, method, path))
        if schema is None:
            self.assertEqual(value, "", "%s %s: %d has no body" % (method, path, status))
            return value
        self.assertEqual(headers["content-type"], "application/json; charset=utf-8")
        self.assertEqual(DESCRIPTION.errors(schema, value), [], "%s %s %d" % (method, path, status))
        if status < 300:
            self.assertEqual(DESCRIPTION.unknown(schema, value), [], "%s %s: fields GitHub does not send" % (method, path))
        return value

    def test_general_calls(self):
        self.answer("GET", "/user")
        self.answer("GET", "/rate_limit")
        self.answer("GET", REPO)
        self.emu.repo("octo/open", private=False)
        self.assertIs(self.answer("GET", "/repos/octo/open")["private"], False)
        self.emu.repo("octo/inner", private=True, visibility="internal")
        self.answer("GET", "/repos/octo/inner")
        self.answer("GET", "/repos/octo/none", status=404)
        self.answer("GET", "/user", status=401, token="wrong")
        self.answer("GET", "/api/v3" + REPO)

    def test_runners(self):
        for scope in (REPO, ORG):
            base = scope + "/actions/runners"
            made = self.answer("POST", base + "/generate-jitconfig", GOOD, 201)
            self.answer("POST", base + "/generate-jitconfig", GOOD, 409)
            self.answer("POST", base + "/generate-jitconfig", {"name": "x"}, 422)
            self.answer("POST", base + "/generate-jitconfig", {**GOOD, "name": "y", "runner_group_id": 77}, 404)
            self.answer("POST", base + "/generate-jitconfig", {**GOOD, "name": "y", "runner_group_id": 2}, 403, documented=False)
            self.answer("GET", base)
            self.answer("GET", base + "?name=r&per_page=1&page=1")
            one = "%s/%d" % (base, made["runner"]["id"])
            self.answer("GET", one)
            self.answer("DELETE", one, status=204)
            self.answer("DELETE", one, status=404, documented=False)
            self.answer("GET", one, status=404, documented=False)
            self.answer("GET", base + "/downloads")
            self.answer("GET", base + "/deprecations/2.336.0")
            self.answer("GET", base + "/deprecations/2.338.0")
            where = {"repo": "octo/demo"} if scope == REPO else {"org": "acme"}
            busy = self.emu.call("POST", "runners", {**where, "name": "theirs", "labels": ["a"], "busy": True})
            self.answer("DELETE", "%s/%d" % (base, busy["id"]), status=422)
            self.answer("GET", base, status=401, documented=False, token="wrong")

    def test_groups(self):
        base = ORG + "/actions/runner-groups"
        found = self.answer("GET", base)["runner_groups"]
        self.answer("GET", base + "?visible_to_repository=one")
        for g in found:
            self.answer("GET", "%s/%d" % (base, g["id"]))
            self.answer("GET", "%s/%d/repositories" % (base, g["id"]))
            self.answer("GET", "%s/%d/runners" % (base, g["id"]))

    def test_app_token(self):
        base = "/app/installations/7/access_tokens"
        self.answer("POST", base, {}, status=401)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.emu.call("POST", "apps", {"app_id": "Iv1.a", "installation_id": 7, "public_key": public.decode()})

        def jwt(**more):
            now = int(time.time())
            parts = [{"alg": "RS256", "typ": "JWT"}, {"iat": now - 60, "exp": now + 500, "iss": "Iv1.a", **more}]
            text = b".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts)
            signature = key.sign(text, padding.PKCS1v15(), hashes.SHA256())
            return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()

        token = self.answer("POST", base, {}, status=201, token=jwt())["token"]
        self.answer("GET", REPO, token=token)
        now = int(time.time())
        for wrong in ({"iss": "other"}, {"exp": now + 700}, {"exp": now - 1}, {"iat": now + 100}):
            self.answer("POST", base, {}, status=401, token=jwt(**wrong))
        self.answer("POST", base, {}, status=401, token="x.y.z")

    def test_runs_and_jobs(self):
        """Each status a job goes through, driven over the runner service."""
        job = self.emu.job("octo/demo", ["linux"], "true")
        run, one = "%s/actions/runs/%d" % (REPO, job["run_id"]), "%s/actions/jobs/%d" % (REPO, job["id"])

        def all_calls(status):
            self.answer("GET", REPO + "/actions/runs")
            self.assertEqual(self.answer("GET", "%s/actions/runs?status=%s" % (REPO, status))["total_count"], 1)
            self.answer("GET", run)
            self.assertEqual(self.answer("GET", run + "/jobs?filter=latest")["jobs"][0]["status"], status)
            self.answer("GET", one)

        all_calls("queued")
        self.answer("POST", REPO + "/actions/runners/generate-jitconfig", GOOD, 201)
        canary = self.emu.runners()[-1]["canary"]

        def runner(method, path, secret, body=None):
            status, _, text = self.emu.rest(method, "/_runner/" + path, body, headers={"Authorization": "Bearer " + secret})
            self.assertIn(status, (200, 204), text)
            return dict(line.split(" ", 1) for line in str(text).splitlines())

        session = runner("POST", "session", canary, b"version 2.338.0\n")["session"]
        self.answer("GET", REPO + "/actions/runners")
        self.assertEqual(runner("GET", "message", session)["id"], str(job["id"]))
        all_calls("queued")
        runner("POST", "acquire?job=%d" % job["id"], session, b"")
        all_calls("in_progress")
        self.answer("GET", REPO + "/actions/runners")
        runner("POST", "finish?job=%d" % job["id"], session, b"result Failed\nexit_code 3\n")
        all_calls("completed")
        other = self.emu.job("octo/demo", ["linux"], "true")
        self.answer("POST", "%s/actions/runs/%d/cancel" % (REPO, other["run_id"]), status=202)
        self.answer("POST", "%s/actions/runs/%d/cancel" % (REPO, other["run_id"]), status=409)

    def test_requests_are_judged_alike(self):
        """What the description's request schema allows is taken, what it forbids is refused."""
        for scope in (REPO, ORG):
            path = scope + "/actions/runners/generate-jitconfig"
            schema = DESCRIPTION.request_schema(DESCRIPTION.operation("POST", path)[1])
            bodies = [GOOD, {**GOOD, "work_folder": "_w"}, {**GOOD, "labels": ["x"] * 100}, {**GOOD, "labels": ["x"]}]
            bodies += [{k: v for k, v in GOOD.items() if k != left_out} for left_out in GOOD] + [{}]
            bodies += [{**GOOD, key: wrong} for key in [*GOOD, "work_folder"] for wrong in (None, True, 1, 1.5, "s", [], {}, [1])]
            bodies += [{**GOOD, "labels": []}, {**GOOD, "labels": ["x"] * 101}]
            verdicts = set()
            for i, body in enumerate(bodies):
                if isinstance(body.get("name"), str):
                    body = {**body, "name": "n%d" % i}
                allowed = not DESCRIPTION.errors(schema, body)
                status = self.emu.rest("POST", path, body)[0]
                self.assertEqual(status, 201 if allowed else 422, body)
                verdicts.add(allowed)
            self.assertEqual(verdicts, {True, False})

    def test_a_wrong_answer_is_found(self):
        for path, patch in ((REPO, {"private": "true"}), (REPO, {"id": None}), (REPO, {"invented": 1}),
                            (REPO + "/actions/runners", {"runners": [{"id": 1}]}), ("/rate_limit", {"rate": {}}),
                            (REPO + "/actions/runs", {"workflow_runs": [None]}), ("/user", {"created_at": "yesterday"})):
            self.emu.fault("GET", "^%s$" % path, "patch", json=patch)
            with self.assertRaises(AssertionError, msg=patch):
                self.answer("GET", path)

    def test_request_check(self):
        """validate_requests finds what is wrong, and nothing in what is right."""
        self.emu.call("DELETE", "requests")
        self.emu.rest("POST", REPO + "/actions/runners/generate-jitconfig", GOOD, headers={"Content-Type": "application/json"})
        self.emu.rest("GET", REPO + "/actions/runners?name=r&per_page=100", headers={"X-GitHub-Api-Version": "2022-11-28"})
        self.emu.rest("GET", "/api/v3" + REPO + "/actions/runs?status=queued")
        self.emu.rest("DELETE", REPO + "/actions/runners/1")
        self.assertEqual(validate_requests.check(DESCRIPTION, self.emu.requests()), [])
        for wrong, words in ((("GET", REPO + "/actions/runners/"), "no such call"), (("GET", REPO + "/actions/runners/x"), "no number"),
                             (("PUT", REPO + "/actions/runners"), "the method is not documented"),
                             (("GET", REPO + "/actions/runners?per_page=101"), "at most 100"),
                             (("GET", REPO + "/actions/runs?status=sleeping"), "query status"),
                             (("GET", REPO + "/actions/runs?colour=red"), "query colour: unknown"),
                             (("POST", REPO + "/actions/runners/generate-jitconfig", {**GOOD, "labels": []}), "body labels"),
                             (("POST", REPO + "/actions/runners/generate-jitconfig", {**GOOD, "os": "x"}), "/os: unknown field"),
                             (("POST", REPO + "/actions/runners/generate-jitconfig", b"{"), "no JSON")):
            self.emu.call("DELETE", "requests")
            self.emu.rest(*wrong, headers={"Content-Type": "application/json"})
            faults = validate_requests.check(DESCRIPTION, self.emu.requests())
            self.assertTrue(any(words in f for f in faults), (wrong, faults))
        self.emu.call("DELETE", "requests")
        self.emu.rest("GET", "/user", headers={"User-Agent": "", "Accept": "text/html", "X-GitHub-Api-Version": "1"})
        self.assertEqual(len(validate_requests.check(DESCRIPTION, self.emu.requests())), 3)


if __name__ == "__main__":
    try:
        DESCRIPTION = openapi.load()
    except openapi.Unavailable as e:
        sys.exit("contract: %s" % e)
    unittest.main()
