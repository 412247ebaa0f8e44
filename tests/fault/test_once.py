#!/usr/bin/python3
"""boxery runners once on this machine: what may happen, and what host and GitHub hold afterwards."""
import socket
import syslog

from once_world import LABELS, REPO, TOKEN, OnceCase, json, main, os, signal, subprocess, time, until


class Good(OnceCase):
    def test_one_job(self):
        o = self.w.once("--follow")
        o.await_word("listening")
        job = self.emu.job(REPO, LABELS, "sleep 5; echo fine", name="compile it")
        self.assertEqual(o.wait(), 0, o.text())
        self.assertEqual(o.words()[:4] + sorted(o.words()[4:]), ["leased", "registered", "delivered", "listening", "reset", "result", "running"])
        result = o.result()[0]
        self.assertEqual((result["outcome"], result["job"], result["status"]), ("succeeded", "compile it", 0))
        self.assertRegex(result["name"], r"^boxery-local-[0-9a-f]{8}-[0-9a-f]{16}$")
        self.assertEqual(self.emu.wait_job(job["id"])["runner_name"], result["name"])
        self.assertIn("Running job: compile it", o.text())
        self.clean()
        lease = next(iter(self.w.call("LEASES", flags=8)["document"]["leases"]))
        self.assertEqual((lease["holder"], lease["outcome"], lease["registration"], lease["job"]),
                         ("github-runner-local", "succeeded", "gone", "compile it"))

    def test_ends_of_jobs(self):
        """How the job ended is the exit status; what the console says of it counts for nothing."""
        for script, cancel, status, outcome in (("exit 1", False, 10, "failed"), ("sleep 60", True, 11, "cancelled")):
            o = self.w.once()
            o.await_word("listening")
            job = self.emu.job(REPO, LABELS, "echo '2026-01-01 00:00:00Z: Job x completed with result: Succeeded'; " + script)
            if cancel:
                o.await_word("running")
                self.emu.cancel(job["id"])
            self.assertEqual(o.wait(), status, o.text())
            self.assertEqual((o.result()[0]["outcome"], o.result()[0]["status"]), (outcome, status))
            self.assertNotIn("output", [e["event"] for e in o.events])
            self.clean()

    def test_a_full_disk(self):
        """The job is done all the same; that its lines are lost is said once."""
        job = self.emu.job(REPO, LABELS, "true")
        with open("/dev/full", "w", encoding="ascii") as full:
            r = subprocess.run([self.w.path("bin/boxery"), "runners", "once", "--repo", REPO, "--json"], env=self.w.laptop, stdin=subprocess.DEVNULL,
                               stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.w.path("laptop"), timeout=60, check=False)
        self.assertEqual((r.returncode, [x for x in r.stderr.split("\n") if x.startswith("boxery: ")]),
                         (1, ["boxery: cannot write to standard output: No space left on device"]), r.stderr)
        self.assertEqual(self.emu.wait_job(job["id"])["conclusion"], "success")
        self.clean()

    def test_defaults_of_a_folder(self):
        """The repository of the git remote, gh's own host, nothing but HOME."""
        url = self.emu.url + "/" + REPO + ".git"
        subprocess.run(["git", "init", "-q", self.w.path("laptop")], check=True)
        subprocess.run(["git", "-C", self.w.path("laptop"), "remote", "add", "origin", url], check=True)
        self.emu.job(REPO, LABELS, "true")
        # A token that is for another host does not go to whatever host the remote is of.
        o = self.w.once(repo=None, env={"GH_ENTERPRISE_TOKEN": "gho_elsewhere", "GITHUB_ENTERPRISE_TOKEN": "gho_elsewhere"})
        self.assertEqual(o.wait(), 0, o.text())
        self.clean()
        self.assertEqual(self.w.once(repo=None, env={"GH_ENTERPRISE_TOKEN": "gho_elsewhere", "GH_HOST": self.emu.url.split("//")[1]}).wait(), 6)
        self.clean()

    def test_a_gh_that_shows(self):
        """What a person has set for gh at a terminal changes nothing here; a pager gets to see nothing."""
        self.w.write("bin/pager", f"#!/bin/sh\ncat >>{self.w.path('laptop/paged')}\n")
        os.chmod(self.w.path("bin/pager"), 0o755)
        o = self.w.once("--idle-timeout", "1s", env={"CLICOLOR_FORCE": "1", "GH_FORCE_TTY": "80", "GH_DEBUG": "api", "DEBUG": "api",
                                                     "GH_PAGER": self.w.path("bin/pager")})
        self.assertEqual(o.wait(), 12, o.text())
        self.assertFalse(os.path.exists(self.w.path("laptop/paged")))
        self.clean()

    def test_closed_standard_fds(self):
        """As of a daemon's: nothing of the link takes their place."""
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            p = subprocess.run(["sh", "-c", f"exec {closed}; exec boxery runners once --repo {REPO} --idle-timeout 1s --follow"], env=self.w.laptop,
                               cwd=self.w.path("laptop"), capture_output=True, timeout=60, check=False)
            self.assertEqual(p.returncode, 12, (closed, p.stdout, p.stderr))
            self.clean()

    def test_a_reader_that_stands_still(self):
        """As of a pager: what the runner prints is left out, and everything else goes on."""
        p = subprocess.Popen([self.w.path("bin/boxery"), "runners", "once", "--repo", REPO, "--follow", "--idle-timeout", "4s"], env=self.w.laptop,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.w.path("laptop"))
        self.w.started.append(p)
        until(lambda: self.w.state("one") in ("DELIVERED", "BUSY"))
        time.sleep(0.5)
        with open(self.w.path("images/console/one.log"), "ab") as console:
            for _ in range(700):
                console.write(b"flood " * 60 + b"\n")
        until(lambda: [r for r in self.emu.runners() if r["ended"] == "deleted"], 30)
        self.clean()
        text = p.stdout.read()
        self.assertEqual(p.wait(30), 12)
        self.assertRegex(text, rb"\(\d+ lines left out\)|[^\n]\n\[.*\] (reset|result) ")
        self.assertLess(len(text), 180000)
        self.assertGreater(len(text), 100000)
        self.assertIn(b" result ", text)
        self.assertIn(b" reset ", text)

    def test_organisation(self):
        self.emu.call("POST", "orgs", {"login": "octo", "groups": [{"name": "closed", "visibility": "all", "allows_public_repositories": False},
                                                                   {"name": "open", "visibility": "all", "allows_public_repositories": True}]})
        for group, status, words in (("open", 6, "open to public repositories"), ("none", 3, "no runner group 'none'")):
            o = self.w.once("--org", "octo", "--group", group, repo=None)
            self.assertEqual(o.wait(), status, o.text())
            self.assertIn(words, o.text())
        o = self.w.once("--org", "octo", "--group", "closed", repo=None)
        o.await_word("listening")
        self.emu.job(REPO, LABELS, "sleep 1")
        # Whose job it was nobody can say, so nothing is confirmed.
        self.assertEqual(o.wait(), 15, o.text())
        self.assertEqual(o.result()[0]["outcome"], "unknown")
        self.clean()
        # Unless it was one of this folder's repository; a folder of somewhere else counts for nothing, its GitHub neither.
        git = ["git", "-C", self.w.path("laptop")]
        subprocess.run(["git", "init", "-q", self.w.path("laptop")], check=True)
        for url, status in (("https://127.0.0.1:1/else/where", 15), (self.emu.url + "/" + REPO + ".git", 0)):
            subprocess.run([*git, "config", "remote.origin.url", url], check=True)
            o = self.w.once("--org", "Octo", "--group", "closed", repo=None)
            o.await_word("listening")
            self.emu.job(REPO, LABELS, "sleep 1")
            self.assertEqual(o.wait(), status, o.text())
            self.clean()


