#!/usr/bin/python3
"""Jobs through real VMs: secrets stay where they belong, kills in mid-job lose nothing, the network is closed."""
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import canary  # noqa: E402
from lab import LABELS, REPO, Lab, wait_until  # noqa: E402

JOB_TIMEOUT = 300


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab("job")
        try:
            cls.lab.start()
            cls.lab.new_pool_vm("one", wait=False)
            cls.lab.configure(max=1)
            cls.lab.wait_state("one", "READY")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if sys.exc_info()[0] or os.environ.get("BOXERY_SHOW_LOGS"):
            for name in ("state/keeper.log", "log/runners.log"):
                sys.stderr.write("--- %s\n%s\n" % (name, cls.lab.log(name)[-6000:]))
        cls.lab.stop()

    def setUp(self):
        self.before = self.made()
        self.service = self.lab.start_runners()

    def tearDown(self):
        if self.service.poll() is None:
            self.lab.stop_runners(self.service)

    # -- helpers

    def queue(self, name, script):
        return self.lab.emulator.job(REPO, LABELS, script, name=name)["id"]

    def running(self, job):
        return self.lab.emulator.wait_job(job, "in_progress", JOB_TIMEOUT)

    def finished(self, job):
        done = self.lab.emulator.wait_job(job, "completed", JOB_TIMEOUT)
        self.assertEqual(done["status"], "completed", done)
        return done

    def made(self):
        """How many registrations of ours GitHub has ever seen: names are random, so only the number can tell."""
        return len([r for r in self.lab.emulator.runners() if not r["foreign"]])

    def registrations(self, runner_name):
        return [r for r in self.lab.emulator.runners() if r["name"] == runner_name]

    def ready_after(self, generation):
        def probe():
            vm = self.lab.vm("one")
            return vm if vm["state"] == "READY" and vm["generation"] > generation else None
        return wait_until("one READY in a life after %d" % generation, probe, 300, every=0.5)

    def outcome(self, runner_name):
        def probe():
            for lease in self.lab.host_json("leases", "--all")["leases"]:
                if lease["runner_name"] == runner_name and not lease["open"] and lease["outcome"]:
                    return lease
            return None
        return wait_until("outcome of %s" % runner_name, probe, 120, every=1)

    def check_end(self, job, generation, conclusion="success", outcome="succeeded"):
        done = self.finished(job)
        self.assertEqual(done["conclusion"], conclusion, self.lab.emulator.log(job))
        self.ready_after(generation)
        lease = self.outcome(done["runner_name"])
        self.assertEqual(lease["outcome"], outcome)
        wait_until("registration gone", lambda: all(r["state"] == "gone" for r in self.registrations(done["runner_name"])), 90)
        self.assertEqual(self.made(), self.before + 1, "one job, one registration")
        self.before += 1
        return done, lease

    # -- tests

    def test_secrets_stay_where_they_belong(self):
        generation = self.lab.vm("one")["generation"]
        job = self.queue("canary", "sleep 20; echo done")
        runner = self.running(job)["runner_name"]
        made = self.registrations(runner)[0]
        config = made["encoded_jit_config"]
        needles = [config, config[100:180], self.lab.emulator.token] + made["needles"]
        emulator = self.lab.emulator.process.pid
        starter = {p for p in self.ancestors(emulator)} | {emulator}
        self.assertEqual(canary.in_processes(needles, skip=starter), [])
        allowed = (os.path.join(self.lab.dir, "config", "runners.env"),
                   os.path.join(self.lab.dir, "image", "run", "one.qcow2"))
        self.assertEqual(canary.in_files(self.lab.dir, needles, skip=lambda p: p in allowed), [])
        keeper = self.lab.keeper_pid()
        self.assertEqual(canary.in_memory(keeper, needles), set(), "the keeper passes the secret on, it must not read it")
        self.assertEqual(canary.in_memory(self.service.pid, needles), set(), "boxery-runners must see neither")
        # The search itself can find what it looks for.
        child = subprocess.Popen(["sleep", "30"], env={"X": self.lab.emulator.token})
        plant = os.path.join(self.lab.dir, "log", "planted")
        with open(plant, "w") as f:
            f.write("x" * 5000 + config[100:180])
        self.assertTrue(canary.in_processes(needles, skip=starter))
        self.assertTrue(canary.in_files(self.lab.dir, needles, skip=lambda p: p in allowed))
        os.unlink(plant)
        child.kill()
        child.wait()
        self.check_end(job, generation)
        # After the reset nothing of it is left anywhere, the new overlay included.
        self.assertEqual(canary.in_files(self.lab.dir, needles, skip=lambda p: p == allowed[0]), [])

    @staticmethod
    def ancestors(pid):
        while pid > 1:
            with open("/proc/%d/stat" % pid) as f:
                pid = int(f.read().rpartition(")")[2].split()[1])
            yield pid

    def kill_in_job(self, service, keeper):
        generation = self.lab.vm("one")["generation"]
        job = self.queue("kill", "sleep 15; echo survived")
        runner = self.running(job)["runner_name"]
        if service:
            self.service.kill()
            self.service.wait()
        if keeper:
            os.kill(self.lab.keeper_pid(), signal.SIGKILL)
        time.sleep(1)
        if service:
            self.service = self.lab.start_runners()
        done, lease = self.check_end(job, generation)
        self.assertEqual(done["runner_name"], runner)
        self.assertEqual(lease["generation"], generation)
        self.assertIn("survived", self.lab.emulator.log(job))

    def test_kill_service(self):
        self.kill_in_job(service=True, keeper=False)

    def test_kill_keeper(self):
        self.kill_in_job(service=False, keeper=True)

    def test_kill_both(self):
        self.kill_in_job(service=True, keeper=True)

    def test_term_leaves_the_job_alone(self):
        generation = self.lab.vm("one")["generation"]
        job = self.queue("term", "sleep 15")
        self.running(job)
        self.assertEqual(self.lab.stop_runners(self.service), 0)
        self.finished(job)
        self.service = self.lab.start_runners()
        self.check_end(job, generation)

    def test_failed_job_and_reboot(self):
        generation = self.lab.vm("one")["generation"]
        job = self.queue("fails", "exit 3")
        self.check_end(job, generation, "failure", "failed")
        generation = self.lab.vm("one")["generation"]
        self.lab.emulator.settings(lease_seconds=10, offline_after=5)
        job = self.queue("reboots", "sudo reboot -f; sleep 60")
        self.running(job)
        self.ready_after(generation)
        self.finished(job)
        self.assertEqual(self.made(), self.before + 1)
        self.lab.emulator.settings(lease_seconds=600, offline_after=45)


if __name__ == "__main__":
    unittest.main(verbosity=2)
