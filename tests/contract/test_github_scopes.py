#!/usr/bin/python3
"""boxery-github: organizations and their runner groups, GitHub Apps, other hosts, a proxy, what an answer costs, and storing a
credential.

usage: test_github_scopes.py BOXERY_GITHUB"""
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from github_case import EACCES, EBADMSG, EINVAL, ENOENT, HERE, LABELS, PROGRAM, TOKEN, GitHubCase  # noqa: E402
from proxy import Proxy  # noqa: E402

from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402

APP = "Iv23canary"


def pem(key, passphrase=None):
    hide = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, hide).decode()


class Organizations(GitHubCase):
    def org_mint(self, name="boxery-h1-1", group="few"):
        return self.mint(name, scope="acme", group=group)

    def test_mint_watch_delete(self):
        reply, fds = self.org_mint()
        self.assertEqual(reply["code"], 0, reply["text"])
        os.close(fds[0])
        (post,) = self.seen("POST")
        self.assertEqual(post["path"], "/orgs/acme/actions/runners/generate-jitconfig")
        runner = self.emu.runners()[-1]
        self.assertEqual((runner["scope"], runner["group_id"]), ("org/acme", 3))
        for by in ({"runner_id": reply["runner_id"]}, {"runner_name": "boxery-h1-1"}):
            got = self.ok("RUNNER", scope="acme", **by)
            self.assertEqual((got["found"], got["runner_id"]), (1, reply["runner_id"]))
        self.ok("DELETE", scope="acme", runner_id=reply["runner_id"])
        self.assertEqual(self.ok("DELETE", scope="acme", runner_id=reply["runner_id"])["http_status"], 404)
        self.assertEqual(self.ok("RUNNER", scope="acme", runner_id=reply["runner_id"])["found"], 0)

    def test_group(self):
        reply, fds = self.call("GROUP", scope="acme", group="few")
        self.assertEqual((reply["code"], reply["is_private"], reply["group_id"]), (0, 1, 3), reply["text"])
        with os.fdopen(fds[0]) as f:
            self.assertEqual(f.read(), '{"visibility":"selected","repositories":["acme/one","acme/two"],"truncated":false}')
        reply, fds = self.call("GROUP", scope="acme", group="Default")
        self.assertEqual((reply["code"], reply["is_private"]), (0, 1))
        os.close(fds[0])
        reply, fds = self.call("GROUP", scope="acme", group="open")
        self.assertEqual((reply["code"], reply["is_private"]), (0, 0))
        os.close(fds[0])
        self.no(ENOENT, "absent", "no runner group named 'none'", "GROUP", scope="acme", group="none")
        self.no(EINVAL, "invalid", "missing", "GROUP", scope="acme")

    def test_open_to_public_repositories(self):
        """Nothing is registered where a public repository could use it: by the group's word, or by each repository's."""
        self.no(EACCES, "public", ["group open of acme", "public"], "MINT", scope="acme", group="open", runner_name="n", labels="x")
        self.assertEqual(self.org_mint("boxery-a", "picked")[0]["code"], 0)
        self.emu.repo("acme/one", private=False)
        self.no(EACCES, "public", "group picked", "MINT", scope="acme", group="picked", runner_name="n", labels="x")
        self.emu.repo("acme/one", private=True)
        self.assertEqual(self.org_mint("boxery-b", "picked")[0]["code"], 0)
        self.emu.repo("acme/one", override={"private": "yes"})
        self.assertEqual(self.org_mint("boxery-c", "few")[0]["code"], 0)  # the group's own word is enough
        self.emu.fault("GET", "runner-groups", "patch", count=-1, json={"runner_groups": [
            {"id": 3, "name": "few", "visibility": "all", "allows_public_repositories": None}]})
        self.emu.call("POST", "orgs", {"login": "acme", "groups": []})
        self.no(EACCES, "public", "group few", "MINT", scope="acme", group="few", runner_name="n", labels="x")
        self.assertEqual(len(self.seen("POST", "generate-jitconfig")), 3)

    def test_a_check_costs_nothing_when_nothing_has_changed(self):
        for scope, more in (("acme", {"group": "picked"}), ("o/r", {})):
            costs = [self.mint("boxery-%s-%d" % (scope[0], i), scope=scope, **more)[0] for i in range(2)]
            self.assertEqual([c["code"] for c in costs], [0, 0])
            self.assertEqual(costs[1]["calls"], 1)
            self.assertEqual(costs[1]["calls_free"], costs[0]["calls"] - 1)

    def test_gone_only_where_it_can_be_seen(self):
        self.emu.call("POST", "tokens", {"token": TOKEN, "permissions": {"metadata": "read"}})
        self.assertLess(self.call("DELETE", scope="acme", runner_id=5)[0]["code"], 0)
        self.assertLess(self.call("RUNNER", scope="acme", runner_id=5)[0]["code"], 0)
        self.assertLess(self.call("DELETE", scope="nobody", runner_id=5)[0]["code"], 0)

    def test_scopes_are_told_apart(self):
        for verb in ("JOBS", "JOB_OF", "REPOSITORY"):
            self.no(EINVAL, "invalid", "not a repository", verb, scope="acme", runner_name="n")
        self.no(EINVAL, "invalid", "organization", "GROUP", scope="o/r", group="few")
        for bad in ("a" * 40, "a b", "a?", "..", "%2e"):
            self.no(EINVAL, "invalid", "organization", "MINT", scope=bad, group="few", runner_name="n", labels="x")

    def test_requests_fit_the_description(self):
        reply, fds = self.org_mint()
        os.close(fds[0])
        os.close(self.call("GROUP", scope="acme", group="few")[1][0])
        self.ok("RUNNER", scope="acme", runner_id=reply["runner_id"])
        self.ok("DEPRECATION", scope="acme", text="2.338.0")
        self.ok("DELETE", scope="acme", runner_id=reply["runner_id"])
        done = subprocess.run(["/usr/bin/python3", os.path.join(HERE, "validate_requests.py"), self.emu.admin],
                              capture_output=True, text=True)
        if done.returncode == 2:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_job_of_a_known_run(self):
        self.emu.job("o/r", ["linux"], "true", run_id=None)
        run = self.emu.state()["jobs"][-1]["run_id"]
        self.emu.call("DELETE", "requests")
        reply, fds = self.call("JOB_OF", runner_name="boxery-h1-1", run_id=run)
        os.close(fds[0])
        self.assertEqual(reply["calls"], 1)
        (r,) = self.seen()
        self.assertIn("/runs/%d/jobs" % run, r["path"])


