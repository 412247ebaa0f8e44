#!/usr/bin/python3
"""guest/run-job as it runs in a guest, in a mount namespace of this host instead: the stand-in runner in its place, a user `runner`, the
folders of an image. What the image says about a proxy and an authority reaches the runner and its job; needs root."""
import os
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
from proxy import Proxy  # noqa: E402
from test_emulator import Base  # noqa: E402

RUN_JOB = os.path.join(HERE, "..", "..", "guest", "run-job")
# $1: a folder with etc/, the runner's tarball and the config. Nothing of it is seen outside the namespace.
ENTER = """set -eu
mount --make-rprivate /
for place in /opt /run /home /usr/local/share; do mount -t tmpfs -o mode=0755 tmpfs $place; done
mount --bind "$1/etc" /etc
mkdir -p /opt/actions-runner /run/boxery/job /home/runner /usr/local/share/ca-certificates
tar -xzf "$1/runner.tar.gz" -C /opt/actions-runner
chown runner /opt/actions-runner /home/runner
[ ! -e "$1/boxery-1.crt" ] || cp "$1/boxery-1.crt" /usr/local/share/ca-certificates
install -m 0400 "$1/config" /run/boxery/job/jitconfig
shift
exec "$@"
"""


class RunJob(Base):
    def setUp(self):
        super().setUp()
        self.emu.settings(poll_seconds=2)
        self.place = os.path.join(self.folder.name, "guest-" + self.id().rsplit(".", 1)[1])
        os.makedirs(os.path.join(self.place, "etc/ssl/certs"))
        os.chmod(self.folder.name, 0o755)
        for name in ("hosts", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "alternatives"):
            copy = shutil.copytree if os.path.isdir("/etc/" + name) else shutil.copy
            if os.path.exists("/etc/" + name):
                copy("/etc/" + name, os.path.join(self.place, "etc", name), **({"symlinks": True} if copy is shutil.copytree else {}))
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nrunner:x:1001:1001::/home/runner:/bin/bash\n")
        self.write("etc/group", "root:x:0:\nrunner:x:1001:\n")
        shutil.copy(self.tarball, os.path.join(self.place, "runner.tar.gz"))

    def write(self, name, text):
        path = os.path.join(self.place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def run_job(self, trust=True, seconds=60):
        """The exit status, what was printed, the job's log."""
        with open(self.emu.ca, encoding="ascii") as f:
            authority = f.read()
        if trust:  # as update-ca-certificates leaves it
            self.write("etc/ssl/certs/ca-certificates.crt", authority)
            self.write("boxery-1.crt", authority)
        self.write("config", self.mint(name=self.id().rsplit(".", 1)[1].replace("_", "-"))["encoded_jit_config"] + "\n")
        job = self.emu.job("octo/demo", ["linux"], "env | sort")
        done = subprocess.run(["unshare", "--mount", "sh", "-c", ENTER, "enter", self.place, "timeout", str(seconds), "sh", RUN_JOB], env={"PATH": os.environ["PATH"]},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90, check=False)
        found = [j for j in self.emu.call("GET", "state")["jobs"] if j["id"] == job["id"]][0]
        return done.returncode, done.stdout, found

    def test_through_a_proxy(self):
        proxy = Proxy()
        self.addCleanup(proxy.listen.close)
        url = "http://127.0.0.1:%d" % proxy.port
        self.write("etc/boxery/runner.env", "http_proxy=%s\nhttps_proxy=%s\nno_proxy=.example.org\nPATH=/nonexistent\n" % (url, url))
        code, said, job = self.run_job()
        self.assertEqual((code, job["conclusion"]), (0, "success"), said)
        log = self.emu.log(job["id"]).splitlines()
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
            self.assertIn("%s=%s" % (name, url), log)
        for line in ("no_proxy=.example.org", "NO_PROXY=.example.org", "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt"):
            self.assertIn(line, log)
        self.assertNotIn("PATH=/nonexistent", log)
        self.assertEqual(set(proxy.asked), {self.emu.url.split("//")[1]}, "all the runner asked went through the proxy")
        self.assertGreater(len(proxy.asked), 2)

    def test_without_one(self):
        code, said, job = self.run_job()
        self.assertEqual((code, job["conclusion"]), (0, "success"), said)
        self.assertNotIn("proxy", self.emu.log(job["id"]).lower())

    def test_not_for_these(self):
        """no_proxy names the emulator: a proxy that is not there does not matter."""
        self.write("etc/boxery/runner.env", "http_proxy=http://127.0.0.1:1\nhttps_proxy=http://127.0.0.1:1\nno_proxy=localhost,127.0.0.1\n")
        code, said, job = self.run_job()
        self.assertEqual((code, job["conclusion"]), (0, "success"), said)

    def test_an_authority_the_image_does_not_have(self):
        """So the one above is what makes it work."""
        code, said, job = self.run_job(trust=False, seconds=4)
        self.assertNotEqual(job["status"], "completed", said)
        self.assertNotIn("Listening for Jobs", said)


if __name__ == "__main__":
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        print("skipped: no right to make a mount namespace")
        sys.exit(77)
    unittest.main(verbosity=2)
