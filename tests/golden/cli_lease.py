#!/usr/bin/python3
"""lease: what is printed, --exec however it ends, waits that are ended, the screen of pool ls --watch."""
import fcntl
import json
import pty
import select
import shlex
import struct
import termios

from cli_world import HOST, Case, begin, key_files, main, os, re, run, signal, subprocess, time, until

ENVIRONMENT = "echo $BOXERY_LEASE $BOXERY_VM $BOXERY_ADDRESS $BOXERY_PORT; cat $BOXERY_KNOWN_HOSTS; stat -c %a $BOXERY_KNOWN_HOSTS"


def stop_until_dropped(w, p, other):
    """Stops it until the keeper has had enough of a subscriber that does not read, and lets it go on."""
    p.send_signal(signal.SIGSTOP)
    while "it subscribed and does not read fast enough" not in w.log():
        w.call("RELEASE", lease=w.lease(name=other, wait_ms=10000)["lease"])
    p.send_signal(signal.SIGCONT)


class Lease(Case):
    def setUp(self):
        super().setUp()
        self.w.start()
        self.w.pool_vm("one")

    def ready(self):
        """The VM is clean again and no lease or file is left."""
        self.w.await_state("one", "READY")
        self.assertEqual(self.w.leases(), {})
        self.assertEqual([f for f in os.listdir(self.w.path("run")) if f.startswith("known-hosts")], [])

    def test_print(self):
        r = run(self.w, "lease", "--ttl", "10m")
        lines = dict(re.split(r" {2,}", x, maxsplit=1) for x in r.stdout.splitlines())
        vm = self.w.vms()["one"]
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual(lines, {"lease": vm["lease"], "name": "one", "address": vm["address"], "port": "22",
                                 "host key": f"one,{vm['address']} {vm['host_key']}", "ends in": "10m"})
        self.assertEqual(run(self.w, "release", vm["lease"]).returncode, 0)
        self.ready()

    def test_cannot_print(self):
        """A lease whose id is lost is no lease."""
        with open("/dev/full", "w", encoding="ascii") as full:
            r = subprocess.run([HOST, "lease"], env=self.w.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, check=False)
        self.assertEqual(r.returncode, 7)
        self.assertIn("given back, as it could not be printed: No space left", r.stderr)
        self.ready()

    def test_closed_standard_output(self):
        """Not even into the connection to the keeper, which would else get that number."""
        for words in ("lease", "lease --json"):
            r = subprocess.run(["bash", "-c", f'"$0" {words} >&-', HOST], env=self.w.env, stderr=subprocess.PIPE, text=True, timeout=20,
                               check=False)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn("given back, as it could not be printed: Bad file descriptor", r.stderr)
            self.ready()

    def test_named_and_of_a_pool(self):
        r = run(self.w, "lease", "--pool", "other", "one")
        self.assertEqual((r.returncode, r.stdout, r.stderr), (2, "", "boxery-host: one is in pool default, not in other\n"))
        r = run(self.w, "lease", "--pool", "other", "--wait", "1m", "one")
        self.assertEqual((r.returncode, r.stdout, r.stderr), (2, "", "boxery-host: one is in pool default, not in other\n"))
        r = run(self.w, "lease", "--pool", "default", "one")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_exec_of_nothing(self):
        r = run(self.w, "lease", "--exec", "")
        self.assertEqual((r.returncode, r.stderr), (2, "boxery-host: --exec: the name of the program is empty\n"))
        self.ready()

    def test_left_of_a_kept_one(self):
        lease = self.w.lease(ttl_ms=7200000)["lease"]
        self.w.call("POOL_KEEP", name="one", ttl_ms=600000)
        self.w.call("RELEASE", lease=lease)
        self.w.await_state("one", "KEPT")
        self.assertRegex(run(self.w, "lease", "ls").stdout, rf"{lease} +one +\w+ +KEPT +(10m|9m)")

    def test_key_from_standard_input(self):
        held = self.w.lease()["lease"]  # so that a good key gets as far as the keeper
        with open(key_files(self.w.root)["id.pub"], encoding="ascii") as f:
            good = f.read()
        for text, status, words in ((good, 4, "no VM of pool"), ("x", 2, "--ssh-key -: not an ssh public key"), ("", 2, "empty"),
                                    ("-----BEGIN OPENSSH PRIVATE KEY-----", 2, "private key"), ("x" * 20000, 1, "too large")):
            r = subprocess.run([HOST, "lease", "--ssh-key", "-"], env=self.w.env, input=text, capture_output=True, text=True, timeout=20,
                               check=False)
            self.assertEqual(r.returncode, status, r.stderr)
            self.assertIn(words, r.stderr)
        self.w.call("RELEASE", lease=held)
        self.ready()

    def test_rsa_key(self):
        """The longest that people commonly have: 4096 bits."""
        path = key_files(self.w.root)["rsa.pub"]
        r = run(self.w, "lease", "--ssh-key", path)
        self.assertEqual(r.returncode, 0, r.stderr)
        with open(path, encoding="ascii") as f:
            key = " ".join(f.read().split()[:2])
        self.assertEqual(self.w.lines("grants.log")[-1].split(" ", 2)[2], key)
        self.assertEqual(run(self.w, "release", self.w.vms()["one"]["lease"]).returncode, 0)
        self.ready()

    def test_ssh(self):
        """A pool VM lets in nobody but who has leased it with a key, and then with that key and not with ours."""
        folder = self.w.path("stub")
        os.mkdir(folder)
        with open(os.path.join(folder, "ssh"), "w", encoding="ascii") as f:
            f.write('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        os.chmod(os.path.join(folder, "ssh"), 0o755)
        env = {"PATH": folder + ":" + self.w.env["PATH"]}
        for args in ((), ("--ssh-key", key_files(self.w.root)["id.pub"])):
            r = run(self.w, "ssh", "one", env=env)
            self.assertEqual((r.returncode, r.stdout), (4, ""))
            self.assertIn("it lets in nobody but who has leased it with a key", r.stderr)
            self.assertEqual(run(self.w, "lease", *args, "one").returncode, 0)
            vm = self.w.vms()["one"]
            for dashes in ((), ("--",)):
                r = run(self.w, "ssh", "one", *dashes, "uname", "-r", env=env)
                self.assertEqual(r.returncode, 0 if args else 4)
                words = r.stdout.split("\n")
                if args:
                    self.assertEqual((words[-5:], "-i" in words), ([f"root@{vm['address']}", "--", "uname", "-r", ""], False))
                    self.assertIn("StrictHostKeyChecking=yes", words)
            self.assertEqual(run(self.w, "release", vm["lease"]).returncode, 0)
            self.ready()

    def test_renew(self):
        lease = self.w.lease(ttl_ms=3000)["lease"]
        for args, words in ((("--ttl", "2h"), "ends in 2h00m\n"), (("--ttl", "30m"), "ends in 2h00m as before; --force makes it less\n"),
                            (("--ttl", "30m", "--force"), "ends in 30m\n")):
            r = run(self.w, "lease", "renew", lease, *args)
            self.assertEqual((r.returncode, r.stdout), (0, words))
        self.assertEqual(run(self.w, "lease", "renew", lease, "--ttl", "1s", "--force").returncode, 0)
        self.w.await_state("one", "READY")
        self.assertEqual(run(self.w, "lease", "renew", lease, "--ttl", "1h").returncode, 4)
        self.ready()

    def test_set_before_the_first_vm(self):
        r = run(self.w, "pool", "set", "later", "--cpus", "4")
        self.assertEqual((r.returncode, r.stdout), (0, ""))
        self.assertIn("pool later has no VM yet", r.stderr)
        self.assertIn("cpus             4\n", run(self.w, "pool", "set", "later").stdout)
        self.assertEqual(run(self.w, "pool", "set", "default", "--cpus", "4").stderr, "")

    def test_exec(self):
        r = run(self.w, "lease", "--exec", "sh", "-c", ENVIRONMENT + "; exit 7")
        lines = r.stdout.splitlines()
        lease, name, address, port = lines[0].split()
        self.assertEqual((r.returncode, name, port, lines[2], r.stderr), (7, "one", "22", "600", ""))
        self.assertRegex(lease, "^[0-9a-f]{32}$")
        self.assertEqual(lines[1], f"one,{address} ssh-ed25519 AAAA+one+1")
        self.ready()
        # Its options are its own; "--" says the same, and what is before it is ours.
        r = run(self.w, "lease", "one", "--", "printf", "%s ", "--pool", "--", "--json")
        self.assertEqual((r.returncode, r.stdout), (0, "--pool -- --json "))
        self.ready()

    def test_exec_ends_by_a_signal(self):
        self.assertEqual(run(self.w, "lease", "--exec", "sh", "-c", "kill -9 $$").returncode, 137)
        self.ready()

    def test_exec_cannot_run(self):
        for command, status, words in ((("nosuchprogram",), 127, "nosuchprogram was not found"),
                                       (("/nonexistent/x",), 127, "/nonexistent/x"),
                                       (("/etc/passwd",), 126, "/etc/passwd cannot be run: Permission denied")):
            r = run(self.w, "lease", "--wait", "10s", "--exec", *command)
            self.assertEqual(r.returncode, status, r.stderr)
            self.assertIn(words, r.stderr)
        self.ready()

    def start_program(self, on_term, *options):
        """Runs for ever; its pid."""
        p = begin(self.w, "lease", *options, "--exec", "sh", "-c", f"trap '{on_term}' TERM; echo $$; while :; do sleep 0.1; done")
        return p, int(p.stdout.readline())

    def test_signals_are_passed_on(self):
        p, _ = self.start_program("echo got; exit 5")
        p.terminate()
        self.assertEqual((p.communicate(timeout=20)[0], p.returncode), ("got\n", 5))
        self.ready()

    def test_terminal_hangs_up(self):
        """As under `ssh -t`: we lead the session, and nobody else is told."""
        pid, master = pty.fork()
        if pid == 0:
            os.execve(HOST, [HOST, "lease", "--exec", "sh", "-c", "echo runs; sleep 60"], self.w.env)
        said = b""
        while b"runs" not in said:
            said += os.read(master, 4096)
        os.close(master)
        until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, 20)
        self.ready()

    def test_kill_ends_program_and_lease(self):
        p, pid = self.start_program("exit 1")
        self.assertEqual(self.w.state("one"), "LEASED")
        p.kill()
        p.wait(20)
        until(lambda: not os.path.exists(f"/proc/{pid}"))
        self.w.await_state("one", "READY")
        self.assertEqual(self.w.leases(), {})
        # Its file stays; the next one that is old enough to be nobody's is swept away.
        left = [f for f in os.listdir(self.w.path("run")) if f.startswith("known-hosts")]
        self.assertEqual(len(left), 1)
        os.utime(self.w.path("run", left[0]), (1, 1))
        self.assertEqual(run(self.w, "lease", "--exec", "true").returncode, 0)
        self.ready()
        p.stdout.close()
        p.stderr.close()

    def test_lease_ends_first(self):
        begun = time.monotonic()
        p, _ = self.start_program("echo ended; exit 6", "--ttl", "1s")
        out, err = p.communicate(timeout=30)
        self.assertEqual((out, p.returncode), ("ended\n", 6))
        self.assertRegex(err, r"lease [0-9a-f]{32} of one has ended: .*expired; the program gets SIGTERM in 10 s")
        self.assertGreater(time.monotonic() - begun, 10)
        self.ready()

    def test_ends_before_it_is_watched(self):
        """Granted and over while this process could not look: the program must not run beside the VM's next holder."""
        held = self.w.lease()["lease"]
        master, slave = pty.openpty()
        p = subprocess.Popen([HOST, "lease", "--ttl", "1s", "--wait", "1h", "--exec", "echo", "ran"], env=self.w.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, text=True)
        said = os.read(master, 4096)
        self.assertIn(b"no VM of pool default is ready", said)
        p.send_signal(signal.SIGSTOP)
        self.w.call("RELEASE", lease=held)
        until(lambda: self.w.running("one") == 3, 20)
        p.send_signal(signal.SIGCONT)
        out, _ = p.communicate(timeout=20)
        self.assertEqual((p.returncode, out), (126, ""))
        said = b""
        while select.select([master], [], [], 1)[0]:  # all that it has written, in whatever pieces
            said += os.read(master, 4096)
        self.assertRegex(said, rb"lease [0-9a-f]{32} of one has ended already; 'boxery-host history")
        os.close(master)
        os.close(slave)
        self.ready()

    def test_keeper_comes_back(self):
        """Ended or killed: the program and its VM are left alone, whether anything was delivered or not."""
        key = key_files(self.w.root)["id.pub"]
        for options, end in (((), self.w.end), ((), self.w.kill), (("--ssh-key", key), self.w.end)):
            with self.subTest(options=options, end=end.__name__):
                p, pid = self.start_program("echo got; exit 6", *options)
                lease, generation = self.w.vms()["one"]["lease"], self.w.running("one")
                end()
                self.assertEqual(p.stderr.readline(), "boxery-host: the keeper has gone away; its return is awaited for 30 s\n")
                self.w.start()
                until(lambda: "renewed" in [e["kind"] for e in self.w.history(lease=lease)])
                time.sleep(3.5)  # KEEPER_REJOIN_MS of the tests' keeper is over, and it is nobody's who has not come back
                self.assertEqual((p.poll(), self.w.running("one"), list(self.w.leases())), (None, generation, [lease]))
                self.w.call("RELEASE", lease=lease)  # it is told of the lease's end as before
                self.assertRegex(p.stderr.readline(), "^boxery-host: lease " + lease + " of one has ended: .*; the program gets SIGTERM")
                os.kill(pid, signal.SIGTERM)
                self.assertEqual((p.communicate(timeout=20)[0], p.returncode), ("got\n", 6))
                self.ready()

    def test_keeper_stays_away(self):
        p, _ = self.start_program("echo got; exit 6")
        self.w.end()
        out, err = p.communicate(timeout=90)
        self.assertEqual((out, p.returncode), ("got\n", 6))
        self.assertRegex(err, "of one cannot be held: the keeper has gone away: .*; the program gets SIGTERM in 10 s\n")
        self.w.start()
        self.ready()

    def test_program_ends_while_the_keeper_is_away(self):
        p, pid = self.start_program("exit 6")
        self.w.end()
        self.assertIn("awaited", p.stderr.readline())
        os.kill(pid, signal.SIGTERM)
        self.assertRegex(p.communicate(timeout=20)[1], "of one: no keeper answers at .*; it ends with this process")
        self.assertEqual(p.returncode, 6)
        self.w.start()
        self.ready()

    def test_stopped_while_much_happens(self):
        p, _ = self.start_program("echo got; exit 6", "one")
        lease = self.w.vms()["one"]["lease"]
        self.w.pool_vm("two")
        stop_until_dropped(self.w, p, "two")
        self.w.call("RELEASE", lease=lease)
        self.assertRegex(p.stderr.readline(), "^boxery-host: lease [0-9a-f]{32} of one has ended")
        p.terminate()
        self.assertEqual((p.communicate(timeout=20)[0], p.returncode), ("got\n", 6))
        self.ready()

    def test_wait_is_ended(self):
        held = self.w.lease()["lease"]
        for how in (signal.SIGINT, signal.SIGTERM):
            p = begin(self.w, "lease", "--wait", "1h")
            time.sleep(0.3)
            p.send_signal(how)
            out, err = p.communicate(timeout=20)
            self.assertEqual((p.returncode, out), (130, ""))
            self.assertIn("interrupted", err)
        # The reader is gone: a broken ssh connection looks like this.
        p = begin(self.w, "lease", "--wait", "1h")
        time.sleep(0.3)
        p.stdout.close()
        self.assertEqual(p.wait(20), 130)
        p.stderr.close()
        self.w.call("RELEASE", lease=held)
        self.ready()
        self.assertEqual(self.w.vms()["one"]["lease"], "")

    def test_interrupted_in_the_moment_of_the_lease(self):
        """Whatever comes first, no lease is left that nobody knows of."""
        for i in range(12):
            held = self.w.lease(wait_ms=20000)["lease"]
            p = begin(self.w, "lease", "--wait", "1h", "--json")
            time.sleep(0.15)
            self.w.call("RELEASE", lease=held)
            time.sleep(0.012 * i)
            p.send_signal(signal.SIGINT)
            out, _ = p.communicate(timeout=20)
            if p.returncode == 0:
                self.w.call("RELEASE", lease=json.loads(out)["lease"])
            else:
                self.assertIn(p.returncode, (130, -signal.SIGINT))
                self.assertEqual(out, "")
            self.ready()


