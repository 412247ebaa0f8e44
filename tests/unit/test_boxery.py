#!/usr/bin/python3
"""boxery at a person's machine, with a stand-in for ssh that says how it was called."""
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BOXERY = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else "build/boxery")

HOST = """case "$*" in
*__once*) echo '{"type":"hello","protocol":1,"oldest":1,"version":"1","arch":"x64","host":"12345678"}'; read line;;
*"'ls'"*) echo '{"vms":[{"name":"one","address":"10.0.0.2"}]}';;
esac
"""


def until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError("it does not happen")
        time.sleep(0.02)


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Boxery(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.env = {"PATH": self.path("bin") + ":/usr/bin:/bin", "HOME": self.folder.name, "LANG": "C.UTF-8"}
        os.mkdir(self.path("bin"))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def stand_in(self, name, text):
        with open(self.path("bin/" + name), "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(f.name, 0o755)

    def run_it(self, *args, **more):
        more = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, **more}
        return subprocess.run([BOXERY, *args], env=self.env, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **more)


class Terminals(Boxery):
    def test_both_or_none(self):
        self.stand_in("ssh", f'echo "$1" > {self.path("asked")}\n')
        main, terminal = pty.openpty()
        with open("/dev/null", "r+b") as null:
            for stdin, stdout, wanted in ((terminal, terminal, "-t"), (terminal, null, "-T"), (null, terminal, "-T"), (null, null, "-T")):
                for args in (("ssh", "one", "--", "cat", "x"), ("lease", "--exec", "true")):
                    self.assertEqual(self.run_it("--host", "h", *args, stdin=stdin, stdout=stdout).returncode, 0)
                    with open(self.path("asked"), encoding="ascii") as f:
                        self.assertEqual(f.read().strip(), wanted, (args, stdin, stdout))
        os.close(main)
        os.close(terminal)


class Interrupted(Boxery):
    def test_nothing_is_left(self):
        """What a terminal sends to everybody in it: ssh is gone when boxery is."""
        self.stand_in("ssh", f'echo $$ > {self.path("pid")}.new; mv {self.path("pid")}.new {self.path("pid")}; exec sleep 600\n')
        for args in (("setup", "h"), ("--host", "h", "ssh-config")):
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                with subprocess.Popen([BOXERY, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      start_new_session=True) as p:
                    until(lambda: os.path.exists(self.path("pid")))
                    with open(self.path("pid"), encoding="ascii") as f:
                        ssh = int(f.read())
                    os.unlink(self.path("pid"))
                    (os.kill if number == signal.SIGTERM else os.killpg)(p.pid, number)
                    try:
                        self.assertEqual(p.wait(30), -number, args)
                        self.assertFalse(is_there(ssh), (args, number))
                    finally:
                        if is_there(ssh):
                            os.kill(ssh, signal.SIGKILL)


class Remembered(Boxery):
    def setUp(self):
        super().setUp()
        self.stand_in("ssh", HOST)
        self.file = self.path(".config/boxery/controller.json")
        os.makedirs(os.path.dirname(self.file))

    def test_wrong_words(self):
        self.assertEqual(self.run_it("setup", "h").returncode, 0)
        for args, words in ((("setup", "--forget"), "boxery setup: --forget goes with a HOST"),
                            (("setup", "--default"), "boxery setup: --default goes with a HOST"),
                            (("setup", "--default", "--forget", "h"), "exclude each other"),
                            (("--host", "zzz", "setup"), "the host is its argument"),
                            (("--host=zzz", "setup", "h"), "the host is its argument")):
            r = self.run_it(*args)
            self.assertEqual((r.returncode, r.stdout), (2, ""), args)
            self.assertIn(words, r.stderr)
        self.assertIn("* h ", self.run_it("setup").stdout)

    def test_no_host(self):
        self.stand_in("gh", "exec sleep 60\n")
        for args in (("runners", "once", "--repo", "o/r"), ("setup", "."), ("ssh-config",), ("ls",)):
            r = self.run_it(*args)
            self.assertNotEqual(r.returncode, 0, args)
            self.assertIn("'boxery setup HOST' remembers it", r.stdout + r.stderr, args)

    def test_no_file(self):
        os.mkfifo(self.file)
        for args in (("ls",), ("setup",), ("setup", "h"), ("setup", "--forget", "h")):
            r = subprocess.run(["timeout", "20", BOXERY, *args], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            self.assertEqual(r.returncode, 5, args)
            self.assertIn("controller.json is no regular file", r.stderr)

    def test_a_link(self):
        os.mkdir(self.path("settings"))
        os.symlink("../../settings/mine", self.file)
        r = self.run_it("setup", "h")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("is a symbolic link whose file cannot be found", r.stderr)
        with open(self.path("settings/mine"), "w", encoding="ascii") as f:
            f.write("{}\n")
        self.assertEqual(self.run_it("setup", "h").returncode, 0)
        self.assertTrue(os.path.islink(self.file))
        with open(self.path("settings/mine"), encoding="ascii") as f:
            self.assertIn('"h"', f.read())
        self.assertEqual(os.listdir(self.path("settings")), ["mine"])


class Full(Boxery):
    def test_what_is_not_written(self):
        self.stand_in("ssh", HOST)
        for args in (("setup", "h"), ("setup",), ("--host", "h", "ssh-config"), ("--help",), ("--version",), ("setup", "--help")):
            r = self.run_it(*args)
            self.assertEqual((r.returncode, r.stderr), (0, ""), args)
            self.assertTrue(r.stdout, args)
            with open("/dev/full", "w", encoding="ascii") as full:
                r = self.run_it(*args, stdout=full)
            self.assertIn("boxery: cannot write to standard output: ", r.stderr, args)
            self.assertEqual(r.returncode, 1, args)

    def test_a_run(self):
        self.stand_in("boxery-host", "read line\necho '{\"type\":\"error\",\"status\":4,\"text\":\"no\"}'\n")
        self.stand_in("gh", "exec sleep 60\n")  # the host answers first
        with open("/dev/full", "w", encoding="ascii") as full:
            r = self.run_it("runners", "once", "--host", ".", "--repo", "o/r", "--json", stdout=full)
        self.assertIn("boxery: cannot write to standard output: No space left on device\n", r.stderr)
        self.assertEqual(r.stderr.count("standard output"), 1)
        self.assertEqual(r.returncode, 4)


if __name__ == "__main__":
    unittest.main()
