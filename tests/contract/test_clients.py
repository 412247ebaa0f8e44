#!/usr/bin/python3
"""GitHub's own clients agree with the emulator: Debian's gh and Octokit (npm) make every call that this project uses, and read the
same out of the answer as is in it. Octokit builds paths from GitHub's route table, so a path that is wrong here would not be found."""
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "emulator")]
import openapi  # noqa: E402
from emu.client import Emulator  # noqa: E402

PACKAGE = "@octokit/rest@20.1.1"
SCRIPT = r"""
const { Octokit } = require("@octokit/rest");
const [, , baseUrl, auth, text] = process.argv;
const octokit = new Octokit({ auth, baseUrl, log: { debug() {}, info() {}, warn() {}, error() {} } });
(async () => {
  const out = [];
  for (const [group, method, parameters] of JSON.parse(text)) {
    try {
      const r = group ? await octokit.rest[group][method](parameters) : await octokit.request(method, parameters);
      out.push({ status: r.status, data: r.data === undefined ? null : r.data, url: r.url });
    } catch (e) {
      out.push({ status: e.status || 0, data: null, url: String(e) });
    }
  }
  console.log(JSON.stringify(out));
})();
"""
R, O = {"owner": "octo", "repo": "demo"}, {"org": "acme"}
JIT = {"runner_group_id": 1, "labels": ["self-hosted", "linux"], "work_folder": "_work"}


