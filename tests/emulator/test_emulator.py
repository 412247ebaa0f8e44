#!/usr/bin/python3
"""The emulator's own tests: GitHub's refusals, the state machine, faults."""
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
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
        found = self.rest("GET", "/orgs/acme/actions/runner-groups?visible_to_repository=two")[2]["runner_groups"]
        self.assertEqual([g["name"] for g in found], ["Default"])
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
        self.emu.fault("POST", "generate-jitconfig$", "answer", status=503, body="busy", headers={"retry-after": "7"},
                       count=2, skip=1)
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
        host, port = self.emu.url.split("//")[1].split(":")
        with socket.create_connection((host, int(port))):
            self.assertEqual(self.rest("GET", "/user", timeout=5)[0], 200)


class GhProgram(Base):
    """Debian's gh, as a person's login would be used."""

    def gh(self, *args, body=None):
        env = {"PATH": "/usr/bin:/bin", "HOME": self.folder.name, "GH_HOST": self.emu.url.split("//")[1], "NO_PROXY": "*",
               "GH_ENTERPRISE_TOKEN": self.emu.token, "SSL_CERT_FILE": self.emu.ca, "GH_PROMPT_DISABLED": "1"}
        done = subprocess.run(["gh", *args], env=env, input=body, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_api(self):
        code, out, _ = self.gh("api", "repos/octo/demo")
        self.assertEqual((code, json.loads(out)["private"]), (0, True))
        body = json.dumps({"name": "g", "runner_group_id": 1, "labels": ["a"]})
        code, out, _ = self.gh("api", MINT.lstrip("/"), "--input", "-", body=body)  # sends it chunked
        self.assertEqual((code, json.loads(out)["runner"]["name"]), (0, "g"))
        code, out, err = self.gh("api", MINT.lstrip("/"), "--input", "-", body=body)
        self.assertEqual((code, json.loads(out)["status"]), (1, "409"))
        self.assertIn("(HTTP 409)", err)

    def test_auth_status(self):
        code, out, err = self.gh("auth", "status")
        self.assertEqual(code, 0, out + err)
        self.assertIn("octocat", out + err)


if __name__ == "__main__":
    unittest.main()