class Canaries(OnceCase):
    @staticmethod
    def environment(pid):
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()

    def test_they_can_fail(self):
        """Each place that is searched, with a secret planted there."""
        self.emu.job(REPO, LABELS, "true")
        o = self.w.once()
        self.assertEqual(o.wait(), 0, o.text())
        self.clean()

        def found(where):
            with self.assertRaises(AssertionError, msg=where):
                self.secrets_are_nowhere()
        for secret in (self.needles()[0], self.needles()[-1], TOKEN):
            for argv, env in ((["sleep", "60"], {"X": "x" + secret}), (["sh", "-c", "sleep 60; true", "sh", secret], {})):
                p = subprocess.Popen(argv, env={"PATH": "/usr/bin:/bin", **env}, start_new_session=True)
                until(lambda p=p: self.environment(p.pid))  # it is itself by then
                found(argv[0])
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
            for name in ("state/left", "images/console/one.log", "run/left", "config/left", "keeper.log"):
                path = self.w.path(name)
                size = os.path.getsize(path) if os.path.exists(path) else 0
                with open(path, "ab") as f:
                    f.write(b"." * (1 << 20) + secret.encode())  # over a block's edge
                found(name)
                os.truncate(path, size)
            # What sshd and others say to syslog(3), and a service of systemd to the journal.
            syslog.syslog("a word " + secret)
            found("syslog")
            self.journal.forget()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
                s.sendto(b"MESSAGE=" + secret.encode(), "/run/systemd/journal/socket")
            found("the journal")
            self.journal.forget()
            self.secrets_are_nowhere()
        self.w.write("tools/link.c2h", '{"type":"hello","token":"%s"}' % TOKEN)
        found("the link")
        os.unlink(self.w.path("tools/link.c2h"))
        # A row of the database.
        lease = self.w.lease()["lease"]
        self.refused(22, "only after the delivery", self.w.call, "JOB_SEEN", lease=lease, text=TOKEN)
        found("the database")
        self.w.call("RELEASE", lease=lease)