class Apps(GitHubCase):
    def setUp(self):
        super().setUp()
        self.gh.close()
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self.key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.app = {"app_id": APP, "installation_id": 7, "public_key": public.decode()}
        self.emu.call("POST", "apps", self.app)
        self.write_key(pem(self.key))
        self.write_env(GITHUB_TOKEN=None, GITHUB_APP_ID=APP, GITHUB_APP_INSTALLATION_ID="7", GITHUB_APP_KEY_FILE="app.pem")
        self.gh = self.start()

    def write_key(self, text, mode=0o600):
        with open(self.dir + "/app.pem", "w") as f:
            f.write(text)
        os.chmod(self.dir + "/app.pem", mode)

    def exchanges(self):
        return self.seen("POST", "access_tokens")

    def test_one_token_for_many_calls(self):
        self.assertIn("GitHub App", self.ok("HELLO", scope="")["text"])
        self.assertEqual(self.exchanges(), [])
        for i in range(3):
            self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)
        self.assertEqual(self.mint()[0]["code"], 0)
        self.assertEqual(len(self.exchanges()), 1)
        (jwt,) = self.emu.call("GET", "apps")[0]["statements"]
        now = time.time()
        self.assertTrue(now - 90 < jwt["iat"] < now - 50 and now + 500 < jwt["exp"] < now + 600, jwt)
        self.assertEqual(jwt["iss"], APP)
        self.assertRegex(jwt["jti"], "^[0-9a-f]{32}$")

    def test_renewed_before_its_end(self):
        """A token that GitHub gives for three seconds is used for half of that, never to its end."""
        self.emu.call("POST", "apps", {**self.app, "token_seconds": 3})
        end = time.monotonic() + 5
        while time.monotonic() < end:
            self.ok("REPOSITORY")
            time.sleep(0.2)
        self.assertGreaterEqual(len(self.exchanges()), 3)
        self.assertEqual([r["status"] for r in self.seen() if r["status"] == 401], [])
        ids = [s["jti"] for s in self.emu.call("GET", "apps")[0]["statements"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_a_token_that_ends_early(self):
        self.ok("REPOSITORY")
        used = next(r["headers"]["authorization"] for r in self.seen("GET"))
        self.emu.fault("GET", "/repos/o/r$", "answer", status=401, body={"message": "Bad credentials"})
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)
        self.assertEqual(len(self.exchanges()), 2)
        self.assertNotEqual(self.seen("GET")[-1]["headers"]["authorization"], used)
        self.emu.fault("GET", "/repos/o/r$", "answer", status=401, count=-1, body={"message": "Bad credentials"})
        self.no(EACCES, "credential", "Bad credentials", "REPOSITORY")  # renewed once, then said

    def test_the_clocks_differ(self):
        for skew in (-400, 700, 86400):
            self.emu.settings(clock_skew=skew)
            self.gh.close()
            self.gh = self.start()
            self.assertEqual(self.ok("REPOSITORY")["is_private"], 1, skew)

    def test_refused(self):
        self.emu.call("POST", "apps", {**self.app, "app_id": "Iv2.other", "installation_id": 8})
        self.write_env(GITHUB_TOKEN=None, GITHUB_APP_ID=APP, GITHUB_APP_INSTALLATION_ID="8", GITHUB_APP_KEY_FILE="app.pem")
        self.no(EACCES, "credential", ["the App's token", "Issuer"], "REPOSITORY")
        self.write_env(GITHUB_TOKEN=None, GITHUB_APP_ID=APP, GITHUB_APP_INSTALLATION_ID="9", GITHUB_APP_KEY_FILE="app.pem")
        self.no(ENOENT, "absent", ["the App's token", "installation 9"], "REPOSITORY")

    def test_bad_keys(self):
        for text in ("", "canary-key", pem(ec.generate_private_key(ec.SECP256R1())), pem(self.key, b"x"),
                     pem(self.key)[:400]):
            self.write_key(text)
            reply = self.no(EBADMSG, "credential", ["app.pem", "private key"], "REPOSITORY")
            self.assertNotIn("canary", reply["text"])
        self.write_key(pem(self.key), 0o640)
        self.no(EACCES, "credential", "0640", "REPOSITORY")
        os.unlink(self.dir + "/app.pem")
        self.no(ENOENT, "credential", "app.pem", "REPOSITORY")
        self.assertEqual(self.exchanges(), [])

    def test_nothing_to_see(self):
        self.ok("REPOSITORY")
        self.mint()
        secrets = [line for line in pem(self.key).splitlines() if len(line) == 64][:3]
        for line in secrets:
            self.assertIsNone(self.gh.child.memory_has(line.encode()), "the key stays in memory")
        for name in ("environ", "cmdline"):
            self.assertNotIn(b"ghs_", self.gh.child.proc(name))
        self.assertNotIn("ghs_", self.gh.child.text())

    def test_whole_or_nothing(self):
        for more, words in (({"GITHUB_APP_KEY_FILE": "app.pem"}, "needs GITHUB_APP_ID"), ({"GITHUB_TOKEN": TOKEN,
                            "GITHUB_APP_ID": APP}, "leave one"), ({"GITHUB_APP_INSTALLATION_ID": "0"}, "whole number from 1 to"),
                            ({"GITHUB_APP_KEY_FILE": "a/b"}, "beside"), ({"GITHUB_APP_ID": ""}, "client id")):
            self.write_env(**{"GITHUB_TOKEN": None, **more})
            self.no(EBADMSG, "credential", words, "REPOSITORY")

    def test_systemd_credentials(self):
        """A folder that systemd has filled is preferred; the key lies beside."""
        folder = self.dir + "/credentials"
        os.mkdir(folder)
        os.rename(self.write_env(GITHUB_TOKEN=None, GITHUB_APP_ID=APP, GITHUB_APP_INSTALLATION_ID="7",
                                 GITHUB_APP_KEY_FILE="app.pem", mode=0o440), folder + "/runners.env")
        os.rename(self.dir + "/app.pem", folder + "/app.pem")
        os.chmod(folder + "/app.pem", 0o440)
        self.gh.close()
        self.gh = self.start(CREDENTIALS_DIRECTORY=folder)
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)


