#!/usr/bin/python3
"""kill -9 of everything that takes part, at every moment of a real VM's life: it comes back by itself, and nothing is left.

    test_kill.py            the rows of QUICK
    test_kill.py --all      every row of TABLE
    test_kill.py --rows 'busy *' 'start:* qemu'

Over 60 rows of half a minute each. The rows of WARM are of a pool that starts warm and waits paused, the others of one that boots.

A row is a moment and a victim. The moment is brought about and waited for by looking at what is there (files, processes, the
keeper's states) every two milliseconds, then the victim is killed at once. Whatever was killed is started again only as its
users would: libvirtd by its supervisor, the service by systemd, the keeper by the next command. No hand repairs anything.
"""
import fnmatch
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "fault")]
from keeper_world import Client, Gone  # noqa: E402
from lab import BUILD, LABELS, REPO, WORLD, Lab, run, wait_until  # noqa: E402

VM = "one"
COME_BACK = 240
AHEAD = 2  # as many boxery-vm are started before they are needed
# How each moment is recognised is in Moments below.
TABLE = [(moment, victim) for moment, victims in (
    ("reset:begun", "keeper vm libvirtd host"),
    ("reset:destroyed", "keeper vm libvirtd"),
    ("start:overlay", "keeper vm libvirtd"),
    ("start:domain", "keeper vm qemu libvirtd host"),
    ("start:agent", "keeper vm qemu libvirtd host"),
    ("start:begin", "keeper vm qemu libvirtd"),
    ("ready", "keeper watch qemu libvirtd"),
    ("leased", "keeper watch qemu libvirtd host"),
    ("deliver", "keeper deliver qemu libvirtd service"),
    ("busy", "keeper watch qemu libvirtd service"),
) for victim in victims.split()]
WARM = [(moment, victim) for moment, victims in (
    ("capture:boot", "keeper vm qemu libvirtd"),
    ("capture:settle", "vm qemu libvirtd"),
    ("capture:save", "keeper vm qemu libvirtd"),
    ("capture:bind", "keeper vm"),
    ("warm:restore", "keeper vm qemu libvirtd"),
    ("warm:standby", "keeper watch qemu libvirtd"),
    ("warm:wake", "keeper vm qemu libvirtd host"),
) for victim in victims.split()]
PATCH = [(moment, victim) for moment, victims in (
    ("patch:begun", "keeper vm libvirtd"),
    ("patch:made", "keeper vm"),
    ("patch:reset", "keeper vm libvirtd"),
    ("patch:trial", "keeper vm qemu libvirtd"),
) for victim in victims.split()]
TABLE += WARM + PATCH
QUICK = [("reset:begun", "libvirtd"), ("start:overlay", "vm"), ("start:agent", "keeper"), ("ready", "qemu"),
         ("leased", "host"), ("deliver", "deliver"), ("busy", "keeper"), ("capture:save", "qemu"), ("warm:wake", "vm"), ("patch:made", "vm"), ("patch:trial", "keeper")]


def boxery(lab, name):
    """pids of boxery-NAME (or qemu) in this world, oldest first."""
    mine = os.readlink("/proc/%s/ns/mnt" % run([WORLD, "pid", lab.dir]).stdout.strip())
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.path.basename(os.readlink("/proc/%s/exe" % pid)).removesuffix(" (deleted)")
            if (exe == "boxery-" + name or exe.startswith(name + "-system")) and os.readlink("/proc/%s/ns/mnt" % pid) == mine:
                with open("/proc/%s/stat" % pid) as f:
                    stat = f.read().rpartition(")")[2].split()
                if stat[0] != "Z":
                    out.append((int(stat[19]), int(pid)))
        except OSError:
            pass
    return [pid for _, pid in sorted(out)]


def watch(lab):
    """pid of the boxery-vm that watches, in a list: the one that the kernel tells of changes of rules."""
    children = boxery(lab, "vm")
    with open("/proc/%s/net/netlink" % run([WORLD, "pid", lab.dir]).stdout.strip()) as f:
        told = [int(x[2]) for x in map(str.split, f) if x[1] == "12" and int(x[3], 16)]
    return [pid for pid in children if pid in told]