class Quarantine(Case):
    """What a person reads about a VM that is broken or kept, and does about it."""

    def test_broken_and_kept(self):
        w = self.w.start()
        w.pool_vm("one")
        w.script("START-one", "fail 5 check the guest says no")
        w.stop_domain("one")
        w.await_state("one", "BROKEN", timeout=30)
        text = run(w, "pool", "show", "one").stdout
        for words in (r"^state +BROKEN since \S+Z, for \d+s$", r"^failures +3 in a row$", r"^at step +check$", r"^reason +the guest says no$",
                      r"^evidence +\S", r"boxery-host lease --broken one$", r"boxery-host pool repair one$", r"pool rm --force one$",
                      r"START_FAILED", r"^Console: .*/console/one.log"):
            self.assertRegex(text, re.compile(words, re.M))
        held = json.loads(run(w, "lease", "one", "--broken", "--json").stdout)
        self.assertEqual(run(w, "lease", "one", "--broken").returncode, 4)
        self.assertEqual(run(w, "pool", "repair", "one").returncode, 4)
        w.script("START-one", None)
        self.assertEqual(run(w, "release", held["lease"]).returncode, 0)
        w.await_state("one", "READY")
        # Kept, taken back, kept again and repaired.
        lease = w.lease()["lease"]
        for args in (("--for", "30m"), ("--no",), ()):
            self.assertEqual(run(w, "pool", "keep", "one", *args).returncode, 0)
        self.assertEqual(run(w, "release", lease).returncode, 0)
        w.await_state("one", "KEPT")
        self.assertRegex(run(w, "pool", "show", "one").stdout, re.compile(r"^evidence +/.*\nkept for +(59m|1h00m)$", re.M))
        self.assertEqual(run(w, "pool", "repair", "one", "--wait").returncode, 0)
        self.assertEqual(w.state("one"), "READY")


    def test_timeline(self):
        """A lease from its holder's name to the VM that is READY again; a VM from its birth on."""
        w = self.w.start()
        w.pool_vm("one")
        lease = w.lease(name="one")["lease"]
        w.deliver(lease)
        w.call("JOB_SEEN", lease=lease, text="build")
        w.stop_domain("one")
        w.await_state("one", "READY")
        life = "LEASE resume begin check DELIVER delivered JOB_SEEN STOPPED destroy RESET_DONE START overlay domain check STARTED".split()
        for args, kinds in ((("history", lease), life),
                            (("pool", "history", "one"), "NEW ADD MAINTAINED destroy RESET_DONE START overlay domain check STARTED".split() + life)):
            head, *lines = run(w, *args).stdout.splitlines()
            self.assertEqual(head.split(), "AT +SECONDS VM LIFE WHAT TOOK MS TEXT".split())
            rows = [line.split(maxsplit=6) for line in lines]
            self.assertEqual([r[4] for r in rows], kinds)
            self.assertEqual([float(r[1]) for r in rows], sorted(float(r[1]) for r in rows))
            self.assertEqual(rows[0][1], "0.000")
            self.assertRegex(rows[-len(life)][6], r"^READY -> LEASED: tester, runner boxery-[0-9a-f]{8}-[0-9a-f]{16}$")
            self.assertRegex(rows[-8][6], "^BUSY -> RESETTING: (the domain has stopped: shutdown|libvirt does not list it as running)$")
            self.assertEqual((rows[-len(life)][3], rows[-1][3]), ("1", "2"))

    def test_cold_only(self):
        w = self.w.start()
        w.pool_vm("one")
        w.script("WAKE-one", "fail 5 agent it does not answer")
        for i in (1, 2, 3):
            self.assertEqual(run(w, "lease", "one").returncode, 4)
            until(lambda: (v := w.vms()["one"])["state"] == "READY" and v["warm_failures"] == i)
            text = run(w, "pool", "show", "one").stdout
            self.assertRegex(text, re.compile(r"^starts +%s%d of its warm starts in a row ha(s|ve) failed, the last in step agent: it does not answer$"
                                              % ("cold only: " if i == 3 else "warm; ", i), re.M))
            self.assertEqual("To have it started warm again: boxery-host pool repair one" in text, i == 3)
            self.assertEqual("starts cold only, warm starts failed: agent: it does not answer" in run(w, "pool", "ls").stdout, i == 3)
            w.call("RELEASE", lease=w.lease()["lease"])
            w.await_state("one", "READY")
        self.assertEqual(run(w, "pool", "repair", "one").returncode, 0)
        self.assertNotIn("starts ", run(w, "pool", "show", "one").stdout)