class Hosts(GitHubCase):
    def test_proxy(self):
        proxy = Proxy()
        self.addCleanup(proxy.listen.close)
        self.write_env(BOXERY_GITHUB_PROXY="http://127.0.0.1:%d" % proxy.port)
        self.assertEqual(self.ok("REPOSITORY")["is_private"], 1)
        self.assertEqual(proxy.asked, [self.emu.url.split("//")[1]])
        for bad in ("127.0.0.1:3128", "socks5://h:1", "http://user:pw@h:1", "http://", "http://h:1/x"):
            self.write_env(BOXERY_GITHUB_PROXY=bad)
            self.no(EBADMSG, "credential", "BOXERY_GITHUB_PROXY: a proxy", "REPOSITORY")

    def test_host_table(self):
        for host, url in (("github.com", "https://api.github.com"), ("GitHub.com", "https://api.github.com"),
                          ("octo.ghe.com", "https://api.octo.ghe.com"), ("api.octo.ghe.com", "https://api.octo.ghe.com"),
                          ("github.example.com", "https://github.example.com/api/v3"),
                          ("ghes.local:8443", "https://ghes.local:8443/api/v3"), ("notghe.com", "https://notghe.com/api/v3")):
            self.write_env(BOXERY_GITHUB_HOST=host, BOXERY_GITHUB_URL=None)
            self.assertEqual(self.ok("HELLO", scope="")["text"].split(",")[0], url)
        for host in ("https://github.com", "a b", "", ".ghe.com", "h/api", "u@h"):
            self.write_env(BOXERY_GITHUB_HOST=host, BOXERY_GITHUB_URL=None)
            self.no(EBADMSG, "credential", "BOXERY_GITHUB_HOST", "HELLO", scope="")
        self.write_env(BOXERY_GITHUB_HOST="github.com")
        self.no(EBADMSG, "credential", "say the same thing", "HELLO", scope="")
        self.write_env(BOXERY_GITHUB_URL="https://github.com")
        self.no(EBADMSG, "credential", "is the website; the URL of its API is https://api.github.com", "HELLO", scope="")

    def test_enterprise_server(self):
        self.write_env(BOXERY_GITHUB_HOST=self.emu.url.split("//")[1], BOXERY_GITHUB_URL=None)
        self.assertEqual(self.mint()[0]["code"], 0)
        self.assertTrue(all(r["path"].startswith("/api/v3/repos/") for r in self.seen()))

    def test_when_the_token_ends(self):
        for text, epoch in (("2027-01-31 00:00:00 UTC", 1801353600), ("2027-01-31 02:00:00 +0200", 1801353600),
                            ("2027-01-30 17:00:00 -0700", 1801353600), ("soon", 0)):
            self.emu.call("POST", "tokens", {"token": TOKEN, "announced": text})
            self.assertEqual(self.ok("REPOSITORY")["credential_expires"], epoch, text)

    def test_kinds_of_limit(self):
        for kind, number in (("primary", 1), ("secondary", 2), ("secondary-no-retry-after", 2)):
            for status in (403, 429):
                self.emu.fault("GET", "/repos/o/r$", "rate-limit", kind=kind, status=status)
                reply, _ = self.call("REPOSITORY")
                self.assertEqual((reply["fault"], reply["limit_kind"]), ("limit", number), (kind, status))
        self.emu.settings(rate_reset_in=1000)
        self.assertTrue(990 < self.ok("REPOSITORY")["rate_reset_s"] <= 1000)