class Several(OnceCase):
    pool = ("one", "two", "three")

    def test_three_at_once(self):
        o = self.w.once("--count", "3")
        until(lambda: o.words().count("listening") == 3 or o.process.poll() is not None, 60)
        for i in range(3):
            self.emu.job(REPO, LABELS, "exit %d" % (i == 1), name="job %d" % i)
        self.assertEqual(o.wait(), 10, o.text())
        self.assertEqual(sorted(r["outcome"] for r in o.result()), ["failed", "succeeded", "succeeded"])
        self.assertEqual(len({r["name"] for r in o.result()}), 3)
        self.assertEqual(len({r["vm"] for r in o.result()}), 3)
        for name in self.pool:
            self.clean(name)

    def test_more_than_there_are(self):
        o = self.w.once("--count", "4", "--wait", "0", "--idle-timeout", "2s")
        status = o.wait()
        self.assertEqual(sorted(r["status"] for r in o.result()), [4, 12, 12, 12], o.text())
        # That of the first one, whichever of them got no VM.
        self.assertEqual(status, next(r["status"] for r in o.result() if r["runner"] == 1))
        for name in self.pool:
            self.clean(name)


class Refused(OnceCase):
    """Before anything is leased: the VM has not been touched."""

    def refuse(self, status, words, *args, **more):
        o = self.w.once(*args, **more)
        self.assertEqual(o.wait(), status, o.text())
        self.assertIn(words, o.text())
        self.assertEqual(self.w.ops("RESET"), self.resets)
        self.assertEqual([x for x in o.words() if x != "result"], [])
        self.clean()

    def setUp(self):
        super().setUp()
        self.resets = self.w.ops("RESET")

    def test_repository(self):
        self.emu.repo("octo/public", private=False)
        self.refuse(6, "octo/public is not private", repo="octo/public")
        self.refuse(3, "there is no repository octo/nothing", repo="octo/nothing")
        self.emu.repo("octo/strange", drop=["private"])
        self.refuse(6, "octo/strange is not private", repo="octo/strange")
        self.emu.repo("octo/strange", override={"private": "true"})
        self.refuse(6, "octo/strange is not private", repo="octo/strange")
        for visibility in ("public", "restricted", None):
            self.emu.repo("octo/contrary", override={"private": True, "visibility": visibility})
            self.refuse(6, "octo/contrary is not private", repo="octo/contrary")
        self.emu.repo("octo/reader", override={"permissions": {"admin": False}})
        self.refuse(6, "no administrator", repo="octo/reader")
        self.refuse(2, "no git remote", repo=None)

    def test_internal(self):
        """Private to an enterprise is private."""
        self.emu.repo("octo/internal", private=True, visibility="internal")
        o = self.w.once("--idle-timeout", "1s", repo="octo/internal")
        self.assertEqual(o.wait(), 12, o.text())
        self.clean()

    def test_another_github(self):
        """What is said with --repo is what is asked, whatever GH_HOST says."""
        self.refuse(8, "https://127.0.0.1:1/", repo="127.0.0.1:1/" + REPO, env={"GH_HOST": self.emu.url.split("//")[1]})

    def test_login(self):
        self.w.login(None)
        # gh then asks github.com without a token; without a network that is no answer.
        self.refuse(6, "gh is not logged in", env={"GH_HOST": self.emu.url.split("//")[1]})
        self.w.login("gho_wrong")
        self.refuse(6, "gh auth login")
        self.emu.fault("GET", "repos/", "drop-before", count=-1)
        self.w.login(TOKEN)
        self.refuse(8, "GitHub cannot be asked")
        self.emu.clear_faults()
        self.emu.fault("GET", "repos/", "answer", status=200, body="<html>", count=-1)
        self.refuse(1, "not JSON")

    def test_no_gh(self):
        path = self.w.path("nogh")
        os.mkdir(path)
        for name in ("git", "bash", "sh"):
            os.symlink("/usr/bin/" + name, os.path.join(path, name))
        self.refuse(7, "gh, GitHub's command line client, is not on this machine", env={"PATH": self.w.path("bin") + ":" + path})

    def test_usage(self):
        for args, words in ((("--count", "0"), "--count"), (("--org", "x"), "exclude each other"), (("--group", "g"), "--group goes with"),
                            (("--pool", "No Pool"), "pool name"), (("--label", "a b"), "--label"), (("--label", "good,\udcff"), "--label"),
                            (("--label", "\x1b[1m"), "--label"),
                            (("--label", ""), "--label: a value is empty"), (("--label", "one,,two"), "--label: a value is empty"),
                            (("--label", "one,"), "--label: a value is empty"), (("stray",), "unexpected argument")):
            o = self.w.once(*args)
            self.assertEqual(o.wait(), 2, o.text())
            self.assertIn(words, o.text())

    def test_no_host(self):
        self.w.login(TOKEN)
        os.unlink(self.w.path("bin/boxery-host"))
        self.refuse(3, "cannot run boxery-host")

    def test_pool(self):
        o = self.w.once("--pool", "nothing")
        self.assertEqual(o.wait(), 3, o.text())
        self.assertIn("pool nothing has no VM", o.text())
        self.clean()


