"""What the benchmarks with real guests share: figures, a world's programs called without its wrapper, and the same reset done by
hand with virsh and qemu-img."""
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import lab as lablib  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


def p95(values):
    """By rank: of fewer than twenty the largest."""
    return sorted(values)[math.ceil(len(values) * 0.95) - 1]


def figures(values):
    return {"rounds": len(values), "median": statistics.median(values), "p95": p95(values), "min": min(values), "max": max(values)}


class Samples(dict):
    """Name -> values, in the order of first appearance."""

    def add(self, name, value):
        self.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self[name]) if self.get(name) else None

    def figures(self):
        return {name: figures(values) for name, values in self.items()}

    def show(self, title, unit="ms"):
        print("\n%s, %s%s%8s%10s%10s%10s%10s" % (title, unit, " " * max(1, 38 - len(title) - len(unit) - 2), "rounds", "median",
                                              "p95", "min", "max"))
        for name, f in self.figures().items():
            print("  %-36s%8d%10.1f%10.1f%10.1f%10.1f" % (name, f["rounds"], f["median"], f["p95"], f["min"], f["max"]), flush=True)


class Product:
    """boxery-host in a world, called from outside it: its sockets are files. The keeper is one that runs in the world."""

    def __init__(self, lab):
        self.lab = lab
        lines = lablib.run([lablib.WORLD, "env", lab.dir]).stdout
        self.env = {**os.environ, **dict(re.findall(r"(\w+)=(\S+)", lines))}

    def host(self, *arguments, check=True):
        return lablib.run([os.path.join(lablib.BUILD, "boxery-host"), *arguments], env=self.env, check=check)

    def round(self, name):
        """One lease and its reset: {(phase, stage): ms}."""
        document = json.loads(self.host("pool", "bench", name, "--rounds", "1", "--yes", "--json").stdout)
        return {(s["phase"], s["stage"]): s["median_us"] / 1000 for s in document["stages"]}

    def cpu_ms(self):
        """Of the keeper and the children it has waited for."""
        with open("/proc/%d/stat" % self.lab.keeper_pid(), encoding="utf-8") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:15])) * 1000 / TICK

    def written(self):
        """Bytes that the world's processes have had written to files: keeper, libvirtd, and what these and the reaper have
        waited for, which is every QEMU that has ended."""
        return sum(bytes_written(pid) for pid in (self.lab.keeper_pid(), *world_pids(self.lab)))


def world_pids(lab):
    with open(os.path.join(lab.dir, "run", "libvirtd.pid"), encoding="utf-8") as f:
        return [int(f.read()), int(lablib.run([lablib.WORLD, "pid", lab.dir]).stdout)]


def bytes_written(pid):
    with open("/proc/%d/io" % pid, encoding="utf-8") as f:
        return int(re.search(r"^write_bytes: (\d+)", f.read(), re.M)[1])


class Hand:
    """The warm reset of a VM without the product: its memory image, its disk and its domain as the product has captured them,
    taken over before the VM is removed from the pool. Each step is a program that is run and waited for; beside it stands what
    libvirt took of that, as virsh --timing says."""

    def __init__(self, lab, product, name):
        self.lab, self.name = lab, name
        self.folder = os.path.join(lab.dir, "hand-" + name)
        self.uri = "qemu+unix:///system?socket=" + os.path.join(lab.dir, "run", "libvirt", "libvirt-sock")
        os.makedirs(self.folder, exist_ok=True)
        warm = os.path.join(lab.dir, "image", "images", name + "@boxery-warm")
        for part in ("memory", "disk.qcow2"):
            shutil.copy(os.path.join(warm, part), self.folder)
        product.host("pool", "rm", name)
        xml = self.virsh("save-image-dumpxml", self.path("memory"), "--security-info").stdout
        xml = xml[:xml.index("</domain>")] + "</domain>\n"  # behind it stands the time that it took
        xml = re.sub(r"\s*<metadata>.*?</metadata>", "", xml, flags=re.S)
        xml = re.sub(r"<backingStore .*</backingStore>\s*(?=<target)", "", xml, flags=re.S)
        # Where the product's domain has the overlay of its life.
        xml = re.sub(r"(<source file=')[^']*\.qcow2'", r"\1%s'" % self.path("overlay.qcow2"), xml, count=1)
        with open(self.path("domain.xml"), "w", encoding="utf-8") as f:
            f.write(xml)
        self.up = False

    def path(self, name):
        return os.path.join(self.folder, name)

    def virsh(self, *arguments, check=True):
        return lablib.run(["virsh", "-c", self.uri, "-q", "--timing", *arguments], check=check)

    def step(self, out, name, *arguments, check=True):
        began = time.perf_counter()
        done = self.virsh(*arguments, check=check) if name != "overlay" else lablib.run(list(arguments))
        took = (time.perf_counter() - began) * 1000
        if done.returncode == 0:
            out[name] = took
            of_libvirt = re.search(r"\(Time: ([0-9.]+) ms\)", done.stdout)
            if of_libvirt:
                out["libvirt: " + name] = float(of_libvirt[1])
        return done.returncode == 0

    def agent(self, out, name, command, check=True):
        return self.step(out, name, "qemu-agent-command", "--timeout", "60", self.name, json.dumps(command), check=check)

    def round(self):
        """{step: ms}; the VM runs afterwards, as a leased one does."""
        out = {}
        if self.up:
            self.step(out, "destroy", "destroy", self.name)
        overlay = self.path("overlay.qcow2")
        if os.path.exists(overlay):
            os.unlink(overlay)
        self.step(out, "overlay", "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", self.path("disk.qcow2"), overlay)
        self.step(out, "restore", "restore", self.path("memory"), "--xml", self.path("domain.xml"), "--paused")
        if self.up:
            out["ready"] = sum(out[x] for x in ("destroy", "overlay", "restore"))
        self.step(out, "resume", "resume", self.name)
        self.agent(out, "agent ping", {"execute": "guest-ping"})
        self.agent(out, "set-time", {"execute": "guest-set-time", "arguments": {"time": time.time_ns()}})
        out["handed over"] = sum(out[x] for x in ("resume", "agent ping", "set-time"))
        self.up = True
        return out

    def end(self):
        self.virsh("destroy", self.name, check=False)
        self.up = False


def load():
    return "load of the machine %.1f on %d cores" % (os.getloadavg()[0], os.cpu_count())


def run_quietly(command):
    """True when it is there and has succeeded."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=60).returncode == 0
    except FileNotFoundError:
        return False