class Kills(unittest.TestCase):
    rows = QUICK

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab("kill")
        cls.service = None
        try:
            cls.lab.start()
            cls.lab.host("new", VM, "--image", "lab", "--memory", "512M", "--cpus", "1")
            cls.lab.host("pool", "set", "default", "--start", "cold")
            cls.lab.host("pool", "add", VM)
            cls.lab.configure(max=1)
            cls.lab.wait_state(VM, "READY")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if sys.exc_info()[0] or os.environ.get("BOXERY_SHOW_LOGS"):
            sys.stderr.write("--- keeper.log\n%s\n" % cls.lab.log("state/keeper.log")[-8000:])
        cls.lab.stop()

    # -- looking

    def image(self, *parts):
        return os.path.join(self.lab.dir, "image", *parts)

    def ask(self, kind, **values):
        """The keeper's document, without a process; None when it does not run now."""
        try:
            c = Client(os.path.join(self.lab.dir, "run", "boxery", "keeper.sock"), 20)
        except OSError:
            return None
        try:
            return c.call(kind, **values)["document"]
        except (Gone, OSError):
            return None
        finally:
            c.close()

    def vm(self):
        doc = self.ask("LIST")
        return next((v for v in doc["vms"] if v["name"] == VM), {}) if doc else {}

    def state(self):
        return self.vm().get("state")

    def stages(self):
        """Stages of the current life's start that are done."""
        doc = self.ask("HISTORY", name=VM)
        kinds = []
        for e in doc["events"] if doc else []:
            kinds = [] if e["kind"] == "START" else kinds + [e["kind"]]
        return kinds

    def reached(self, moment):
        if moment == "reset:begun":
            return self.state() == "RESETTING"
        if moment == "reset:destroyed":
            return not os.path.exists(self.image("run", VM + ".qcow2"))
        if moment == "start:overlay":
            # The reset has removed the old one before.
            return self.state() == "STARTING" and os.path.exists(self.image("run", VM + ".qcow2"))
        if moment == "start:domain":
            return self.state() == "STARTING" and bool(self.victims("qemu"))
        if moment == "start:agent":
            return self.reached("start:domain") and time.monotonic() - self.domain_since() > 4
        if moment == "start:begin":
            return "agent" in self.stages()
        if moment == "capture:boot":
            return self.reached("start:domain") and time.monotonic() - self.domain_since() > 2
        made = self.image("images", ".%s.warm.new" % VM)
        if moment == "capture:settle":
            return self.state() == "STARTING" and self.stages()[-1:] == ["ready"]
        if moment == "capture:save":
            return os.path.exists(os.path.join(made, "memory")) and os.path.getsize(os.path.join(made, "memory")) > 1 << 20
        if moment == "capture:bind":
            return os.path.exists(os.path.join(made, "disk.qcow2"))
        if moment == "warm:restore":
            return "overlay" in self.stages() and self.reached("start:domain")
        if moment == "warm:wake":
            vm = self.vm()
            return vm.get("state") == "LEASED" and not vm["host_key"]
        if moment == "patch:begun":
            return self.state() == "MAINTENANCE"
        if moment == "patch:made":
            return os.path.exists(self.image("images", VM + "@boxery-before"))
        if moment == "patch:reset":
            return (lambda vm: vm.get("state") == "RESETTING" and vm["patching"])(self.vm())
        if moment == "patch:trial":
            return (lambda vm: vm.get("state") == "STARTING" and vm["patching"])(self.vm()) and bool(self.victims("qemu"))
        if moment == "deliver":
            return bool(boxery(self.lab, "deliver"))
        if moment in ("ready", "warm:standby", "leased"):
            return True
        raise AssertionError(moment)

    def domain_since(self):
        self.since = self.since or time.monotonic()
        return self.since

    def victims(self, name):
        if name == "watch":
            return watch(self.lab)
        if name == "vm":  # with those that wait for work
            return [pid for pid in boxery(self.lab, "vm") if pid not in watch(self.lab)]
        if name == "service":
            return boxery(self.lab, "runners")[:1]
        if name == "libvirtd":
            with open(os.path.join(self.lab.dir, "run", "libvirtd.pid")) as f:
                return [int(f.read())]
        return boxery(self.lab, name)

    # -- doing

    def strike(self, moment, victim):
        """Waits for the moment, kills the victim. False: it was over before the victim could be found."""
        end = time.monotonic() + COME_BACK
        while not self.reached(moment):
            self.assertLess(time.monotonic(), end, "the moment %s never came" % moment)
            time.sleep(0.002)
        pids = self.victims(victim)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pids = []
        if victim == "libvirtd":
            time.sleep(1)  # whoever supervises it
            run([WORLD, "libvirtd-start", self.lab.dir])
        if victim == "service":
            self.service.wait()
            self.start_service()
        return bool(pids)

    def start_service(self):
        self.service = self.lab.start_runners()

    def start_so(self, moment):
        """Brings the VM to how it has to start and wait for this row, with nothing left of the rows before."""
        warm = (moment, "keeper") in WARM
        self.lab.host("pool", "set", "default", "--start", "warm" if warm else "cold")
        while True:
            vm = self.lab.wait_state(VM, "READY", timeout=COME_BACK)
            if vm["waits"] == ("paused" if warm else "running") and not (warm and vm["warm_failures"]):
                break
            self.generation = vm["generation"]
            self.lab.host("release", self.lab.host_json("lease", VM)["lease"])
            self.wait_new_life()
        if moment.startswith("capture:"):  # another QEMU than that of the capture: it does not fit
            path = self.image("images", VM + "@boxery-warm", "manifest.env")
            with open(path) as f:
                text = re.sub("(?m)^QEMU=.*", "QEMU=1", f.read())
            with open(path, "w") as f:
                f.write(text)
        self.generation = vm["generation"]

    def files_of(self, label):
        """An image's files by inode, size and time."""
        folder, out = self.image("images", "%s@boxery-%s" % (VM, label)), {}
        for name in sorted(os.listdir(folder)) if os.path.exists(folder) else []:
            st = os.stat(os.path.join(folder, name))
            out[name] = (st.st_ino, st.st_size, st.st_mtime_ns)
        return out

    def images_are_whole(self, moment, clean, memory):
        """Nothing touches a clean image, and what was there before a capture that was killed is there until the new one is whole."""
        self.assertEqual(self.files_of("clean"), clean)
        self.assertEqual([n for n in os.listdir(self.image("images")) if n.startswith(".")], [], "half made images")
        now = self.files_of("warm")
        if moment.startswith("capture:") and now != memory:
            self.assertEqual(set(now), set(memory))
            self.assertEqual([n for n in now if now[n] == memory[n]], [], "of both images")

    def patch(self, moment, victim):
        """To the other one of two base images; whatever is killed, the VM is on one of them, whole."""
        images = {"lab": "lab-2", "lab-2": "lab"}
        if not os.path.exists(self.image("base", "lab-2")):
            run(["cp", "-al", self.image("base", "lab"), self.image("base", "lab-2")])
        before = self.vm()["image"]
        self.since = None
        self.lab.host("pool", "patch", VM, "--base", images[before])
        hit = self.strike(moment, victim)
        wait_until("the patch is over", lambda: (lambda vm: vm and vm["state"] == "READY" and not vm["patch"])(self.lab.vm(VM)),
                   COME_BACK, every=0.3)
        # What the keeper says is what is there, and nothing of the other one is left.
        wait_until("nothing is undecided", lambda: not os.path.exists(self.image("images", VM + "@boxery-before")), 30)
        vm = self.lab.vm(VM)
        if victim in ("keeper", "libvirtd"):
            self.assertEqual((vm["image"], vm["patch_failed"]), (images[before], ""))
        self.assertEqual(vm["image"] == before, bool(vm["patch_failed"]), vm)
        for path in (("images", VM + "@boxery-clean", "manifest.env"), ("vms", VM + ".env")):
            with open(self.image(*path)) as f:
                self.assertIn("IMAGE=%s\n" % vm["image"], f.read())
        xml = self.lab.inside(["virsh", "-q", "dumpxml", VM]).stdout
        self.assertEqual(set(re.findall("/base/([a-z0-9-]+)/disk", xml)), {vm["image"]})
        self.assertEqual([n for n in os.listdir(self.image("images")) if n.startswith(".")], [], "half made images")
        return hit

    def wake(self, victim):
        client = subprocess.Popen([WORLD, "run", self.lab.dir, "--", os.path.join(BUILD, "boxery-host"), "lease", VM, "--exec",
                                   "sleep", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        hit = self.strike("warm:wake", victim)
        client.wait(60)
        self.wait_new_life()
        return hit

    def begin_life(self):
        """Ends the life that is READY: a lease, and its release."""
        self.since = None
        lease = self.lab.host_json("lease", VM)["lease"]
        # A client that waits for the VM, so that there is one to be killed.
        command = [WORLD, "run", self.lab.dir, "--", os.path.join(BUILD, "boxery-host")]
        threading.Timer(0.05, lambda: self.lab.host("release", lease, check=False)).start()
        return subprocess.Popen(command + ["lease", VM, "--wait", "5m", "--exec", "sleep", "1"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def row(self, moment, victim):
        if moment in ("deliver", "busy"):
            return self.row_of_a_job(moment, victim)
        if moment == "warm:wake":
            return self.wake(victim)
        if moment.startswith("patch:"):
            return self.patch(moment, victim)
        if moment in ("ready", "warm:standby"):
            hit = self.strike(moment, victim)
            if victim in ("qemu",):
                self.wait_new_life()
            return hit
        if moment == "leased":
            client = subprocess.Popen([WORLD, "run", self.lab.dir, "--", os.path.join(BUILD, "boxery-host"), "lease", VM, "--exec",
                                       "sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            wait_until("leased", lambda: (vm := self.vm()).get("state") == "LEASED" and vm["host_key"], 20, 0.01)
            hit = self.strike(moment, victim)
            if victim in ("watch", "libvirtd"):  # the lease goes on; its holder ends it
                time.sleep(2)
                self.assertEqual(self.state(), "LEASED")
                client.terminate()
            client.wait(60)
        else:
            client = self.begin_life()
            hit = self.strike(moment, victim)
            if self.lab.keeper_pid() is None:
                client.wait(60)
            if client.poll() is None:
                client.wait(COME_BACK)
        self.wait_new_life()
        return hit

    def row_of_a_job(self, moment, victim):
        emulator = self.lab.emulator
        before = len([r for r in emulator.runners() if not r["foreign"]])
        # A runner that was reset with its job is missed by GitHub after a while; where the job must survive, it has time.
        lost = moment == "deliver" or victim == "qemu"
        emulator.settings(lease_seconds=30 if lost else 600, offline_after=15 if lost else 45)
        job = emulator.job(REPO, LABELS, "sleep 8; echo survived", name="kill")["id"]
        self.start_service()
        try:
            if moment == "busy":
                emulator.wait_job(job, "in_progress", COME_BACK)
                wait_until("BUSY", lambda: self.state() in ("BUSY", "DELIVERED"), 30, 0.05)
                time.sleep(1)
                hit = self.strike_now(victim)
            else:
                hit = self.strike(moment, victim)
            done = emulator.wait_job(job, "completed", COME_BACK)
            self.assertEqual(done["status"], "completed")
            if not lost:
                self.assertEqual(done["conclusion"], "success", emulator.log(job))
                self.assertIn("survived", emulator.log(job))
            elif victim in ("service",):
                self.assertEqual(done["conclusion"], "success", emulator.log(job))
            self.wait_new_life()
            wait_until("no registration of ours left",
                       lambda: all(r["state"] == "gone" for r in emulator.runners() if not r["foreign"]), 120, 0.5)
            made = len([r for r in emulator.runners() if not r["foreign"]]) - before
            self.assertLessEqual(made, 1 if moment == "busy" else 2, "registrations made for one job")
        finally:
            if self.service.poll() is None:
                self.lab.stop_runners(self.service)
        return hit

    def strike_now(self, victim):
        self.reached = lambda moment: True
        try:
            return self.strike("busy", victim)
        finally:
            del self.reached

    def wait_new_life(self):
        def probe():
            vm = self.lab.vm(VM)
            return vm if vm["state"] == "READY" and vm["generation"] > self.generation and not vm["lease"] else None
        return wait_until("%s READY in a life after %d; it is %s" % (VM, self.generation, self.lab.vm(VM)), probe, COME_BACK,
                          every=0.3)

    # -- what must hold afterwards

    def check(self):
        vm = self.lab.wait_state(VM, "READY", timeout=COME_BACK)
        self.assertEqual((vm["attempts"], vm["lease"], vm["work"], vm["cold_only"]), (0, "", "", False), vm)
        self.assertGreaterEqual(vm["generation"], self.generation)
        listed = self.lab.inside(["virsh", "-q", "list", "--all", "--name"]).stdout.split()
        self.assertEqual(listed, [VM], "domains")
        xml = self.lab.inside(["virsh", "-q", "dumpxml", VM]).stdout
        self.assertEqual(int(re.search(r"<vm [^>]*generation=['\"](\d+)", xml)[1]), vm["generation"])
        self.assertEqual(len(self.victims("qemu")), 1, "QEMU processes")
        files = {os.path.join(d, f) for d, _, fs in os.walk(self.image()) for f in fs
                 if not d.startswith(self.image("base"))}
        clean = "images/%s@boxery-clean/" % VM
        wanted = {self.image(x) for x in ("run/.network.lock", "run/%s.qcow2" % VM, "run/%s.gen" % VM, "run/%s.lock" % VM,
                                          "vms/%s.env" % VM, "vms/%s.qcow2" % VM, "console/%s.log" % VM,
                                          clean + "disk.qcow2", clean + "manifest.env")}
        allowed = {self.image("console/%s.log.1" % VM), self.image("virt.env"), self.image("run/guard.seen")}
        allowed |= {self.image("images", VM + "@boxery-warm", x) for x in
                    ("disk.qcow2", "overlay.qcow2", "memory", "guest.txt", "manifest.env")}
        self.assertEqual((files - allowed, wanted - files), (wanted, set()), "files")
        self.assertEqual([x for x in self.lab.host_json("leases")["leases"] if x["open"]], [])
        # Every life was leased once and got one secret at most, and each transition is one of the architecture's.
        once = set()
        for e in self.lab.host_json("history", VM)["events"]:
            m = re.match(r"([A-Z]+) -> ([A-Z]+)", e["text"])
            if m and e["kind"] in ("DELIVER", "LEASE"):
                self.assertNotIn((e["generation"], e["kind"]), once)
                once.add((e["generation"], e["kind"]))
            if m and m[2] == "READY":
                self.assertEqual((m[1], e["kind"]), ("STARTING", "STARTED"))
            if m and m[2] == "LEASED":
                self.assertEqual((m[1], e["kind"]), ("READY", "LEASE"))
        wait_until("only the watch and what waits for work is left", lambda: len(watch(self.lab)) == 1 and
                   len(boxery(self.lab, "vm")) <= 1 + AHEAD and not boxery(self.lab, "deliver"), 30)

    def test_table(self):
        missed = []
        for moment, victim in self.rows:
            with self.subTest("%s %s" % (moment, victim)):
                began = time.monotonic()
                self.start_so(moment)
                clean, memory = self.files_of("clean"), self.files_of("warm")
                hit = self.row(moment, victim)
                self.check()
                if not moment.startswith("patch:"):
                    self.images_are_whole(moment, clean, memory)
                print("%-16s %-9s %s %5.1f s" % (moment, victim, "hit " if hit else "late", time.monotonic() - began),
                      flush=True)
                if not hit:
                    missed.append((moment, victim))
        print("%d rows; too late to hit: %s" % (len(self.rows), missed or "none"), flush=True)


if __name__ == "__main__":
    if "--all" in sys.argv:
        Kills.rows = TABLE
        sys.argv.remove("--all")
    if "--rows" in sys.argv:
        at = sys.argv.index("--rows")
        Kills.rows = [r for r in TABLE if any(fnmatch.fnmatch(" ".join(r), p) for p in sys.argv[at + 1:])]
        del sys.argv[at:]
    unittest.main(verbosity=2)