class Registering(OnceCase):
    def test_no_permission(self):
        self.emu.call("POST", "tokens", {"token": "gho_reader", "repos": [REPO], "permissions": {"metadata": "read", "actions": "read"}})
        self.w.login("gho_reader")
        o = self.w.once()
        self.assertEqual(o.wait(), 6, o.text())
        self.assertIn("administration=write", o.text())
        self.assertEqual(o.words(), ["leased", "result", "reset"])
        self.clean()

    def test_conflict(self):
        self.emu.fault("POST", "generate-jitconfig", "answer", status=409, body={"message": "Already exists"})
        o = self.w.once()
        self.assertEqual(o.wait(), 4, o.text())
        self.assertEqual(o.result()[0]["outcome"], "mint conflict")
        self.clean()

    def test_registered_all_the_same(self):
        """The answer is an error, or is lost, and the registration is there: it is found by its name and deleted."""
        for action, more, status in (("answer-after", {"status": 502, "body": "bad gateway"}, 1), ("drop-after", {}, 8),
                                     ("answer-after", {"status": 201, "body": "half"}, 1)):
            self.emu.fault("POST", "generate-jitconfig", action, **more)
            o = self.w.once()
            self.assertEqual(o.wait(), status, o.text())
            self.assertNotIn("delivered", o.words())
            self.assertEqual([r["ended"] for r in self.emu.runners()][-1], "deleted")
            self.clean()

    def test_rate_limit(self):
        self.emu.fault("POST", "generate-jitconfig", "rate-limit", kind="secondary")
        o = self.w.once()
        self.assertEqual(o.wait(), 4, o.text())
        self.assertIn("rate limit", o.text())
        self.clean()

    def test_no_jit_config(self):
        self.emu.fault("POST", "generate-jitconfig", "patch", json={"encoded_jit_config": 5})
        o = self.w.once()
        self.assertEqual(o.wait(), 1, o.text())
        self.clean()
        self.emu.fault("POST", "generate-jitconfig", "patch", json={"encoded_jit_config": "no base64!" * 20})
        o = self.w.once()
        self.assertEqual(o.wait(), 1, o.text())
        self.assertIn("not one line of padded base64", o.text())
        self.clean()


