"""What the contract tests of boxery-github share: an emulator, a configuration folder, a running boxery-github."""
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "emulator")]
import proto  # noqa: E402
from emu.client import Emulator  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
TOKEN = "github_pat_canary_7f3a9c51b2e84d06"
LABELS = "self-hosted,Linux,X64,boxery"
EAGAIN, EACCES, EPERM, ENOENT, EEXIST, EBUSY, EINVAL, EIO = -11, -13, -1, -2, -17, -16, -22, -5
EBADMSG, ENOTCONN, EPIPE, EFBIG, ETIMEDOUT = -74, -107, -32, -27, -110


class GitHubCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="boxery-github-")
        with socket.create_server(("127.0.0.1", 0)) as s:
            cls.plain = s.getsockname()[1]
        cls.emu = Emulator.start(f"{cls.dir}/emu", "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{cls.plain}", token=TOKEN)
        # Somewhere else, to see that nothing arrives there; with a CA of its own.
        cls.other = Emulator.start(f"{cls.dir}/other", "--listen", "127.0.0.1:0", token=TOKEN)

    @classmethod
    def tearDownClass(cls):
        cls.emu.stop()
        cls.other.stop()
        shutil.rmtree(cls.dir)

    def setUp(self):
        for e in (self.emu, self.other):
            e.reset()
            e.call("DELETE", "requests")
        self.emu.repo("o/r", private=True)
        self.emu.repo("o/open", private=False)
        self.emu.call("POST", "orgs", {"login": "acme", "groups": [
            {"name": "few", "visibility": "selected", "repositories": ["one", "two"]},
            {"name": "open", "visibility": "all", "allows_public_repositories": True},
            {"name": "picked", "visibility": "selected", "repositories": ["one"], "allows_public_repositories": True}]})
        self.emu.repo("acme/one")
        self.emu.repo("acme/two")
        self.write_env()
        self.gh = self.start()

    def start(self, **env):
        gh = proto.GitHub(PROGRAM, self.dir, env)
        self.addCleanup(gh.close)
        return gh

    def tearDown(self):
        self.assertNotIn(TOKEN, self.gh.child.text())
        self.assertEqual(self.other.requests("all"), [])

    def write_env(self, mode=0o600, text=None, **more):
        path = f"{self.dir}/runners.env"
        values = {"GITHUB_TOKEN": TOKEN, "BOXERY_GITHUB_URL": self.emu.url, "BOXERY_GITHUB_CA_FILE": self.emu.ca, **more}
        with open(path, "w", encoding="utf-8") as f:
            f.write(text if text is not None else "".join(f"{k}={v}\n" for k, v in values.items() if v is not None))
        os.chmod(path, mode)
        return path

    def call(self, verb, scope="o/r", **fields):
        reply, fds = self.gh.call(verb, scope=scope, **fields)
        self.assertNotIn(TOKEN, reply["text"])
        self.assertEqual(reply["code"] == 0, reply["fault"] == "none", reply)
        if reply["code"] < 0:
            self.assertNotEqual(reply["text"], "")
            self.assertEqual(fds, [])
        return reply, fds

    def ok(self, verb, **fields):
        reply, fds = self.call(verb, **fields)
        self.assertEqual(reply["code"], 0, reply["text"])
        self.assertEqual(fds, [])
        return reply

    def no(self, code, fault, words, verb, **fields):
        reply, _ = self.call(verb, **fields)
        self.assertEqual((reply["code"], reply["fault"]), (code, fault), reply["text"])
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, reply["text"])
        return reply

    def mint(self, name="boxery-h1-1", **fields):
        return self.call("MINT", runner_name=name, labels=LABELS, **fields)

    def no_mint(self, code, fault, words, may_exist, **fields):
        reply = self.no(code, fault, words, "MINT", runner_name="boxery-h1-1", labels=LABELS, **fields)
        self.assertEqual(reply["may_exist"], may_exist)
        return reply

    def document(self, verb, **fields):
        reply, fds = self.call(verb, **fields)
        self.assertEqual(reply["code"], 0, reply["text"])
        self.assertEqual(len(fds), 1)
        with os.fdopen(fds[0], "rb") as f:
            return json.loads(f.read())

    def seen(self, method=None, path=None):
        return [r for r in self.emu.requests() if (method is None or r["method"] == method)
                and (path is None or re.search(path, r["path"]))]
