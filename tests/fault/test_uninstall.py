"""boxery-host uninstall: says what it will remove, refuses while something would be lost, leaves nothing of boxery's and everything of others."""
import os
import shutil
import socket
import stat
import subprocess
import threading

from keeper_world import Case, main

HOST = os.environ["BOXERY_HOST"]
BUSY, USAGE, OK = 4, 2, 0


class Uninstall(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(self.w.path("cache/sha256"))
        self.w.write("cache/sha256/00", "x" * 5000)
        self.w.write("config/runners.yaml", "version: 1\n")
        self.w.write("config/runners.env", "GITHUB_TOKEN=x\n")
        os.makedirs(self.w.path("images/base/debian-12"))
        self.w.write("images/base/debian-12/disk.qcow2", "x" * 70000)
        os.chmod(self.w.path("images/base/debian-12"), 0o555)
        # No systemd here, until a test has one.
        self.systemctl("exit 1")
        self.w.env["PATH"] = self.w.path("systemctl") + ":" + self.w.env["PATH"]
        if self.id().endswith("as_the_system_has_it"):
            self.w.env["BOXERY_STATE_DIR"] = self.w.path("images/state")
            os.makedirs(self.w.path("images/state"), 0o700)
        self.w.start()

    def systemctl(self, script):
        os.makedirs(self.w.path("systemctl"), exist_ok=True)
        path = self.w.path("systemctl/systemctl")
        self.w.write("systemctl/systemctl", "#!/bin/sh\n" + script + "\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def run_it(self, *args):
        return subprocess.run([HOST, "uninstall", *args], env=self.w.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False)

    def ended(self):
        self.assertEqual(self.w.keeper.wait(30), 0)

    def there(self):
        return sorted(f for f in ("config", "state", "run", "images", "cache") if os.path.exists(self.w.path(f)))

    def refused(self, words, *args, status=BUSY):
        before = self.w.vms()
        done = self.run_it(*args)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(list(self.w.vms()), list(before))
        self.assertEqual(len(self.there()), 5)
        self.assertEqual(self.w.lines("uninstalls.log"), [])
        return done

    def test_nothing_is_left(self):
        w = self.w
        w.new("plain")
        w.new("one")
        w.call("POOL_ADD", name="one", count=3, flags=4)
        done = self.run_it("--yes")
        self.assertEqual(done.returncode, OK, done.stderr)
        for words in ("VM       plain, PLAIN", "VM       one of pool default, READY", "VM       one-3 of pool default",
                      "network  boxery, its bridge virbr-boxery", "folder   %s (1 files" % w.path("images"),
                      "folder   %s (1 files, 0 MiB)" % w.path("cache")):
            self.assertIn(words, done.stdout)
        self.assertEqual(self.there(), [])
        for folder in ("settings", "domains", "clean", "run", "broken"):
            self.assertEqual(os.listdir(w.path("world", folder)), [], folder)
        self.assertEqual(w.lines("uninstalls.log"), ["gone"])
        self.ended()

    def test_state_in_the_image_folder_as_the_system_has_it(self):
        os.rmdir(self.w.path("state"))
        self.w.pool_vm("one")
        done = self.run_it("--yes")
        self.assertEqual((done.returncode, self.there()), (OK, []), done.stderr)
        self.assertNotIn("boxery has not made", done.stdout)
        self.ended()

    def test_others_things_stay(self):
        w = self.w
        os.mkdir(w.path("elsewhere"))
        w.write("elsewhere/precious", "mine")
        w.write("images/holiday.jpg", "mine")
        w.write("config/controller.json", "{}")
        os.symlink(w.path("elsewhere"), w.path("images/base/link"))
        os.symlink(w.path("elsewhere"), w.path("images/console"))
        done = self.run_it("--yes", "--keep-cache")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("but not holiday.jpg in it: boxery has not made that", done.stdout)
        self.assertIn("kept     " + w.path("cache"), done.stdout)
        self.assertEqual(self.there(), ["cache", "config", "images"])
        self.assertEqual((os.listdir(w.path("images")), os.listdir(w.path("config"))), (["holiday.jpg"], ["controller.json"]))
        self.assertEqual(os.listdir(w.path("elsewhere")), ["precious"])
        self.assertTrue(os.path.exists(w.path("cache/sha256/00")))
        self.ended()

    def test_nobody_can_be_asked(self):
        self.refused("nothing was removed: say --yes", status=USAGE)

    def test_refuses_what_would_be_lost(self):
        w = self.w
        w.pool_vm("one")
        lease = w.lease(name="one")["lease"]
        self.refused("one is leased by tester", "--yes")
        w.call("REGISTER", lease=lease, registration=2, runner_id=7)
        w.call("RELEASE", lease=lease)
        w.await_state("one", "READY")
        self.refused("may still be at GitHub", "--yes")
        w.lease(name="one")
        self.assertEqual(self.run_it("--yes", "--force").returncode, OK)
        self.assertEqual(self.there(), [])
        self.ended()

    def test_the_service_runs(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.bind(self.w.path("run/runners.sock"))
            s.listen(8)

            def hang_up():  # whatever it says: it listens, so it runs
                for _ in range(3):
                    s.accept()[0].close()
            answering = threading.Thread(target=hang_up)
            answering.start()
            self.refused("the runner service runs: ", "--yes")
            self.refused("the runner service runs: ", "--yes", "--force")
            # Units there are, but this one is none of them.
            self.systemctl('[ "$2" != list-unit-files ] || echo "boxery-runners.service disabled enabled"')
            self.refused("the runner service runs: ", "--yes")
            answering.join()

    def test_units(self):
        told = self.w.path("told")
        self.systemctl('case "$2" in list-unit-files)\n'
                       'echo "boxery-github.socket enabled enabled"; echo "boxery-github@.service static -"\n'
                       'echo "boxery-runners.service enabled enabled";;\n'
                       '*) echo "$@" >> %s;; esac' % told)
        done = self.run_it("--yes")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("unit     boxery-runners.service is stopped and disabled", done.stdout)
        with open(told, encoding="utf-8") as f:
            self.assertEqual(f.read(), "--user disable --now boxery-github.socket boxery-runners.service\n")
        self.ended()

    def test_units_that_do_not_stop(self):
        self.systemctl('[ "$2" = list-unit-files ] && echo "boxery-runners.service enabled enabled" && exit 0\n'
                       'echo "Failed to disable: no" >&2; exit 1')
        self.w.pool_vm("one")
        self.refused("cannot stop and disable the units", "--yes", status=1)

    def test_again_after_a_failure(self):
        w = self.w
        w.pool_vm("one")
        w.script("UNINSTALL", "fail 5 network libvirt will not")
        done = self.run_it("--yes")
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("libvirt will not", done.stderr)
        self.assertEqual((w.vms(), len(self.there())), ({}, 5))
        w.script("UNINSTALL", None)
        self.assertEqual(self.run_it("--yes").returncode, OK)
        self.assertEqual(self.there(), [])
        self.ended()

    def test_killed_again_and_again(self):
        """kill -9 after a while that grows: each run goes on where the last one was cut off. Settings go last, so that it can."""
        w = self.w
        w.new("plain")
        w.new("one")
        w.call("POOL_ADD", name="one", count=3, flags=4)
        for i in range(300):
            os.makedirs(w.path("images/base/debian-12/%d" % i) if i % 10 == 0 else w.path("cache/sha256/d%d" % i))
        shutil.copy(HOST, w.path("bin/boxery-host"))  # with the keeper beside it that it may have to start
        patience, runs = 0.0, 0
        while os.path.exists(w.path("config/host.env")):
            runs += 1
            self.assertLess(runs, 400)
            command = subprocess.Popen([w.path("bin/boxery-host"), "uninstall", "--yes"], env=w.env, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                command.wait(patience)
            except subprocess.TimeoutExpired:
                command.kill()
                command.wait()
            patience += 0.002
        self.assertGreater(runs, 5)
        self.assertLessEqual(set(self.there()), {"config"})
        for folder in ("settings", "domains", "clean"):
            self.assertEqual(os.listdir(w.path("world", folder)), [], folder)
        self.assertGreaterEqual(len(w.lines("uninstalls.log")), 1)
        w.keeper.wait(30)


main()