class Waiting(OnceCase):
    def test_no_vm(self):
        held = self.w.lease(ttl_ms=60000)["lease"]
        o = self.w.once("--wait", "0")
        self.assertEqual(o.wait(), 4, o.text())
        self.assertIn("no VM of pool default is ready: 1 LEASED", o.text())
        o = self.w.once("--wait", "1s")
        self.assertEqual(o.wait(), 4, o.text())
        o = self.w.once("--wait", "1m", "--idle-timeout", "1s")
        until(lambda: "1 LEASED" in o.text(), 20)
        self.w.call("RELEASE", lease=held)
        self.assertEqual(o.wait(), 12, o.text())
        self.clean()

    def test_killed_while_it_waits(self):
        """Nobody stands in the queue for somebody who has gone."""
        held = self.w.lease(ttl_ms=60000)["lease"]
        for victim, status in (("boxery", -signal.SIGKILL), ("boxery-runners", 8)):
            o = self.w.once("--wait", "1m")
            until(lambda o=o: "1 LEASED" in o.text(), 20)
            for p in [p for p in self.w.children() if os.path.basename(self.exe(p)) == victim]:
                os.kill(p, signal.SIGKILL)
            self.assertEqual(o.wait(), status, o.text())
        until(lambda: not [p for p in self.w.children() if "boxery-runners" in self.exe(p)])
        self.w.call("RELEASE", lease=held)
        self.clean()
        self.assertEqual(self.w.leases("github-runner-local"), {})

    def test_idle(self):
        o = self.w.once("--idle-timeout", "1s")
        self.assertEqual(o.wait(), 12, o.text())
        self.assertEqual(o.result()[0]["outcome"], "no job")
        self.assertEqual(self.emu.runners()[-1]["ended"], "deleted")
        self.clean()

    def test_job_timeout(self):
        self.emu.job(REPO, LABELS, "sleep 100")
        o = self.w.once("--job-timeout", "1s")
        self.assertEqual(o.wait(), 13, o.text())
        self.assertEqual(o.result()[0]["outcome"], "job deadline")
        # GitHub takes it for busy until its own limit has passed.
        self.assertIn("is left, offline and useless", o.text())
        self.clean(registered=1)

    def test_vanished(self):
        self.emu.behaviour("vanish", seconds=1)
        o = self.w.once()
        self.assertEqual(o.wait(), 12, o.text())
        self.clean()