def octokit_folder():
    folder = os.path.join(openapi.cache_dir(), "octokit-rest")
    os.makedirs(folder, exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, "node_modules", "@octokit", "rest")):
            done = openapi._npm("install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE, cwd=folder)
            if done.returncode != 0:
                raise openapi.Unavailable("npm could not install %s: %s" % (PACKAGE, done.stderr[:300]))
    return folder


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="clients-test.")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.emu = Emulator.start(os.path.join(cls.folder.name, "state"), "--repo", "octo/demo")
        cls.addClassCleanup(cls.emu.stop)

    def setUp(self):
        self.emu.reset()
        self.emu.call("POST", "orgs", {"login": "acme", "groups": [{"name": "few", "visibility": "selected", "repositories": ["one"]}]})
        self.emu.repo("acme/one")
        self.job = self.emu.job("octo/demo", ["linux"], "true")
        self.repo_runner = self.emu.call("POST", "runners", {"repo": "octo/demo", "name": "r", "labels": ["a"]})["id"]
        self.org_runner = self.emu.call("POST", "runners", {"org": "acme", "name": "o", "labels": ["a"]})["id"]

    def octokit(self, calls):
        script = os.path.join(octokit_folder(), "boxery-clients.cjs")
        with open(script, "w") as f:
            f.write(SCRIPT)
        done = subprocess.run(["node", script, self.emu.url, self.emu.token, json.dumps(calls)], text=True, capture_output=True, timeout=120,
                              env={"PATH": os.environ["PATH"], "HOME": self.folder.name, "NODE_EXTRA_CA_CERTS": self.emu.ca})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def reads(self):
        """(path, Octokit's group, method, parameters) of every call that only reads."""
        group = {**O, "runner_group_id": 3}
        return [("/repos/octo/demo", "repos", "get", R),
                ("/repos/octo/demo/actions/runners?name=r&per_page=100", "actions", "listSelfHostedRunnersForRepo",
                 {**R, "name": "r", "per_page": 100}),
                ("/repos/octo/demo/actions/runners/%d" % self.repo_runner, "actions", "getSelfHostedRunnerForRepo",
                 {**R, "runner_id": self.repo_runner}),
                ("/orgs/acme/actions/runners?name=o&per_page=100", "actions", "listSelfHostedRunnersForOrg", {**O, "name": "o", "per_page": 100}),
                ("/orgs/acme/actions/runners/%d" % self.org_runner, "actions", "getSelfHostedRunnerForOrg",
                 {**O, "runner_id": self.org_runner}),
                ("/orgs/acme/actions/runner-groups?per_page=100&page=1", None, "GET /orgs/{org}/actions/runner-groups",
                 {**O, "per_page": 100, "page": 1}),
                ("/orgs/acme/actions/runner-groups/3/repositories?per_page=100&page=1", None,
                 "GET /orgs/{org}/actions/runner-groups/{runner_group_id}/repositories", {**group, "per_page": 100, "page": 1}),
                ("/repos/octo/demo/actions/runs?status=queued&per_page=100&page=1", "actions", "listWorkflowRunsForRepo",
                 {**R, "status": "queued", "per_page": 100, "page": 1}),
                ("/repos/octo/demo/actions/runs/%d/jobs?filter=latest&per_page=100&page=1" % self.job["run_id"], "actions",
                 "listJobsForWorkflowRun", {**R, "run_id": self.job["run_id"], "filter": "latest", "per_page": 100, "page": 1})]

    def test_octokit_reads(self):
        reads = self.reads()
        for (path, *_), got in zip(reads, self.octokit([list(r[1:]) for r in reads])):
            status, _, value = self.emu.rest("GET", path)
            self.assertEqual((got["status"], got["data"]), (status, value), got["url"])
            self.assertEqual(status, 200, path)

    def test_octokit_writes(self):
        made = self.octokit([["actions", "generateRunnerJitconfigForRepo", {**R, **JIT, "name": "a"}],
                             ["actions", "generateRunnerJitconfigForRepo", {**R, **JIT, "name": "a"}],
                             ["actions", "generateRunnerJitconfigForOrg", {**O, **JIT, "name": "b", "runner_group_id": 3}]])
        self.assertEqual([m["status"] for m in made], [201, 409, 201], made)
        self.assertTrue(made[0]["data"]["encoded_jit_config"])
        gone = self.octokit([["actions", "deleteSelfHostedRunnerFromRepo", {**R, "runner_id": made[0]["data"]["runner"]["id"]}],
                             ["actions", "deleteSelfHostedRunnerFromRepo", {**R, "runner_id": made[0]["data"]["runner"]["id"]}],
                             ["actions", "deleteSelfHostedRunnerFromOrg", {**O, "runner_id": made[2]["data"]["runner"]["id"]}],
                             ["apps", "createInstallationAccessToken", {"installation_id": 7}]])
        self.assertEqual([g["status"] for g in gone], [204, 404, 204, 401], gone)

    def gh(self, *args):
        host = self.emu.url.split("//")[1]
        return subprocess.run(["gh", "api", "-H", "X-GitHub-Api-Version: 2022-11-28", *args], text=True, capture_output=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "HOME": self.folder.name, "GH_HOST": host, "GH_PROMPT_DISABLED": "1",
                                   "GH_ENTERPRISE_TOKEN": self.emu.token, "SSL_CERT_FILE": self.emu.ca})

    def test_gh(self):
        for path, *_ in self.reads():
            done = self.gh(path)
            self.assertEqual(done.returncode, 0, done.stderr)
            # gh asks an Enterprise Server, whose answers name themselves.
            plain = json.loads(done.stdout.replace("/api/v3", ""))
            self.assertEqual(plain, self.emu.rest("GET", path)[2], path)
        body = os.path.join(self.folder.name, "body")
        with open(body, "w") as f:
            json.dump({**JIT, "name": "by-gh"}, f)
        done = self.gh("--method", "POST", "/repos/octo/demo/actions/runners/generate-jitconfig", "--input", body)
        self.assertEqual(done.returncode, 0, done.stderr)
        one = "/repos/octo/demo/actions/runners/%d" % json.loads(done.stdout)["runner"]["id"]
        done = self.gh("--method", "DELETE", one)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        done = self.gh("--method", "DELETE", one)
        self.assertEqual(done.returncode, 1)
        self.assertIn("HTTP 404", done.stderr)


if __name__ == "__main__":
    try:
        octokit_folder()
    except openapi.Unavailable as e:
        sys.exit("clients: %s" % e)
    unittest.main()
