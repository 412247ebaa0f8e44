#!/usr/bin/python3
"""Real VMs leased and released in a loop by several clients: how many leases a minute, and whether anything grows.

    soak.py [--vms 8] [--minutes 10] [--clients 4] [--memory 384M]      (BOXERY_BUILD: the build folder)

Half of the clients are `boxery-host lease --exec`, half `lease` and `release`. After two minutes of it and again at the end, with
every VM READY and nobody's: files of the image folder, processes of the world, and fds, children, threads and memory of the keeper, of its watch
and of libvirtd. Exit status 1 when something has grown.
"""
import argparse
import collections
import json
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from lab import IMAGE, WORLD, Failed, Lab, run, wait_until  # noqa: E402

MAY_GROW_KIB = 512  # SQLite's cache, as the database nears the limits of its histories
WARM_UP_MINUTES = 2  # each VM has been through all of it several times: what is made once is there


class Soak:
    def __init__(self, lab, vms, clients):
        self.lab, self.vms, self.n_clients = lab, vms, clients
        self.leases, self.refused, self.errors = 0, collections.Counter(), []
        self.generations = {}
        self.lock = threading.Lock()
        self.over = threading.Event()

    def members(self):
        """pid -> name of every process of the world."""
        mine = os.readlink("/proc/%s/ns/mnt" % run([WORLD, "pid", self.lab.dir]).stdout.strip())
        out = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/ns/mnt" % pid) == mine:
                    out[int(pid)] = os.path.basename(os.readlink("/proc/%s/exe" % pid))
            except OSError:
                pass
        return out

    def look(self):
        out = {}
        members = self.members()
        for pid, name in members.items():
            if name not in ("boxery-keeper", "boxery-vm", "libvirtd"):
                continue
            try:
                with open("/proc/%d/smaps_rollup" % pid) as f:
                    memory = dict(line.split(":") for line in f.read().splitlines()[1:])
                with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
                    children = len(f.read().split())
                found = {"fds": len(os.listdir("/proc/%d/fd" % pid)), "threads": len(os.listdir("/proc/%d/task" % pid)),
                         "children": children, "RSS KiB": int(memory["Rss"].split()[0])}
                for what, n in found.items():  # of several boxery-vm the largest
                    out[name + " " + what] = max(n, out.get(name + " " + what, 0))
            except OSError:
                pass
        for name, count in collections.Counter(members.values()).items():
            out["processes " + name] = count
        image = os.path.join(self.lab.dir, "image")
        out["files in the image folder"] = sum(len(f) for _, _, f in os.walk(image))
        # What a guest writes while it waits is no leak.
        out["image folder MiB"] = sum(os.stat(os.path.join(d, f)).st_blocks for d, _, fs in os.walk(image) for f in fs) // 2048
        out["database KiB"] = os.stat(os.path.join(self.lab.dir, "state", "boxery.db")).st_size // 1024
        return out

    def count(self, name, generation):
        with self.lock:
            if generation <= self.generations.get(name, 0):
                self.errors.append("%s was leased twice in its life %d" % (name, generation))
            self.generations[name] = generation
            self.leases += 1

    def client(self, with_exec):
        holder = "soak-%d" % threading.get_ident()
        while not self.over.is_set():
            try:
                if with_exec:
                    done = self.lab.host("lease", "--as", holder, "--wait", "2m", "--exec", "sh", "-c",
                                         "echo $BOXERY_NAME; sleep 1", check=False, timeout=300)
                    if done.returncode == 0:
                        with self.lock:
                            self.leases += 1
                    else:
                        self.refused[done.stderr.strip()[:80]] += 1
                else:
                    lease = json.loads(self.lab.host("lease", "--as", holder, "--wait", "2m", "--json", timeout=300).stdout)
                    self.count(lease["name"], lease["generation"])
                    time.sleep(1)
                    self.lab.host("release", lease["lease"])
            except Failed as e:
                self.refused[str(e).splitlines()[-1][:80]] += 1
            except Exception as e:  # noqa: BLE001
                self.errors.append(repr(e))
                return

    def at_rest(self):
        vms = self.lab.host_json("ls")["vms"]
        return len(vms) == self.vms and all(v["state"] == "READY" and not v["work"] for v in vms)

    def look_at_rest(self):
        wait_until("all READY again", self.at_rest, 1800, 1)
        time.sleep(12)  # the watch has listed once more
        return self.look()

    def loop(self, minutes):
        threads = [threading.Thread(target=self.client, args=(i % 2 == 0,)) for i in range(self.n_clients)]
        for t in threads:
            t.start()
        began, before = time.monotonic(), self.leases
        for minute in range(minutes):
            time.sleep(max(0, began + (minute + 1) * 60 - time.monotonic()))
            seen = self.look()
            print("minute %2d: %3d leases, keeper %d KiB %d fds %d children, libvirtd %d KiB %d fds, load %.1f" % (
                minute + 1, self.leases, seen["boxery-keeper RSS KiB"], seen["boxery-keeper fds"],
                seen["boxery-keeper children"], seen["libvirtd RSS KiB"], seen["libvirtd fds"], os.getloadavg()[0]), flush=True)
        self.over.set()
        for t in threads:
            t.join()
        self.over.clear()
        return (self.leases - before) / ((time.monotonic() - began) / 60)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vms", type=int, default=8)
    p.add_argument("--minutes", type=int, default=10)
    p.add_argument("--clients", type=int, default=4)
    p.add_argument("--memory", default="384M")
    o = p.parse_args()
    with Lab("soak") as lab:
        soak = Soak(lab, o.vms, o.clients)
        lab.host("new", "s", "--image", IMAGE, "--memory", o.memory, "--cpus", "1")
        began = time.monotonic()
        lab.host("pool", "add", "s", "--count", str(o.vms))
        wait_until("all READY", soak.at_rest, 1800, 1)
        print("%d VMs of %s READY after %.0f s" % (o.vms, o.memory, time.monotonic() - began), flush=True)
        soak.loop(WARM_UP_MINUTES)
        before = soak.look_at_rest()
        first = soak.leases
        rate = soak.loop(o.minutes)
        after = soak.look_at_rest()
        print("%-32s %10s %10s" % ("", "before", "after"))
        grown = []
        for key in sorted(set(before) | set(after)):
            a, b = before.get(key, 0), after.get(key, 0)
            # The database keeps 500 events of each VM.
            limit = a + (4 * MAY_GROW_KIB if key == "database KiB" else MAY_GROW_KIB if key.endswith("KiB") else
                         200 if key.endswith("MiB") else 2 if key.startswith("libvirtd") else 0)
            if key == "libvirtd RSS KiB":
                limit = b  # not ours to judge
            if b > limit:
                grown.append(key)
            print("%-32s %10d %10d%s" % (key, a, b, "  GROWN" if b > limit else ""))
        print("%d leases in %d minutes by %d clients: %.1f a minute; refused: %s; errors: %s; grown: %s" % (
            soak.leases - first, o.minutes, o.clients, rate, dict(soak.refused) or "none", soak.errors or "none", grown or "nothing"))
        sys.exit(1 if soak.errors or grown else 0)


if __name__ == "__main__":
    main()
