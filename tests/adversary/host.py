"""Detectors that look at the host. Each takes the Act (who, when, which guests) and returns what it found, as lines; `after` is
false in the life that planted, true in the next one. What must never be so, whatever was planted, is in `broken_rules`."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import canary  # noqa: E402
import guest as guest_module  # noqa: E402
import lab as lab_module  # noqa: E402

DISK_PATTERN = "boxery-disk-pattern-7f3a"
FOREIGN_MAC = "02:de:ad:be:ef:01"
BRIDGE = "virbr-boxery"
MARK = "boxery-leftover"
CONSOLE_MAX = 1 << 20
CONSOLE_SLACK = 1 << 20
LOG_MAX = 4 << 20
POLITE_S, ANSWER_S = 15, 30
RAW = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")

# Runs in the internet's place: takes every connection and says nothing.
HOLDER = r"""
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("203.0.113.10", 8124)); s.listen(4096)
print("ready", flush=True)
held = []
while True: held.append(s.accept()[0])
"""


def pattern_in_files(act, after):
    return sorted({os.path.relpath(p, act.lab.dir) for p, _ in
                   canary.in_files(act.lab.dir, [DISK_PATTERN], skip=lambda p: "/base/" in p)})


def odd_names(act, after):
    """Traces of a guest's names in what libvirt, dnsmasq and the keeper keep."""
    found = [os.path.relpath(p, act.lab.dir) for p, _ in
             canary.in_files(act.lab.dir, ["odd-name-"], skip=lambda p: "/image/" in p)]
    return found + ["%s answers DHCP" % line for line in act.inside("ss", "-Hlun", "sport = :67").splitlines()]


@contextlib.contextmanager
def control(lab):
    """Traces of our own making: what a DHCP server or a resolver would keep, a neighbour and a sender that
    the host has learnt."""
    neighbour = ["192.168.130.250", "lladdr", FOREIGN_MAC, "dev", "world"]
    path = os.path.join(lab.dir, "libvirt", "lib", "dnsmasq", "control")
    with open(path, "w") as f:
        f.write("odd-name-control\n")
    lab.inside(["ip", "neigh", "replace", *neighbour])
    sender = [FOREIGN_MAC, "dev", BRIDGE, "self"]
    lab.inside(["bridge", "fdb", "replace", *sender, "local"])
    try:
        yield
    finally:
        os.unlink(path)
        lab.inside(["ip", "neigh", "del", *neighbour], check=False)
        lab.inside(["bridge", "fdb", "del", *sender], check=False)


def console_file(act):
    return os.path.join(act.lab.dir, "image", "console", act.guest.name + ".log")


def console_marks(act, after):
    """The planted bytes in the console of the current life."""
    with open(console_file(act), "rb") as f:
        text = f.read()
    return ["raw escape sequences in the console"] if (MARK + "-console").encode() in text and RAW.search(text) else []


def console_size(act, after):
    """In the life that writes: what QEMU has written so far, by the event of the cut; after it: files over the cap."""
    folder = os.path.dirname(console_file(act))
    big = ["%s has %d bytes" % (n, os.path.getsize(os.path.join(folder, n))) for n in sorted(os.listdir(folder))
           if os.path.getsize(os.path.join(folder, n)) > CONSOLE_MAX + CONSOLE_SLACK]
    if after:
        with open(console_file(act), "rb") as f:
            return big + (["flood in the console of the next life"] if b"0123456789abcdef" * 4 in f.read() else [])
    act.must(not big, "a console is over its cap: %s" % big)
    history = act.host("history", act.guest.name) if act.pool else "console reached"
    return [line for line in history.splitlines() if "console" in line]


def impostor(act, after):
    """The neighbour serves the stolen key; who knows the current host key of the victim must refuse it."""
    if not after:
        act.stolen = act.guest.ssh("cat /run/boxery/ssh_host_ed25519_key").stdout
    act.must("PRIVATE KEY" in getattr(act, "stolen", ""), "no host key was stolen")
    two = act.neighbour_guest()
    two.ssh("umask 077; cat >/run/stolen <<'K'\n%s\nK\n/usr/sbin/sshd -p 22222 -h /run/stolen -o PidFile=/run/imp.pid "
            "-f /dev/null -o AuthorizedKeysFile=/run/boxery/authorized_keys -o ListenAddress=127.0.0.1\n" % act.stolen.strip())
    try:
        # Through the neighbour's own connection, since the filter lets the host speak to port 22 only.
        via = "ProxyCommand=" + " ".join(two.command("-W", "127.0.0.1:22222")[4:])
        done = act.guest.ssh("echo reached", "-o", via, "-o", "HostKeyAlias=" + act.guest.address, key=two.key)
    finally:
        two.ssh("kill $(cat /run/imp.pid)")
    if "reached" in done.stdout:
        return ["the neighbour passes for %s" % act.guest.name]
    act.must(re.search("verification failed|IDENTIFICATION HAS CHANGED", done.stdout), "no refusal, but: " + done.stdout)
    return []


def stranger(act, after):
    done = act.guest.ssh("echo in", key=act.stranger)
    if done.stdout.strip() == "in":
        return ["a stranger is root"]
    act.must("Permission denied" in done.stdout, "neither in nor denied: " + done.stdout)
    return []


def foreign_neighbour(act, after):
    return [line for line in act.inside("ip", "neigh").splitlines() if FOREIGN_MAC in line or ".250 " in line]