class Dying(OnceCase):
    def test_delivery_fails(self):
        for how in ("fail 5 the guest does not take it", "sentfail 5 cut off", "crash"):
            self.w.script("deliver", how)
            o = self.w.once()
            self.assertEqual(o.wait(), 14, o.text())
            self.assertEqual(o.result()[0]["outcome"], "delivery failed")
            self.w.script("deliver", None)
            self.clean()

    def test_vm_dies_idle(self):
        """However it ended, and whether that was seen: GitHub still knows the runner, so no job came and none was waited for to the end."""
        for how in ("crashed", "shutdown", "missed"):
            self.w.script("WATCH", "deaf" if how == "missed" else None)
            o = self.w.once()
            o.await_word("listening")
            self.w.guest.kill("one", how)
            self.assertEqual(o.wait(), 14, o.text())
            self.assertEqual(o.result()[0]["outcome"], "guest died")
            self.w.script("WATCH", None)
            self.clean()

    def dies_in_the_job(self, how, **settings):
        self.emu.settings(**settings)
        self.emu.job(REPO, LABELS, "sleep 100", name="long")
        o = self.w.once()
        o.await_word("running")
        self.w.guest.kill("one", how)
        return o, o.wait(120)

    def test_vm_dies_in_the_job(self):
        """GitHub takes the job for a running one for ten minutes more, so it is the VM's end that is told."""
        for how in ("crashed", "shutdown"):
            o, status = self.dies_in_the_job(how)
            self.assertEqual((status, o.result()[0]["outcome"]), (14, "guest died"), o.text())
            self.clean(registered=1)
            self.new_github()

    def test_github_says_how_the_job_ended(self):
        """Its word counts, whatever became of the VM meanwhile."""
        o, status = self.dies_in_the_job("crashed", lease_seconds=2)
        self.assertEqual((status, o.result()[0]["outcome"]), (10, "failed"), o.text())
        self.clean()


class Interrupted(OnceCase):
    def interrupt(self, word, how=signal.SIGINT, status=130):
        o = self.w.once()
        if word:
            o.await_word(word)
        o.process.send_signal(how)
        self.assertEqual(o.wait(), status, o.text())
        self.clean()
        return o

    def test_every_stage(self):
        for word in ("leased", "registered", "delivered", "listening"):
            self.interrupt(word)
        self.interrupt("listening", signal.SIGTERM)
        self.interrupt("leased", signal.SIGHUP)

    def test_nohup(self):
        """Who started it wants SIGHUP ignored."""
        o = self.w.once(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        o.await_word("leased")
        o.process.send_signal(signal.SIGHUP)
        o.await_word("listening")
        o.process.send_signal(signal.SIGTERM)
        self.assertEqual(o.wait(), 130, o.text())

    def test_while_it_waits(self):
        held = self.w.lease(ttl_ms=60000)["lease"]
        o = self.w.once("--wait", "1m")
        until(lambda: "1 LEASED" in o.text(), 20)
        o.process.send_signal(signal.SIGINT)
        self.assertEqual(o.wait(), 130, o.text())
        self.w.call("RELEASE", lease=held)
        self.clean()

    def test_at_once(self):
        for delay in (0.05, 0.2, 0.4, 0.6, 0.8, 1.0):
            o = self.w.once()
            time.sleep(delay)
            o.process.send_signal(signal.SIGINT)
            # As a shell has it, also of one that does not catch the signal yet.
            status = o.wait()
            self.assertEqual(status if status >= 0 else 128 - status, 130, o.text())
            self.clean()

    def test_a_job_is_waited_for(self):
        o = self.w.once()
        o.await_word("listening")
        job = self.emu.job(REPO, LABELS, "while [ ! -e %s ]; do sleep 0.1; done" % self.w.path("guest/go"))
        self.emu.wait_job(job["id"], "in_progress")
        o.process.send_signal(signal.SIGINT)
        until(lambda: "a job is running" in o.text(), 20)
        self.w.write("guest/go", "")
        self.assertEqual(o.wait(), 0, o.text())
        self.clean()

    def test_twice(self):
        o = self.w.once()
        o.await_word("listening")
        self.emu.job(REPO, LABELS, "sleep 100")
        o.await_word("running")
        o.process.send_signal(signal.SIGINT)
        until(lambda: "a job is running" in o.text(), 20)
        o.process.send_signal(signal.SIGINT)
        until(lambda: "the VM is taken back" in o.text(), 20)
        o.process.send_signal(signal.SIGINT)
        self.assertEqual(o.wait(), 130, o.text())
        self.assertRegex(o.text(), r"this ends within (300|29\d) seconds at the latest")
        self.clean(registered=1)


if __name__ == "__main__":
    main()
