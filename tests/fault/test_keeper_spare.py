#!/usr/bin/python3
"""Children that are started ahead: each is used once, nothing depends on them, and they end with the keeper."""
import os
import signal

from keeper_world import Case, main, time, until


class Spare(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def used(self):
        """Who has begun an operation, in that order."""
        return [int(x) for x in self.w.lines("pids.log")]

    def lease(self):
        """A lease that has used whom it needed."""
        lease = self.w.lease(wait_ms=5000)["lease"]
        return lease, self.w.spares()

    def end(self, lease):
        """Its end: a reset and a start."""
        w = self.w
        generation = w.vms()["one"]["generation"]
        w.call("RELEASE", lease=lease)
        until(lambda: w.state("one") == "READY" and w.vms()["one"]["generation"] == generation + 1)

    def test_each_is_used_once(self):
        w = self.w
        w.pool_vm("one")
        for _ in range(4):
            lease, waiting = self.lease()
            before = len(self.used())
            self.end(lease)
            now = self.used()[before:]
            self.assertEqual(set(now), set(waiting), "reset and start were told to the two that waited")
        self.assertEqual(len(self.used()), len(set(self.used())), "a child did two things")

    def test_nothing_depends_on_them(self):
        w = self.w
        w.pool_vm("one")
        lease, waiting = self.lease()
        for pid in waiting:
            os.kill(pid, signal.SIGKILL)
        self.end(lease)
        # Not noticed yet: the keeper itself is stopped while they die.
        lease, waiting = self.lease()
        os.kill(w.keeper.pid, signal.SIGSTOP)
        for pid in waiting:
            os.kill(pid, signal.SIGKILL)
        os.kill(w.keeper.pid, signal.SIGCONT)
        self.end(lease)
        self.assertEqual(w.vms()["one"]["attempts"], 0)
        # None can be started any more: those that wait still do their work.
        lease, _ = self.lease()
        os.rename(w.path("bin/boxery-vm"), w.path("bin/away"))
        self.end(lease)
        os.rename(w.path("bin/away"), w.path("bin/boxery-vm"))
        w.spares()

    def test_one_that_hangs_is_ended(self):
        w = self.w
        w.pool_vm("one")
        lease, waiting = self.lease()
        for pid in waiting:
            os.kill(pid, signal.SIGSTOP)
        w.call("RELEASE", lease=lease)
        until(lambda: "RESET had no result within" in w.log(), 10)
        until(lambda: w.state("one") == "READY" and w.vms()["one"]["generation"] > 1, 10)

    def test_they_end_with_the_keeper(self):
        w = self.w
        w.spares()
        self.assertEqual(w.end(), 0)
        until(lambda: not w.children())
        w.start()
        w.spares()
        w.kill()
        self.assertEqual(w.children(), [])

    def test_none_without_libvirt(self):
        w = self.w
        w.spares()
        w.libvirt(False)
        until(lambda: "libvirt does not answer" in w.log())
        for pid in set(w.children()) - set(w.children(spares=False)):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        self.assertEqual(set(w.children()) - set(w.children(spares=False)), set())
        w.libvirt(True)
        w.spares()


if __name__ == "__main__":
    main()