def foreign_sender(act, after):
    """MACs of nobody's that the bridge has learnt, at which it would send frames to the guest that named them."""
    return [line for line in act.inside("bridge", "fdb", "show", "br", BRIDGE).splitlines() if line.startswith(FOREIGN_MAC[:12])]


def connections(act, after):
    """Entries in the host's table that this guest's address began and that nobody in this life has."""
    table = act.inside("cat", "/proc/net/nf_conntrack").splitlines()
    n = sum("dst=203.0.113.10" in line and "dport=8124" in line and
            "src=%s " % act.guest.address in line.split("dst=")[0] for line in table)
    return ["%d connections to 203.0.113.10 in the host's table" % n] if n else []


def agent(act, after):
    """What libvirt gets for a ping of the agent."""
    answers = []
    for command in ('{"execute":"guest-sync","arguments":{"id":4242}}', '{"execute":"guest-ping"}'):
        done = act.lab.inside(["timeout", "15", "virsh", "-q", "qemu-agent-command", "--timeout", "5", act.guest.name, command],
                              check=False)
        answers.append((done.stdout + done.stderr).strip())
    if answers == ['{"return":4242}', '{"return":{}}']:
        return []
    return ["the agent's answer is %s" % ascii(" / ".join(answers))[:100]]


def polite_end(act, after):
    """Does the guest of the planted life still run when it is asked to end?"""
    if not after:
        act.asked = act.inside("virsh", "-q", "domid", act.guest.name).strip()
        act.lab.inside(["timeout", "20", "virsh", "shutdown", act.guest.name, "--mode", "acpi"], check=False)
        time.sleep(POLITE_S)
    same = act.inside("virsh", "-q", "domid", act.guest.name).strip() == act.asked
    return ["it runs on %d s after the power button" % POLITE_S] if same else []


def answers(act, after):
    """Whether a script gets through, and how many processes there are."""
    try:
        done = act.guest.ssh("ls -d /proc/[0-9]* | wc -l; awk '/MemAvailable/ { print $2 }' /proc/meminfo", timeout=ANSWER_S)
        processes, free = [int(x) for x in done.stdout.split()]
    except (guest_module.Lost, ValueError) as e:
        return ["no answer: %s" % ascii(str(e))[:80]]
    return ["%d processes, %d KiB free" % (processes, free)] if processes > 300 or free < 100000 else []


DETECTORS = {f.__name__: f for f in (pattern_in_files, odd_names, console_marks, console_size, impostor, stranger,
                                     foreign_neighbour, foreign_sender, connections, agent, polite_end, answers)}


class Holder:
    """The far end of the connections, in the emulator's network."""

    def __init__(self, lab):
        self.child = subprocess.Popen([lab_module.WORLD, "run-emu", lab.dir, "--", "/usr/bin/python3", "-c", HOLDER],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()

    def stop(self):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


def read_only_parts(lab):
    """Identity of what no life may change: bases and clean images."""
    found = {}
    for folder in ("base", "images"):
        for parent, _, names in os.walk(os.path.join(lab.dir, "image", folder)):
            for name in names:
                st = os.stat(os.path.join(parent, name))
                if "warm" not in parent:
                    found[os.path.join(os.path.relpath(parent, lab.dir), name)] = (st.st_ino, st.st_size, st.st_mtime_ns)
    return found


def seen_host(lab):
    """What a batch must leave as it was."""
    def lines(*command):
        return lab.inside(command).stdout.splitlines()
    rules = "\n".join(lines("nft", "-s", "list", "ruleset"))
    # Elements that the packets of guests put into dynamic sets, and libvirt's chains of the guests that run now.
    return {"domains": sorted(lines("virsh", "-q", "list", "--all", "--name")),
            "devices": sorted(re.findall(r"^\d+: ([^:@]+)", "\n".join(lines("ip", "-o", "link")), re.M)),
            "rules": len(re.findall("^table ", rules, re.M)), "read-only files": read_only_parts(lab),
            "image folder": sorted(os.listdir(os.path.join(lab.dir, "image", "run"))),
            "clock": int(time.time() - time.monotonic())}


def broken_rules(lab, before, neighbour):
    """Differences to `before` and whatever else no guest may do to the host; [] is good."""
    now, bad = seen_host(lab), []
    for key, value in before.items():
        if key == "clock":
            bad += ["the host's clock jumped"] if abs(now[key] - value) > 2 else []
        elif now[key] != value:
            bad.append("%s: %s instead of %s" % (key, ascii(now[key])[:200], ascii(value)[:200]))
    vm = lab.vm("two")
    if neighbour and (vm["state"] not in ("READY", "LEASED", "DELIVERED") or vm["generation"] != neighbour):
        bad.append("the neighbour is %s in life %d, was in %d" % (vm["state"], vm["generation"], neighbour))
    for command in (["pool", "show", "one"], ["pool", "show", "one", "--json"], ["pool", "ls"], ["history", "one"]):
        text = subprocess.run([lab_module.WORLD, "run", lab.dir, "--", os.path.join(lab_module.BUILD, "boxery-host")] + command,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=60).stdout
        bad += ["raw control characters in boxery-host %s" % " ".join(command)] if RAW.search(text) else []
        if "--json" in command:
            json.loads(text)
    for folder in ("state", "log"):
        for parent, _, names in os.walk(os.path.join(lab.dir, folder)):
            bad += ["%s has grown to %d bytes" % (n, os.path.getsize(os.path.join(parent, n))) for n in names
                    if os.path.isfile(os.path.join(parent, n)) and os.path.getsize(os.path.join(parent, n)) > LOG_MAX]
    return bad