class Screen(Case):
    """pool ls on a terminal."""

    def setUp(self):
        super().setUp()
        self.w.start()
        self.w.pool_vm("one", "two")
        self.out = b""

    def open(self, *args, columns=60, rows=10, env=None):
        pid, fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(HOST, [HOST, *args], {**self.w.env, "TERM": "xterm", **(env or {})})
        self.addCleanup(os.close, fd)
        return pid, fd

    def read_until(self, fd, what, timeout=15):
        end = time.monotonic() + timeout
        while not re.search(what, self.out) and time.monotonic() < end:
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    data = os.read(fd, 65536)
                except OSError:
                    data = b""
                if not data:
                    break
                self.out += data
        self.assertRegex(self.out, what)

    def finish(self, pid, fd):
        _, status = os.waitpid(pid, 0)
        while select.select([fd], [], [], 0.1)[0]:
            try:
                self.out += os.read(fd, 65536)
            except OSError:
                break
        return os.waitstatus_to_exitcode(status)

    def test_fits_and_colours(self):
        pid, fd = self.open("pool", "ls", columns=48)
        self.assertEqual(self.finish(pid, fd), 0)
        lines = self.out.decode().replace("\r", "").splitlines()
        self.assertIn("\x1b[32mREADY\x1b[0m", lines[1])
        for line in lines:
            self.assertLessEqual(len(re.sub(r"\x1b\[\d*m", "", line)), 80)

    def test_narrow(self):
        self.w.script("START-one", "fail 5 check " + "a long reason " * 12)
        self.w.stop_domain("one")
        self.w.await_state("one", "BROKEN", timeout=30)
        for columns in (80, 100):
            self.out = b""
            pid, fd = self.open("pool", "ls", columns=columns)
            self.assertEqual(self.finish(pid, fd), 0)
            lines = self.out.decode().replace("\r", "").splitlines()
            self.assertIn("…", self.out.decode())
            self.assertIn("\x1b[31mBROKEN\x1b[0m", self.out.decode())
            for line in lines:
                self.assertLessEqual(len(re.sub(r"\x1b\[\d*m", "", line)), columns, line)
        plain = run(self.w, "pool", "ls").stdout
        self.assertNotIn("…", plain)
        self.assertNotIn("\x1b", plain)
        self.assertIn("a long reason " * 8, plain)

    def test_no_colour(self):
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.out = b""
            pid, fd = self.open("pool", "ls", env=env)
            self.assertEqual(self.finish(pid, fd), 0)
            self.assertNotIn(b"\x1b", self.out)

    def test_watch(self):
        pid, fd = self.open("pool", "ls", "--watch", columns=120)
        self.read_until(fd, rb"two .*READY")
        self.assertTrue(self.out.startswith(b"\x1b[?1049h\x1b[?25l"))
        lease = self.w.lease(name="one")["lease"]
        self.read_until(fd, rb"one .*LEASED")
        before = self.out.count(b"\x1b[H")
        begun = time.monotonic()
        for _ in range(10):  # many changes, few pictures
            self.w.call("RELEASE", lease=lease)
            lease = self.w.lease(name="one", wait_ms=20000)["lease"]
        self.read_until(fd, lease.encode())
        self.assertLessEqual(self.out.count(b"\x1b[H") - before, 2 * (time.monotonic() - begun) + 2)
        os.write(fd, b"\x03")
        self.assertEqual(self.finish(pid, fd), 130)
        self.assertTrue(self.out.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), self.out[-80:])

    def test_watch_ends_with_the_keeper(self):
        pid, fd = self.open("pool", "ls", "--watch", columns=120)
        self.read_until(fd, rb"two .*READY")
        self.w.kill()
        self.assertEqual(self.finish(pid, fd), 8)
        self.assertRegex(self.out, rb"\x1b\[\?25h\x1b\[\?1049lboxery-host: .*keeper has gone away")
        self.w.start()

    def test_watch_fits(self):
        """... the terminal, also one whose size changes; and leaves it as it was."""
        self.w.script("START-one", "fail 5 check " + "a long reason " * 12)
        self.w.call("RELEASE", lease=self.w.lease(name="one")["lease"])
        self.w.await_state("one", "BROKEN", timeout=30)
        pid, fd = self.open("pool", "ls", "--watch", columns=90)
        before = termios.tcgetattr(fd)
        self.read_until(fd, rb"BROKEN")
        for columns in (90, 110):
            if columns == 110:
                self.out = b""
                fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))  # and SIGWINCH
                self.read_until(fd, rb"BROKEN[^\n]*\n")
            self.assertIn(b"\x1b[31mBROKEN\x1b[0m", self.out)
            frames = [re.sub(r"\x1b\[[?]?\d*[a-zA-Z]", "", x).replace("\r", "").splitlines() for x in
                      self.out.decode().split("\x1b[H")[1:]]
            lines = [line for frame in frames for line in frame]
            self.assertTrue(lines and all(len(x) <= columns for x in lines), lines)
            self.assertTrue(any("…" in x for x in lines), lines)
        os.write(fd, b"\x03")
        self.read_until(fd, rb"\x1b\[\?25h\x1b\[\?1049l")
        self.assertEqual(termios.tcgetattr(fd), before)
        self.assertEqual(self.finish(pid, fd), 130)

    def test_watch_few_rows(self):
        pid, fd = self.open("pool", "ls", "--watch", columns=120, rows=4)
        self.read_until(fd, rb"\.\.\. and 2 more")
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(self.finish(pid, fd), 130)

    def test_watch_that_was_stopped(self):
        """The keeper drops who does not read; the list takes the place of what was missed, and the watching goes on."""
        p = begin(self.w, "pool", "ls", "--watch")
        for name in ("one", "two"):
            self.assertRegex(p.stdout.readline(), name + " READY$")
        stop_until_dropped(self.w, p, "two")
        while " -> " in p.stdout.readline():
            pass
        self.assertRegex(p.stdout.readline(), "two [A-Z]+$")
        self.w.await_state("two", "READY")
        self.w.lease(name="one")
        while " one READY -> LEASED LEASE" not in p.stdout.readline():
            self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=20)
        self.assertEqual((p.returncode, err), (130, ""), out)

    def test_watch_without_a_terminal(self):
        self.w.pool_vm("other", pool="second")
        p = begin(self.w, "pool", "ls", "--watch", "--pool", "default")
        self.assertRegex(p.stdout.readline(), r"^\S+Z one READY$")
        self.assertRegex(p.stdout.readline(), r"^\S+Z two READY$")
        self.w.lease(name="other")
        lease = self.w.lease(name="one")["lease"]
        self.assertRegex(p.stdout.readline(), r"^\d{4}-\S+Z one READY -> LEASED LEASE$")
        self.w.call("RELEASE", lease=lease)
        self.assertRegex(p.stdout.readline(), r"^\S+Z one LEASED -> RESETTING RELEASE")
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(20), 130)
        p.stdout.close()
        p.stderr.close()


