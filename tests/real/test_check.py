#!/usr/bin/python3
"""tests/real/check and the token of tests/real/quickstart, with Debian's gh against the emulator and the stand-in runner."""
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "emulator"))
import pack_runner  # noqa: E402
from emu.client import Emulator  # noqa: E402

REPO = "octo/private"
# Where `gh workflow run` would be. The job waits less long than the real one.
DISPATCH = r'''#!/usr/bin/python3
import os, sys
sys.path.insert(0, %r)
from emu.client import Emulator
script = "export WHAT=" + sys.argv[1] + "\n" + os.environ["CHECK_SCRIPT"].replace("sleep 40", "sleep 12")
Emulator(None, %r).job(%r, ["self-hosted", "BOXERY-CHECK"], script, workflow_name="boxery-check")
'''


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="real-check.")
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        self.emu = Emulator.start(self.dir + "/state", "--repo", REPO, "--poll-seconds", "2", "--offline-after", "6")
        self.addCleanup(self.emu.stop)
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": self.dir, "GH_HOST": self.emu.url.split("//")[1],
                    "NO_PROXY": "*", "GH_ENTERPRISE_TOKEN": self.emu.token, "SSL_CERT_FILE": self.emu.ca,
                    "GH_PROMPT_DISABLED": "1", "BOXERY_CHECK_POLL": "1"}

    def with_runner(self):
        root = self.dir + "/runner"
        os.mkdir(root)
        pack_runner.pack(self.dir + "/runner.tar.gz")
        subprocess.check_call(["tar", "-xzf", self.dir + "/runner.tar.gz", "-C", root])
        os.makedirs(root + "/externals", exist_ok=True)
        for name, mode in (("bin", 0o555), ("externals", 0o555), ("", 0o1775)):
            os.chmod(os.path.join(root, name), mode)
        with open(self.dir + "/dispatch", "w") as f:
            f.write(DISPATCH % (os.path.join(HERE, "..", "emulator"), self.emu.admin, REPO))
        os.chmod(self.dir + "/dispatch", 0o755)
        self.env.update(BOXERY_CHECK_ROOT=root, BOXERY_CHECK_DISPATCH=self.dir + "/dispatch", BOXERY_CHECK_SHELL=(
            "env CURL_CA_BUNDLE=%s RUNNER_ALLOW_RUNASROOT=1 STANDIN_RETRY_SECONDS=1 bash -s" % self.emu.ca))

    def check(self, *arguments, answer="", timeout=170):
        done = subprocess.run([HERE + "/check", REPO, *arguments], env=self.env, input=answer, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=timeout)
        lines = re.findall(r"^(A\d+) +(ok|DIFFERS|not checked) +(.*)$", done.stdout, re.M)
        for needle in [self.emu.token, *[n for r in self.emu.runners() for n in r["needles"]]]:
            self.assertNotIn(needle, done.stdout)
        self.assertEqual([r["name"] for r in self.emu.runners() if r["state"] != "gone"], [],
                         "something is left registered: " + done.stdout)
        return done, lines

    def said(self, lines, word):
        return {a for a, w, _ in lines if w == word}

    def test_everything(self):
        self.with_runner()
        done, lines = self.check("--yes")
        self.assertEqual(self.said(lines, "ok"), {"A%d" % n for n in (*range(1, 12), 14, 15, 17)}, done.stdout)
        self.assertEqual(self.said(lines, "not checked"), {"A12", "A13", "A16"}, done.stdout)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sorted(len(r["jobs"]) for r in self.emu.runners()), [0, 0, 1, 1])

    def test_long(self):
        self.with_runner()
        self.emu.settings(idle_vanishes=25, unconnected_expires=15)
        done, lines = self.check("--yes", "--long")
        self.assertEqual(self.said(lines, "not checked"), {"A16"}, done.stdout)
        self.assertEqual(self.said(lines, "ok"), {"A%d" % n for n in (*range(1, 16), 17)}, done.stdout)

    def test_other_answers(self):
        self.with_runner()
        self.emu.fault("GET", "deprecations", "answer", status=500, body="?", count=-1)
        self.emu.fault("DELETE", "actions/runners/", "answer", status=500, body="?", count=1, skip=2)
        self.emu.behaviour("exit", code=1, count=1, name=".*")
        done, lines = self.check("--yes")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertLessEqual({"A15"}, self.said(lines, "DIFFERS"), done.stdout)

    def test_without_the_workflow(self):
        done, lines = self.check()
        self.assertEqual(self.said(lines, "not checked"), {"A%d" % n for n in (6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17)}, done.stdout)
        text = done.stdout.split("run this again:\n\n")[1]
        text = text[:text.index("\nA12")]
        import yaml
        workflow = yaml.safe_load(text)
        self.assertEqual(workflow["jobs"]["check"]["runs-on"], ["self-hosted", "BOXERY-CHECK"])
        script = workflow["jobs"]["check"]["steps"][0]["run"]
        for what, code in (("fail", 3), ("other", 0)):
            self.assertEqual(subprocess.run(["bash", "-e", "-c", script], env={"PATH": "/usr/bin:/bin", "WHAT": what}).returncode, code)
        self.assertEqual(subprocess.run(["bash", "-e", "-c", script], stdout=subprocess.DEVNULL, env={
            "PATH": "/usr/bin:/bin", "WHAT": "other", "ACTIONS_RUNNER_INPUT_JITCONFIG": "x"}).returncode, 9)

    def test_it_asks(self):
        self.with_runner()
        done, lines = self.check(answer="n\n")
        self.assertIn("start the workflow", done.stdout)
        self.assertIn("A9", self.said(lines, "not checked"))
        self.assertEqual(self.emu.state()["jobs"], [])

    def test_public(self):
        self.emu.repo(REPO, private=False)
        done, lines = self.check("--yes")
        self.assertEqual((done.returncode, [x[:2] for x in lines]), (1, [("A1", "DIFFERS")]), done.stdout)
        self.assertEqual(self.emu.runners(), [])


class Token(unittest.TestCase):
    """What quickstart does to runners.env."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="real-token.")
        self.addCleanup(folder.cleanup)
        self.dir, self.file = folder.name, folder.name + "/runners.env"

    def write(self, token="gho_one"):
        return subprocess.run([HERE + "/write-token", self.dir], input=token + "\n", text=True, capture_output=True)

    def test_new_and_again(self):
        os.umask(0o022)
        for token in ("gho_one", "gho_two"):
            done = self.write(token)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            with open(self.file) as f:
                self.assertIn("\nGITHUB_TOKEN=%s\n" % token, f.read())
            self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o600)
            os.chmod(self.file, 0o644)  # and again: a new file, with its own mode
        self.assertEqual(os.listdir(self.dir), ["runners.env"])

    def test_another_credential_stays(self):
        for text in ("GITHUB_TOKEN=github_pat_of_the_admin\n", "BOXERY_GITHUB_URL=https://other\nGITHUB_TOKEN=gho_one\n", ""):
            with open(self.file, "w") as f:
                f.write(text)
            done = self.write()
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn("runners.env", done.stderr)
            self.assertNotIn("gho_one", done.stderr)
            with open(self.file) as f:
                self.assertEqual(f.read(), text)

    def test_no_token(self):
        self.assertNotEqual(self.write("").returncode, 0)
        self.assertEqual(os.listdir(self.dir), [])


if __name__ == "__main__":
    unittest.main()