class Store(GitHubCase):
    """boxery-github token: what `boxery-host runners token` becomes."""

    def store(self, text, *args, **env):
        return subprocess.run([PROGRAM, "token", *args], input=text, text=True, capture_output=True, timeout=30,
                              env={"PATH": os.environ["PATH"], "HOME": self.dir, "BOXERY_CONFIG_DIR": self.dir + "/stored", **env})

    def stored(self, name="runners.env"):
        path = self.dir + "/stored/" + name
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path) as f:
            return f.read()

    def tearDown(self):
        super().tearDown()
        subprocess.run(["rm", "-rf", self.dir + "/stored"], check=True)

    def test_token(self):
        done = self.store(TOKEN + "\n", "--url", self.emu.url, "--ca", self.emu.ca)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        self.assertIn("fine-grained personal token for " + self.emu.url, done.stdout)
        self.assertEqual(self.stored().split(), ["GITHUB_TOKEN=" + TOKEN, "BOXERY_GITHUB_URL=" + self.emu.url,
                                                 "BOXERY_GITHUB_CA_FILE=" + self.emu.ca])
        done = self.store("ghp_" + "x" * 36)  # a new one; the rest stays
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.stored().split(), ["BOXERY_GITHUB_URL=" + self.emu.url, "BOXERY_GITHUB_CA_FILE=" + self.emu.ca,
                                                 "GITHUB_TOKEN=ghp_" + "x" * 36])

    def test_app(self):
        self.store(TOKEN)
        key = pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))
        done = self.store(key, "--app", APP, "--installation", "7", "--host", "octo.ghe.com")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("GitHub App for https://api.octo.ghe.com", done.stdout)
        self.assertEqual(self.stored("github-app.pem"), key)
        self.assertNotIn(TOKEN, self.stored())

    def test_what_works_stays(self):
        self.store(TOKEN)
        for text, args, code in (("", (), 2), ("a b", (), 2), ("x" * 5000, (), 2), ("ghp_canary_x", ("--url", "ftp://x"), 2),
                                 ("not a key", ("--app", APP, "--installation", "7"), 5), (TOKEN, ("--app", APP), 2),
                                 ("ghp_canary_x", ("ghp_canary_x",), 2), ("x" * 30000, (), 2),
                                 ("ghp_canary_x", ("--host", "github.com", "--url", "https://x"), 2)):
            done = self.store(text, *args)
            self.assertEqual(done.returncode, code, (text[:20], args, done.stderr))
            self.assertNotIn("ghp_canary", done.stdout + done.stderr)
            self.assertEqual(self.stored(), "GITHUB_TOKEN=%s\n" % TOKEN)


if __name__ == "__main__":
    unittest.main(verbosity=2)