class Controller(Case):
    """`boxery` becomes boxery-host, or ssh with a terminal exactly where one is wanted."""

    def test_forwarding(self):
        w = self.w
        os.mkdir(w.path("fake"))
        w.write("fake/ssh", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
        os.chmod(w.path("fake/ssh"), 0o755)
        boxery = os.path.join(os.path.dirname(HOST), "boxery")
        env = {**w.env, "PATH": w.path("fake") + ":" + os.environ["PATH"]}

        def said(terminal, *args):
            if not terminal:
                return subprocess.run([boxery, "--host", "h", *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      timeout=20, check=True).stdout.splitlines()
            command = "stty -onlcr; exec " + shlex.join([boxery, "--host", "h", *args])
            out = b""
            pid, fd = pty.fork()
            if pid == 0:
                os.execve("/bin/sh", ["sh", "-c", command], env)
            while True:
                try:
                    data = os.read(fd, 65536)
                except OSError:
                    break
                if not data:
                    break
                out += data
            os.waitpid(pid, 0)
            os.close(fd)
            return out.decode().replace("\r", "").splitlines()

        exec_ = ("lease", "--exec", "echo", "it's")
        self.assertEqual(said(False, *exec_), ["-T", "--", "h", r"'boxery-host' 'lease' '--exec' 'echo' 'it'\''s'"])
        self.assertEqual(said(True, *exec_)[0], "-t")
        self.assertEqual(said(True, "lease", "one")[0], "-nT")
        self.assertEqual(said(True, "pool", "ls", "--watch")[0], "-t")
        self.assertEqual(said(True, "pool", "show", "one")[0], "-nT")
        for command in ("pool", "lease", "release", "leases", "history"):
            self.assertEqual(said(False, command, "x")[3], f"'boxery-host' '{command}' 'x'")


if __name__ == "__main__":
    main()
