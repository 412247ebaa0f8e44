#!/usr/bin/python3
"""boxery runners once at a terminal: what is drawn, and what Ctrl-C and a terminal that goes away do at every stage.

A terminal sends Ctrl-C to everybody in it, ssh, gh and (when the host is this machine) the host's end included.
"""
import pty
import select
import tempfile
import termios
import threading

from once_world import BUILD, LABELS, REPO, OnceCase, main, os, re, signal, subprocess, time, until
from walk_world import Clock

CLOCK = os.path.join(BUILD, "tests/fault/libwalk_clock.so")
SPIN = re.compile(r"\r\x1b\[K[|/\\-] \[ *\d+\.\d s\] [a-z]")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return f.read().split()


class Terminal:
    """`boxery runners once` in a terminal of its own, which is read all the time."""

    def __init__(self, w, *args, argv=None):
        argv = argv or [w.path("bin/boxery"), "runners", "once", "--repo", REPO] + (["--host", "vmhost"] if w.sshd else []) + list(args)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(w.path("laptop"))
            os.execve(argv[0], argv, {k: v for k, v in w.laptop.items() if k != "BOXERY_DEBUG"})
        self.screen, self.status, self.over = "", None, False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while not self.over:
            if not select.select([self.fd], [], [], 0.05)[0]:
                continue
            try:
                self.screen += os.read(self.fd, 4096).decode("ascii", "backslashreplace")
            except OSError:  # EIO: nobody has it open any more
                return

    def lines(self):
        """What stays to be read: the last spinner of each line is wiped."""
        return [re.sub(r".*\r(?:\x1b\[K)?", "", x) for x in self.screen.replace("\r\n", "\n").split("\n")]

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def await_text(self, pattern, timeout=30):
        until(lambda: re.search(pattern, self.screen) or self.ended(), timeout)
        if not re.search(pattern, self.screen):
            raise AssertionError(f"no {pattern!r}: {self.screen!r} {self.status}")
        return self

    def await_stage(self, word):
        return self.await_text(r"\[ *\d+\.\d s\] %s " % word)

    def echoes(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def type(self, text):
        os.write(self.fd, text.encode())
        return self

    def press_ctrl_c(self):
        return self.type("\x03")

    def wait(self, timeout=60):
        until(self.ended, timeout)
        self.reader.join(10)
        return self.status

    def hang_up(self):
        """The window is closed: everybody in it gets SIGHUP, and writing to it fails."""
        self.over = True
        self.reader.join(10)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def close(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.hang_up()


class Base(OnceCase):
    def terminal(self, *args):
        t = Terminal(self.w, *args)
        self.addCleanup(t.close)
        return t


class Drawn(Base):
    def test_a_terminal(self):
        self.emu.job(REPO, LABELS, "sleep 2; echo out", name="drawn")
        t = self.terminal("--follow")
        self.assertEqual(t.wait(), 0, t.screen)
        self.assertGreater(len(SPIN.findall(t.screen)), 3, t.screen)
        text = "\n".join(t.lines())
        self.assertNotIn("\x1b", text)
        self.assertNotRegex(text, r"[|/\\-] \[ *\d")  # none is left
        words = re.findall(r"^\[ *\d+\.\d s\] (\w+)", text, re.M)
        self.assertEqual([w for w in words if w in ("leased", "registered", "delivered", "running", "result")],
                         ["leased", "registered", "delivered", "running", "result"])
        self.assertIn("reset", words)
        self.assertRegex(text, r"(?m)^\| .*Running job: drawn")
        self.clean()

    def test_json_draws_nothing(self):
        t = self.terminal("--json", "--idle-timeout", "1s")
        self.assertEqual(t.wait(), 12, t.screen)
        self.assertNotIn("\x1b", t.screen)
        self.clean()

    def test_no_terminal(self):
        p = subprocess.run([self.w.path("bin/boxery"), "runners", "once", "--repo", REPO, "--idle-timeout", "1s"], env=self.w.laptop,
                           cwd=self.w.path("laptop"), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(p.returncode, 12, p.stdout + p.stderr)
        self.assertNotRegex(p.stdout + p.stderr, "[\r\x1b]")
        self.assertEqual(re.findall(r"^\[ *\d+\.\d s\] (\w+)", p.stdout, re.M)[:4], ["leased", "registered", "delivered", "listening"])
        self.clean()


class Interrupts:
    """Over ssh, and with the host's end in the same terminal."""

    def test_ctrl_c_at_every_stage(self):
        t = self.terminal().await_text(SPIN).press_ctrl_c()
        self.assertEqual(t.wait(), 130, t.screen)
        self.clean()
        for word in ("leased", "registered", "delivered", "listening"):
            t = self.terminal().await_stage(word).press_ctrl_c()
            self.assertEqual(t.wait(), 130, (word, t.screen))
            self.assertIn("interrupted", t.screen)
            self.clean()

    def test_ctrl_c_in_the_job(self):
        """Once: its end is waited for. Twice: the VM is taken away from it."""
        go = self.w.path("guest/go")
        self.emu.job(REPO, LABELS, f"while [ ! -e {go} ]; do sleep 0.1; done")
        t = self.terminal().await_stage("running").press_ctrl_c().await_text("a job is running; waiting for its end")
        self.assertEqual(self.w.state("one"), "BUSY")
        self.w.write("guest/go", "")
        self.assertEqual(t.wait(), 0, t.screen)
        self.clean()
        self.emu.job(REPO, LABELS, "sleep 100")
        t = self.terminal().await_stage("running").press_ctrl_c().await_text("a job is running; waiting").press_ctrl_c()
        self.assertEqual(t.wait(), 130, t.screen)
        self.assertIn("interrupted again", t.screen)
        self.clean(registered=1)  # GitHub takes it for busy for some minutes more
        self.assertIn("is left, offline and useless", t.screen)


    def test_the_terminal_goes_away(self):
        for word in ("leased", "listening"):
            t = self.terminal().await_stage(word)
            t.hang_up()
            self.assertEqual(t.wait(), 130, t.screen)
            self.clean()


class Here(Interrupts, Base):
    pass


class Stopped(Base):
    """Ctrl-S, and then nothing is taken by the terminal; on a clock that only the test moves."""
    ssh = True

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clock = Clock(os.path.join(folder.name, "clock"))
        self.there = {"LD_PRELOAD": CLOCK, "BOXERY_TEST_CLOCK": self.clock.path}
        super().setUp()
        self.w.laptop.update(self.there, BOXERY_TEST_CLOCK_MONOTONIC="1")

    def beats(self):
        return [self.w.link(name).count(b'"beat"') for name in ("link.c2h", "link.h2c")]

    def test_a_job_under_a_stopped_terminal(self):
        """Stages come and go unseen, the heart beats on for longer than a host would wait, and all of it is there to be read later."""
        go = self.w.path("guest/go")
        t = self.terminal("--follow").await_stage("leased").type("\x13")  # the host's end, which says more than usual, must not stop either
        self.emu.job(REPO, LABELS, f"while [ ! -e {go} ]; do sleep 0.1; done", name="unseen")
        until(lambda: self.w.state("one") == "BUSY", 30)
        with open(self.w.path("images/console/one.log"), "ab") as console:
            for _ in range(700):
                console.write(b"flood " * 60 + b"\n")
        for _ in range(10):
            before = self.beats()
            self.clock.advance(15)
            until(lambda before=before: all(a > b for a, b in zip(self.beats(), before)))
        self.assertEqual(self.w.state("one"), "BUSY")
        self.assertNotIn(" running ", t.screen)
        self.w.write("guest/go", "")
        self.holds_nothing()
        self.assertFalse(t.ended())
        t.type("\x11")
        self.assertEqual(t.wait(), 0, t.screen[-2000:])
        text = "\n".join(t.lines())
        self.assertLess(text.index("running"), text.index("result"))
        self.assertIn("reset", text)
        self.assertRegex(text, r"(?m)^\| flood flood")

    def test_the_end_under_a_stopped_terminal(self):
        """Ctrl-C makes it go on, and SIGTERM does not wait for it."""
        for how in ("key", "signal"):
            t = self.terminal("--idle-timeout", "1s").await_stage("delivered").type("\x13")
            until(lambda: [r for r in self.emu.runners() if r["ended"] == "deleted"], 30)
            self.holds_nothing()
            until(lambda t=t: not children(t.pid))
            if how == "key":
                t.press_ctrl_c()
            else:
                os.kill(t.pid, signal.SIGTERM)
            self.assertEqual(t.wait(), 12, t.screen)
            self.new_github()


class There(Interrupts, Base):
    ssh = True

    def test_a_passphrase(self):
        """ssh asks for it in the terminal, and nothing is drawn over its question."""
        key = self.w.path("tools/laptop_key")
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", key], check=True)
        t = self.terminal().await_text("Enter passphrase for key")
        time.sleep(0.7)  # some turns of a spinner
        self.assertNotRegex(t.screen, SPIN)
        t.type("open sesame\n").await_stage("listening").press_ctrl_c()
        self.assertEqual(t.wait(), 130, t.screen)
        self.clean()

    def test_the_end_at_a_passphrase(self):
        """ssh has turned the echo off; it is on again for whoever types next."""
        key = self.w.path("tools/laptop_key")
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", key], check=True)
        # No session leader, whose end would end ssh as well; and the real ssh, not what writes down its link.
        self.w.write("tools/ssh", f"#!/bin/sh\nexec /usr/bin/ssh -F {self.w.path('tools/ssh_config')} \"$@\"\n")
        self.w.write("bin/in-a-shell", f"#!/bin/sh\nboxery --host vmhost runners once --repo {REPO}\necho status $?\nsleep 60\n")
        os.chmod(self.w.path("bin/in-a-shell"), 0o755)
        t = Terminal(self.w, argv=[self.w.path("bin/in-a-shell")])
        self.addCleanup(t.close)
        t.await_text("Enter passphrase for key")
        until(lambda: not t.echoes())
        os.kill(int(children(t.pid)[0]), signal.SIGTERM)
        t.await_text("status 130")
        self.assertTrue(t.echoes())
        self.clean()


if __name__ == "__main__":
    main()
