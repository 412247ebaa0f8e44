#!/usr/bin/python3
"""boxery-vm with real guests, spoken to in the keeper's place: lives, the jail, what dies under it."""
import os
import shutil
import signal
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import jail  # noqa: E402
from jail import BROADCAST, GATEWAY, GATEWAY_MAC  # noqa: E402
from lab import BUILD, IMAGE, ROOT, WORLD, run, wait_until  # noqa: E402
from vmctl import EVIDENCE, FORCE, HALT, PLAIN, Vm  # noqa: E402

BASE = os.environ.get("BOXERY_TEST_BASE", os.path.join(ROOT, "image", "base", IMAGE))
ENOENT, EAGAIN, EEXIST, EBUSY, EINVAL, ENOMEM, EPERM, ENOTCONN, ESTALE, ECONNREFUSED = (
    -2, -11, -17, -16, -22, -12, -1, -107, -116, -111)


class World:
    """A world with a base image and boxery-vm in it."""

    def __init__(self, name):
        self.dir = os.path.join(ROOT, "w", name)
        run([WORLD, "stop", self.dir], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        run([WORLD, "start", self.dir])
        base = os.path.join(self.dir, "image", "base")
        os.makedirs(base)
        self.image = os.path.basename(BASE)
        run(["cp", "-al", BASE, base])
        self.vm = Vm(world=self.dir, program=os.path.join(BUILD, "boxery-vm"))
        self.key = os.path.join(self.dir, "key")
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", self.key])
        with open(self.key + ".pub") as f:
            self.key_line = f.read().strip()
        self.host_keys = {}

    def stop(self):
        run([WORLD, "stop", self.dir], check=False)
        if not os.environ.get("BOXERY_KEEP_WORLDS"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def inside(self, *command, check=True, emulator=False, **more):
        return run([WORLD, "run-emu" if emulator else "run", self.dir, "--", *command], check=check, **more)

    def enter(self, emulator=False):
        return [WORLD, "run-emu" if emulator else "run", self.dir, "--"]

    def path(self, *parts):
        return os.path.join(self.dir, "image", *parts)

    def setting(self, key, value):
        path = os.path.join(self.dir, "config", "host.env")
        with open(path) as f:
            lines = [line for line in f if not line.startswith(key + "=")]
        with open(path, "w") as f:
            f.writelines(lines + ["%s=%s\n" % (key, value)])

    def new(self, name, slot, **more):
        fields = {"cpus": 2, "memory_mib": 1024, "disk_gib": 20, "image": self.image}
        fields.update(more)
        return self.vm.call("new", name, slot=slot, **fields)

    def start(self, name, generation, flags=0, **more):
        a = self.vm.call("start", name, generation=generation, flags=flags, key_line=self.key_line, **more)
        if a.ok:
            self.host_keys[name] = (a.result["address"], a.result["host_key"])
        return a

    def ssh(self, name, command, check=True, **more):
        """A command as root in a plain VM; its host key is the one that start returned, and nothing else."""
        address, key = self.host_keys[name]
        known = os.path.join(self.dir, "known-" + name)
        with open(known, "w") as f:
            f.write("%s %s\n" % (address, key))
        return self.inside("ssh", "-i", self.key, "-o", "UserKnownHostsFile=" + known, "-o", "StrictHostKeyChecking=yes",
                           "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10",
                           "root@" + address, command, check=check, **more)

    def domain(self, name):
        return name in self.inside("virsh", "-q", "list", "--all", "--name").stdout.split()


class Case(unittest.TestCase):
    world = None

    def good(self, answer):
        self.assertTrue(answer.ok, answer.result)
        return answer

    def bad(self, answer, code, *words):
        self.assertIsNotNone(answer.result)
        self.assertEqual(answer.code, code, answer.result)
        for word in words:
            self.assertIn(word, answer.text)
        return answer

    @classmethod
    def setUpClass(cls):
        cls.world = World(cls.__name__.lower())
        try:
            cls.prepare()
        except BaseException:
            cls.world.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.world.stop()


class Jail(Case):
    """The probe as root in a guest, with isolation on and off: what is dropped in one must arrive in the other."""

    @classmethod
    def prepare(cls):
        w = cls.world
        # Names that are this host's business; the name server is started with the network, so before that.
        hosts = os.path.join(w.dir, "hosts")
        with open(hosts, "w") as f:
            f.write("127.0.0.1 localhost\n10.9.8.7 vault.example.internal\n")
        w.inside("mount", "--bind", hosts, "/etc/hosts")
        for slot, name in enumerate(("victim", "probe")):
            answer = w.new(name, slot)
            assert answer.ok, answer.result

    def start_both(self, generation):
        answers = {}

        def one(name):
            answers[name] = self.world.start(name, generation, PLAIN)
        threads = [threading.Thread(target=one, args=(n,)) for n in ("victim", "probe")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for a in answers.values():
            self.good(a)

    def tearDown(self):
        for name in ("victim", "probe"):
            self.good(self.world.vm.call("stop", name, flags=FORCE))

    def connects(self, *targets):
        """Which of the address:port pairs the guest gets "hello" (or anything) from, all tried at once."""
        script = "".join(
            "(timeout 15 bash -c 'exec 3<>/dev/tcp/%s/%s && head -c 3 <&3 >/dev/null && echo %s' 2>/dev/null)&\n" %
            (*t.split(":"), t) for t in targets) + "wait"
        return set(self.world.ssh("probe", script, check=False).stdout.split())

    def send(self, *frames):
        device = self.world.ssh("probe", "ls /sys/class/net | grep -v lo").stdout.split()[0]
        out = self.world.ssh("probe", "perl -e '%s' %s %s" % (jail.SEND_FRAMES, device, " ".join(f.hex() for f in frames)))
        self.assertEqual(out.stdout, "sent\n")

    def seen_frames(self):
        frames = jail.attacks()
        sniffer = jail.sniffer(self.world.enter(), "virbr-boxery", "boxery-10")
        try:
            self.send(*(f for f, _, _ in frames.values()))
            time.sleep(1)
        finally:
            lines = sniffer.stop()
        return {name for name, (_, device, mark) in frames.items()
                if any(line.startswith(device + " ") and mark.hex() in line for line in lines)}

    def answered_syn_from_22(self):
        """A forged SYN from the guest's port 22: layer 2 rules must let that port pass, the host must not answer."""
        syn = jail.frame(GATEWAY_MAC, "52:54:00:b0:0e:0b", 0x0800, jail.ipv4(
            "192.168.130.11", GATEWAY, 6, jail.tcp_syn("192.168.130.11", GATEWAY, 22, 8123)))
        back = jail.ipv4(GATEWAY, "192.168.130.11", 6, b"")[12:20].hex() + "%04x%04x" % (8123, 22)
        sniffer = jail.sniffer(self.world.enter(), "virbr-boxery")
        try:
            self.send(syn)
            time.sleep(1)
        finally:
            lines = sniffer.stop()
        return any(back in line for line in lines)

    def dns(self, name, kind=1):
        """The gateway's answer to a question: (status, number of records), or None."""
        labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split("."))
        query = bytes.fromhex("123401000001000000000000") + labels + b"\0\0" + bytes([kind]) + b"\0\1"
        out = self.world.ssh("probe", "perl -e '%s'" % (
            'socket(my $s,2,2,17); connect($s,pack("S n C4 x8",2,53,192,168,130,1)); send($s,pack("H*","%s"),0);'
            '$SIG{ALRM}=sub{exit 1}; alarm 5; recv($s,my $b,512,0); print unpack("H*",$b)' % query.hex()), check=False)
        answer = bytes.fromhex(out.stdout)
        return (answer[3] & 15, answer[7]) if answer.startswith(b"\x12\x34") else None

    def name_server(self):
        """It answers, and knows nothing of this host: not its hosts file, not who has which private address."""
        self.assertIsNotNone(self.dns("example.com"))
        self.assertEqual(self.dns("vault.example.internal")[1], 0)
        self.assertEqual(self.dns("7.8.9.10.in-addr.arpa", 12), (3, 0))
        self.assertEqual(self.dns("7.1.168.192.in-addr.arpa", 12), (3, 0))

    def loopback_reached(self):
        """A frame to the gateway's card for the host's loopback, where the kernel would route such a thing."""
        self.world.inside("sysctl", "-qw", "net.ipv4.conf.virbr-boxery.route_localnet=1")
        listener = jail.listener(self.world.enter(), 8126, "127.0.0.1")
        try:
            self.send(jail.frame(GATEWAY_MAC, "52:54:00:b0:0e:0b", 0x0800, jail.ipv4(
                "192.168.130.11", "127.0.0.1", 17, jail.udp(5, 8126, b"to the loopback"))))
            time.sleep(1)
        finally:
            lines = listener.stop()
        return any(line.startswith("udp 192.168.130.11") for line in lines)

    def beside_the_bridge(self):
        """
        Frames for a bridge's own protocols (01:80:c2:00:00:0x) do not go through it but to the host, as if the tap were a
        card of its own, and teach it their sender. Returns what came of that: a datagram, a MAC in the bridge's table.
        """
        came, learnt = set(), "52:54:00:de:ad:02"
        for name in ("all", "boxery-11"):
            self.world.inside("sysctl", "-qw", "net.ipv4.conf.%s.rp_filter=0" % name)
        listener = jail.listener(self.world.enter(), 8127)
        try:
            datagram = jail.ipv4("192.168.130.11", "203.0.113.1", 17, jail.udp(5, 8127, b"beside the bridge"))
            self.send(*(jail.frame("01:80:c2:00:00:0" + n, learnt, 0x88CC, b"beside the bridge" + bytes(40))
                        for n in "0123456789abcdef"),
                      *(jail.frame("01:80:c2:00:00:0" + n, "52:54:00:b0:0e:0b", 0x0800, datagram) for n in "2e"))
            time.sleep(1)
            if learnt in self.world.inside("bridge", "fdb", "show", "br", "virbr-boxery").stdout:
                came.add("learnt")
        finally:
            lines = listener.stop()
        if any(line.startswith("udp 192.168.130.11") for line in lines):
            came.add("datagram")
        return came

    def stranger(self):
        """What a port of the bridge that no slot stands for gets through: with an address of nobody's, with a guest's."""
        mac, seen = "52:54:00:00:be:ef", set()
        inside = self.world.inside
        inside("ip", "link", "add", "stray", "type", "veth", "peer", "name", "strayfar")
        try:
            inside("ip", "link", "set", "stray", "master", "virbr-boxery", "up")
            inside("ip", "link", "set", "strayfar", "up")
            time.sleep(0.5)
            tries = {}
            text = b"boxery-stray-bridged"
            # First: the others teach the bridge that the victim's MAC is here.
            tries["guest"] = (jail.frame("52:54:00:b0:0e:0a", GATEWAY_MAC, 0x0800, jail.ipv4(
                "203.0.113.10", "192.168.130.10", 17, jail.udp(7, 9, text))), "boxery-10", text)
            for name, source_mac, address in (("nobody's", mac, "192.168.130.99"), ("victim's", "52:54:00:b0:0e:0a",
                                                                                 "192.168.130.10")):
                text = b"boxery-stray-" + name.encode()
                tries[name] = (jail.frame(GATEWAY_MAC, source_mac, 0x0800, jail.ipv4(
                    address, "203.0.113.10", 17, jail.udp(7, 8124, text))), "world", text)
            ask = jail.arp(1, mac, "192.168.130.99", "00:00:00:00:00:00", GATEWAY)
            tries["ARP"] = (jail.frame(BROADCAST, mac, 0x0806, ask), "strayfar", jail.mac_bytes(GATEWAY_MAC) + jail.arp(
                2, GATEWAY_MAC, GATEWAY, mac, "192.168.130.99")[14:18])
            sniffer = jail.sniffer(self.world.enter(), "world", "strayfar", "boxery-10")
            try:
                inside("/usr/bin/python3", "-c", jail.SEND_FROM_WORLD, "strayfar", *(f.hex() for f, _, _ in tries.values()))
                time.sleep(1)
            finally:
                lines = sniffer.stop()
            for name, (_, device, mark) in tries.items():
                if any(line.startswith(device + " ") and mark.hex() in line for line in lines):
                    seen.add(name)
        finally:
            inside("ip", "link", "del", "stray")
        return seen

    def flood(self):
        """How many connections of one guest the host tracks after it has tried to open 3600 in 8 s."""
        out = self.world.ssh("probe", "perl -e '%s' 203.0.113.10 8124 3600 8" % jail.SEND_FLOOD)
        self.assertEqual(out.stdout, "sent\n")
        table = self.world.inside("cat", "/proc/net/nf_conntrack").stdout
        # In and out are one line each way of the same entry; only the first address of a line began it.
        return sum("src=192.168.130.11" in line.split("dst=")[0] for line in table.splitlines())

    def probe(self):
        private = ["10.99.0.1", "172.31.99.1", "192.168.99.1", "100.64.99.1", "169.254.169.254"]
        host = jail.listener(self.world.enter(), 8123)
        outside = jail.listener(self.world.enter(emulator=True), 8124)
        try:
            reached = self.connects(GATEWAY + ":8123", "203.0.113.1:8123", "192.168.130.10:22", "203.0.113.10:8124",
                                    *(a + ":8124" for a in private))
            udp_script = 'socket(my $s,2,2,17); send($s,"x",0,pack("S n C4 x8",2,8123,192,168,130,1))'
            self.world.ssh("probe", "perl -e '%s'" % udp_script, check=False)
            syn = self.answered_syn_from_22()
            # From the host only ssh: a listener in the guest on another port.
            self.world.ssh("probe", "nohup perl -e '%s' >/dev/null 2>&1 &" % (
                'socket(my $s,2,1,6); bind($s,pack("S n C4 x8",2,8125,0,0,0,0)); listen($s,5);'
                'while(accept(my $c,$s)){syswrite($c,"hello"); close $c}'))
            time.sleep(1)
            into = self.world.inside("timeout", "4", "bash", "-c", "exec 3<>/dev/tcp/192.168.130.11/8125 && head -c 5 <&3",
                                     check=False).stdout == "hello"
        finally:
            host_lines = host.stop()
            outside.stop()
        return reached, any(line.startswith("udp") for line in host_lines), syn, into

    def closed(self, generation):
        """The probes, with isolation on: whatever makes the wall, none of this passes and the guest still works."""
        call = self.world.vm.call
        self.good(call("filter", "probe", generation=generation))
        self.bad(call("filter", "probe", generation=generation + 1), ESTALE)
        self.assertEqual(self.probe(), ({"203.0.113.10:8124"}, False, False, False))
        self.assertEqual(self.seen_frames(), set())
        self.name_server()
        self.assertFalse(self.loopback_reached())
        self.assertEqual(self.beside_the_bridge(), set())
        self.assertEqual(self.stranger(), set())
        # What was tried must not have cost the guest its connection to the outside.
        self.assertEqual(self.connects("203.0.113.1:8123"), set())
        self.filter_survives_a_restart(generation)
        tracked = self.flood()
        self.assertLess(tracked, 2100)
        self.assertGreater(tracked, 1900)

    def filter_survives_a_restart(self, generation):
        run([WORLD, "restart-libvirtd", self.world.dir])
        self.good(self.world.vm.call("filter", "probe", generation=generation))
        self.good(self.world.vm.call("filter", "victim", generation=generation))
        self.assertEqual(self.seen_frames(), set())

    def isolation_step(self):
        return next(s["text"] for s in self.good(self.world.vm.call("check")).steps if s["step"] == "isolation")

    def test_1_nft(self):
        """The default: rules that are there before any guest is, and are made good by a start when they are not."""
        self.assertIn("per guest by nft, ", self.isolation_step())
        self.world.inside("nft", "delete", "table", "bridge", "boxery_boxery")
        self.start_both(1)
        self.assertNotIn("libvirt-I-", self.world.inside("nft", "list", "ruleset").stdout)
        self.closed(1)
        self.guard_gone_is_noticed(1)
        call, inside = self.world.vm.call, self.world.inside
        # The guest's own: its tap is another kind of port, or elsewhere.
        inside("bridge", "link", "set", "dev", "boxery-11", "isolated", "off")
        self.bad(call("filter", "probe", generation=1), EPERM, "not an isolated port")
        self.good(call("filter", "victim", generation=1))
        inside("bridge", "link", "set", "dev", "boxery-11", "isolated", "on")
        inside("ip", "link", "set", "boxery-11", "nomaster")
        self.bad(call("filter", "probe", generation=1), EPERM, "not on the bridge")
        inside("ip", "link", "set", "boxery-11", "master", "virbr-boxery")
        inside("bridge", "link", "set", "dev", "boxery-11", "isolated", "on")
        self.good(call("filter", "probe", generation=1))
        self.flush_is_mended(1, set())

    def test_2_nwfilter(self):
        self.world.setting("BOXERY_NET_FILTER", "nwfilter")
        try:
            self.assertIn("per guest by nwfilter, ", self.isolation_step())
            self.start_both(2)
            self.closed(2)
            self.guard_gone_is_noticed(2)
            self.nwfilter_gone_is_noticed()
            # By the bridge, which drops it.
            self.flush_is_mended(2, {"DHCP: another's address declined"})
        finally:
            self.world.setting("BOXERY_NET_FILTER", "auto")

    def guard_gone_is_noticed(self, generation):
        """The wall around the bridge: a rule, all of it, or switched off. VM_CHECK puts it back."""
        call, inside = self.world.vm.call, self.world.inside
        listing = inside("nft", "-a", "list", "table", "inet", "boxery_boxery").stdout
        handle = next(line.split()[-1] for line in listing.splitlines() if "10.0.0.0/8" in line)
        for words, *command in (("is missing", "delete", "rule", "inet", "boxery_boxery", "forward", "handle", handle),
                                ("are not there", "delete", "table", "inet", "boxery_boxery"),
                                ("are not there", "delete", "table", "bridge", "boxery_boxery"),
                                ("dormant", "add", "table", "bridge", "boxery_boxery", "{ flags dormant; }")):
            inside("nft", *command)
            self.bad(call("filter", "probe", generation=generation), EPERM, words)
            self.good(call("check"))
            self.good(call("filter", "probe", generation=generation))

    def nwfilter_gone_is_noticed(self):
        """The guest's own wall: the kernel's chains, then libvirt's binding."""
        call = self.world.vm.call
        self.world.inside("ebtables", "-t", "nat", "-D", "libvirt-I-boxery-11", "-p", "IPv4", "--ip-dst", "10.0.0.0/8",
                          "-j", "DROP")
        self.bad(call("filter", "probe", generation=2), EPERM, "other rules")
        self.good(call("filter", "victim", generation=2))
        self.world.inside("ebtables", "-t", "nat", "-F")
        self.bad(call("filter", "victim", generation=2), EPERM, "through its chains")
        self.world.inside("virsh", "nwfilter-binding-delete", "boxery-11")
        self.bad(call("filter", "probe", generation=2), EPERM, "no binding")
        # Restarting libvirtd is what the error text says helps, where the binding is still known.
        run([WORLD, "restart-libvirtd", self.world.dir])
        self.good(call("filter", "victim", generation=2))

    def flush_is_mended(self, generation, seen):
        """All rules of the host flushed by somebody while guests run: the guard is back at once, nwfilter is not."""
        watch = self.world.vm.watch()
        try:
            watch.wait("snapshot")
            self.world.inside("nft", "flush", "ruleset")
            event = watch.wait("unguarded", 15)
            self.assertIn("are not there", event["text"])
            self.assertIn("put back", event["text"])
            answer = self.world.vm.call("filter", "victim", generation=generation)
            if generation == 1:
                self.good(answer)
            else:
                # Without libvirt's part, which is still gone, the guard alone stops what it can see.
                self.bad(answer, EPERM, "has none of libvirt's rules")
            self.assertEqual(self.connects(GATEWAY + ":8123", "192.168.130.10:22"), set())
            self.assertEqual(self.seen_frames(), seen)
            self.assertEqual(self.beside_the_bridge(), set())
            self.assertEqual(self.stranger(), set())
        finally:
            watch.close()
        # As the event says.
        run([WORLD, "restart-libvirtd", self.world.dir])
        self.good(self.world.vm.call("filter", "victim", generation=generation))
        self.assertIn("203.0.113.10:8124", self.probe()[0])

    def test_3_isolation_off(self):
        self.world.setting("BOXERY_NET_ISOLATION", "off")
        try:
            self.good(self.world.vm.call("check"))
            self.assertNotIn("boxery_boxery", self.world.inside("nft", "list", "tables").stdout)
            self.start_both(3)
            self.bad(self.world.vm.call("filter", "probe", generation=3), EPERM, "BOXERY_NET_ISOLATION=off")
            reached, udp, syn, into = self.probe()
            self.assertEqual(reached, {"192.168.130.1:8123", "203.0.113.1:8123", "192.168.130.10:22", "203.0.113.10:8124",
                                       "10.99.0.1:8124", "172.31.99.1:8124", "192.168.99.1:8124", "100.64.99.1:8124",
                                       "169.254.169.254:8124"})
            self.assertTrue(udp and syn and into, (udp, syn, into))
            self.assertEqual(self.seen_frames(), set(jail.attacks()))
            # They did what they do to a host without rules: it looks for the guests in the wrong places.
            self.world.inside("ip", "neigh", "flush", "dev", "virbr-boxery")
            self.assertTrue(self.loopback_reached())
            self.assertEqual(self.beside_the_bridge(), {"datagram", "learnt"})
            self.assertEqual(self.stranger(), {"nobody's", "victim's", "ARP", "guest"})
            self.assertGreater(self.flood(), 3000)
        finally:
            self.world.setting("BOXERY_NET_ISOLATION", "on")


class Lives(Case):
    """Start, reset, what is refused, and what dies in between."""

    @classmethod
    def prepare(cls):
        w = cls.world
        for answer in (w.new("one", 0), w.vm.call("capture", "one")):
            assert answer.ok, answer.result
        cls.generation = 0

    def start(self, **more):
        type(self).generation += 1
        return self.world.start("one", self.generation, **more)

    def reset(self):
        self.good(self.world.vm.call("reset", "one", generation=self.generation))
        self.assertFalse(self.world.domain("one"))
        self.assertFalse(os.path.exists(self.world.path("run", "one.qcow2")))

    def test_bad_requests(self):
        new = self.world.new
        before = sorted(os.listdir(self.world.path("vms")))
        self.bad(new("two", 0), EEXIST, "slot 0")
        self.bad(new("one", 3), EEXIST, "other settings")
        self.bad(new("two", 240), EINVAL, "slot 240")
        self.bad(new("two", 1, memory_mib=10 ** 9), ENOMEM, "does not fit")
        self.bad(new("two", 1, cpus=1000), EINVAL, "CPUs")
        self.bad(new("two", 1, disk_gib=1), EINVAL, "smaller than the base image")
        self.bad(new("two", 1, image="nothing"), ENOENT, "no base image named nothing")
        self.bad(new("a/b", 1), EINVAL, "is not a name")
        self.bad(new("../../x", 1), EINVAL, "is not a name")
        self.bad(self.world.vm.call("start", "nobody", generation=1, key_line=self.world.key_line), ENOENT, "nobody")
        self.bad(self.world.vm.call("capture", "nobody"), ENOENT, "nobody")
        self.bad(self.world.vm.call("start", "one", generation=0, key_line=self.world.key_line), EINVAL)
        self.good(new("one", 0))
        self.assertEqual(sorted(os.listdir(self.world.path("vms"))), before)

    def test_life_event_and_reset(self):
        watch = self.world.vm.watch()
        watch.wait("snapshot")
        first = self.good(self.start())
        generation = self.generation
        self.assertEqual([s["step"] for s in first.steps], ["overlay", "network", "create", "agent", "ready", "begin", "check"])
        entry = watch.wait("entry", 15, name="one")
        self.assertEqual((entry["generation"], entry["running"], entry["plain"]), (generation, 1, 0))
        # Asked again, it says the same again; another generation is refused both ways.
        again = self.good(self.world.start("one", generation))
        self.assertEqual(again.result["host_key"], first.result["host_key"])
        self.bad(self.world.start("one", generation + 1), ESTALE, "reset it first")
        self.bad(self.world.vm.call("reset", "one", generation=generation - 1), ESTALE, "too late")
        self.bad(self.world.vm.call("capture", "one"), EBUSY, "running")
        self.bad(self.world.vm.call("remove", "one"), EBUSY, "running")
        # The delivery key opens nothing but the delivery.
        done = self.world.ssh("one", "id", check=False)
        self.assertNotIn("uid=", done.stdout + done.stderr)
        # The hypervisor says when it ends.
        with open(os.path.join(self.world.dir, "run", "libvirt", "qemu", "one.pid")) as f:
            os.kill(int(f.read()), signal.SIGKILL)
        stopped = watch.wait("stopped", 10, name="one")
        self.assertEqual(stopped["generation"], generation)
        self.reset()
        self.bad(self.world.start("one", generation), ESTALE, "is refused")
        # A new life has another key and no trace of the one before; it ends by a reset.
        second = self.good(self.start())
        self.assertNotEqual(second.result["host_key"], first.result["host_key"])
        start = time.monotonic()
        self.reset()
        self.assertLess(time.monotonic() - start, 10)
        watch.wait("stopped", 10, name="one", generation=self.generation)
        self.reset()
        self.assertEqual(watch.close(), 0)

    def test_libvirtd_killed_during_a_start(self):
        watch = self.world.vm.watch()
        for seconds in (0.6, 1.2, 4):
            type(self).generation += 1
            child, sock = self.world.vm.spawn("start", "one", generation=self.generation, key_line=self.world.key_line)
            time.sleep(seconds)
            run([WORLD, "restart-libvirtd", self.world.dir])
            answer = self.world.vm.collect(child, sock)
            self.assertTrue(answer.result and answer.code < 0, answer.result)
            self.reset()
        watch.wait("disconnected")
        watch.wait("snapshot")
        watch.close()
        self.good(self.start())
        self.reset()

    def test_process_killed_during_a_start(self):
        """boxery-vm dies at once; the reset that follows ends in the same state as after an orderly failure."""
        type(self).generation += 1
        child, sock = self.world.vm.spawn("start", "one", generation=self.generation, key_line=self.world.key_line)
        time.sleep(3)
        child.kill()
        child.wait()
        sock.close()
        self.bad(self.start(), ESTALE, "reset it first")
        self.reset()

    def test_libvirtd_stopped(self):
        run([WORLD, "libvirtd-kill", self.world.dir])
        try:
            self.bad(self.start(), ECONNREFUSED, "cannot reach libvirt at qemu:///system")
            self.bad(self.world.vm.call("reset", "one", generation=self.generation), ECONNREFUSED, "cannot reach libvirt")
        finally:
            run([WORLD, "libvirtd-start", self.world.dir])
        self.reset()

    def test_folder_read_only(self):
        self.good(self.start())
        folder = self.world.path("run")
        self.world.inside("mount", "--bind", folder, folder)
        self.world.inside("mount", "-o", "remount,bind,ro", folder)
        try:
            answer = self.bad(self.world.vm.call("reset", "one", generation=self.generation), -30, "run/one")
            self.assertEqual(answer.result["step"], "lock")
        finally:
            self.world.inside("umount", folder)
        self.reset()

    def test_layers_changed(self):
        """A base or clean layer that is not the file it was stops the start before any guest."""
        clean = self.world.path("images", "one@boxery-clean", "disk.qcow2")
        stat = os.stat(clean)
        os.utime(clean, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        self.bad(self.start(), ESTALE, "clean image of one is not the file")
        os.utime(clean, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        base = self.world.path("base", self.world.image, "disk.qcow2")
        copy = base + ".copy"
        shutil.copy2(base, copy)
        os.rename(base, base + ".old")
        os.rename(copy, base)
        try:
            self.bad(self.start(), ESTALE, "was replaced or changed")
            self.bad(self.world.vm.call("capture", "one"), ESTALE, "was replaced or changed")
        finally:
            os.rename(base + ".old", base)
        self.assertFalse(self.world.domain("one"))
        self.reset()

    def test_guest_that_does_not_come_up(self):
        """A deadline ends a start that hangs; nothing runs afterwards, and the text says where it was."""
        answer = self.bad(self.start(timeout_ms=2500), -110, "guest agent did not answer")
        self.assertEqual(answer.result["step"], "agent")
        self.assertFalse(self.world.domain("one"))
        self.reset()

    def test_foreign_domain(self):
        xml = os.path.join(self.world.dir, "foreign.xml")
        with open(xml, "w") as f:
            f.write("<domain type='qemu'><name>alien</name><memory unit='MiB'>64</memory>"
                    "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>")
        self.world.inside("virsh", "create", xml)
        try:
            self.good(self.world.new("alien", 9))
            self.bad(self.world.start("alien", 1, PLAIN), EEXIST, "was not made by boxery")
            self.bad(self.world.vm.call("remove", "alien", flags=FORCE), EEXIST, "left alone")
            self.assertTrue(self.world.domain("alien"))
            self.assertEqual(self.world.vm.call("list").entry("alien")["running"], 0)
        finally:
            self.world.inside("virsh", "destroy", "alien")
        self.good(self.world.vm.call("remove", "alien"))
        self.assertIsNone(self.world.vm.call("list").entry("alien"))
        self.assertEqual([n for n in os.listdir(self.world.path("vms")) if "alien" in n], [])

    def test_plain_vm_capture_console(self):
        """A plain VM is changed and captured; the pool's lives start from that. Its console stays under its cap."""
        self.good(self.world.new("two", 1))
        self.world.setting("BOXERY_CONSOLE_MAX", "1M")
        watch = self.world.vm.watch()
        self.good(self.world.start("two", 1, PLAIN))
        self.world.ssh("two", "echo kept > /etc/kept; sync")
        watch.wait("entry", 15, name="two")
        self.world.ssh("two", "(dd if=/dev/zero bs=1k count=1200 2>/dev/null | tr '\\0' x | fold -w 80; echo END) > /dev/ttyS0")
        watch.wait("console-cut", 60, name="two")
        self.assertLess(os.stat(self.world.path("console", "two.log")).st_size, 1024 * 1024)
        watch.close()
        self.good(self.world.vm.call("stop", "two"))
        self.assertFalse(self.world.domain("two"))
        self.good(self.world.vm.call("capture", "two"))
        info = self.world.inside("qemu-img", "info", "--backing-chain", self.world.path(
            "images", "two@boxery-clean", "disk.qcow2")).stdout
        self.assertEqual(info.count("image: "), 2)
        self.assertFalse(self.world.vm.call("list").entry("two")["plain"])
        # The plain disk is still there, so it can be changed and captured again: the new image replaces the old one whole.
        old = os.stat(self.world.path("images", "two@boxery-clean", "disk.qcow2")).st_ino
        self.good(self.world.start("two", 2, PLAIN))
        self.assertEqual(self.world.ssh("two", "cat /etc/kept; cat /run/boxery/generation").stdout, "kept\n2\n")
        self.good(self.world.vm.call("stop", "two", flags=FORCE))
        self.good(self.world.vm.call("capture", "two"))
        self.assertNotEqual(os.stat(self.world.path("images", "two@boxery-clean", "disk.qcow2")).st_ino, old)
        self.good(self.world.start("two", 3))
        self.good(self.world.vm.call("remove", "two", flags=FORCE))
        left = [os.path.join(d, n) for d, _, names in os.walk(self.world.path()) for n in names if n.startswith("two")]
        self.assertEqual(left, [])

    def test_virtualisation_is_probed(self):
        self.world.setting("BOXERY_VIRT", "auto")
        try:
            first = self.good(self.world.vm.call("check"))
            start = time.monotonic()
            second = self.good(self.world.vm.call("check"))
            self.assertLess(time.monotonic() - start, 5)
        finally:
            self.world.setting("BOXERY_VIRT", "qemu")
        said = [next(s["text"] for s in a.steps if s["step"] == "virtualisation") for a in (first, second)]
        self.assertEqual(said[0], said[1])
        self.assertTrue(said[0].startswith("KVM: " if first.result["kvm"] else "software emulation (slow): "), said[0])
        self.assertNotIn("--probe", self.world.inside("virsh", "-q", "list", "--all").stdout)


class Clone(Case):
    """A VM on another one's clean image: its limits, a key of its holder's, what is done to it behind our back, evidence."""

    @classmethod
    def prepare(cls):
        w = cls.world
        for answer in (w.new("origin", 0), w.vm.call("capture", "origin"),
                       w.vm.call("new", "clone", slot=1, cpus=2, memory_mib=1024, clean_of="origin")):
            assert answer.ok, answer.result

    def trouble(self, name="clone"):
        return self.world.vm.call("list").entry(name)["trouble"]

    def virsh(self, *args):
        return self.world.inside("virsh", "-q", *args).stdout

    def holder_ssh(self, command, **more):
        return self.world.ssh("clone", command, **more)

    def test_a_life(self):
        w = self.world
        delivery, w.key = w.key, os.path.join(w.dir, "holder")
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "holder", "-f", w.key])
        with open(w.key + ".pub") as f:
            holder = f.read().strip()
        self.good(w.start("clone", 1, start_cpus=1, start_memory_mib=768, disk_mib_per_s=20, disk_iops=500,
                          net_kib_per_s=512))
        self.assertEqual(self.trouble(), "")
        self.assertFalse(w.vm.call("list").entry("clone")["plain"])
        self.limits_are_there()
        # A key for the holder: only in this life, only before a delivery.
        self.assertNotEqual(self.holder_ssh("true", check=False).returncode, 0)
        self.bad(w.vm.call("grant", "clone", generation=2, key_line=holder), ESTALE, "runs in its life 1")
        self.bad(w.vm.call("grant", "clone", generation=1, key_line="command=\"x\" " + holder), EINVAL)
        for _ in range(2):
            self.good(w.vm.call("grant", "clone", generation=1, key_line=holder))
        self.assertEqual(self.holder_ssh("wc -l </run/boxery/authorized_keys").stdout.strip(), "2")
        self.limits_work()
        self.holder_ssh("mkdir /run/boxery/job")
        self.bad(w.vm.call("grant", "clone", generation=1, key_line=holder), -5, "delivery was made")
        w.key = delivery
        # It is held fast by its clone.
        self.bad(w.vm.call("remove", "origin", flags=FORCE), EBUSY, "clone lives from the clean image of origin")
        self.bad(w.vm.call("capture", "origin"), EBUSY, "clone is running")
        self.bad(w.vm.call("capture", "clone"), EINVAL, "no disk of its own")
        self.bad(w.start("clone", 2, PLAIN), EINVAL, "no disk of its own")
        self.behind_our_back()
        self.evidence()

    def limits_are_there(self):
        self.assertEqual(self.virsh("dominfo", "clone").split("Max memory:")[1].split()[0], str(768 * 1024))
        disk = dict(line.split(":") for line in self.virsh("blkdeviotune", "clone", "vda").replace(" ", "").splitlines())
        self.assertEqual((disk["total_bytes_sec"], disk["total_iops_sec"]), (str(20 << 20), "500"))
        rules = self.world.inside("nft", "list", "table", "bridge", "boxery_rate_boxery_11").stdout
        self.assertEqual(rules.count("limit rate over 512 kbytes/second"), 2)

    def limits_work(self):
        start = time.monotonic()
        self.holder_ssh("dd if=/dev/zero of=/var/tmp/x bs=1M count=60 oflag=direct 2>/dev/null; rm /var/tmp/x")
        self.assertGreater(time.monotonic() - start, 2.2)
        start = time.monotonic()
        self.holder_ssh("head -c 2000000 /dev/zero")
        out = time.monotonic() - start
        start = time.monotonic()
        run(self.world.enter() + ["bash", "-c", "head -c 2000000 /dev/zero | ssh -i %s -o UserKnownHostsFile=%s -o BatchMode=yes "
                                  "root@192.168.130.11 'cat >/dev/null'" % (self.world.key, self.world.dir + "/known-clone")])
        self.assertGreater(min(out, time.monotonic() - start), 2.5)

    def behind_our_back(self):
        w, overlay = self.world, self.world.path("run", "clone.qcow2")
        run([WORLD, "restart-libvirtd", w.dir])
        self.assertEqual(self.trouble(), "")
        os.rename(overlay, overlay + ".aside")
        self.assertIn("was deleted", self.trouble())
        shutil.copy2(overlay + ".aside", overlay)
        self.assertIn("was replaced by another file", self.trouble())
        os.rename(overlay + ".aside", overlay)
        self.assertEqual(self.trouble(), "")
        settings = w.path("vms", "clone.env")
        os.rename(settings, settings + ".aside")
        self.assertIn("settings file vms/clone.env is missing", self.trouble())
        os.rename(settings + ".aside", settings)
        clean = w.path("images", "origin@boxery-clean", "disk.qcow2")
        stat = os.stat(clean)
        os.utime(clean)
        self.assertIn("clean image of origin is not the file", self.trouble())
        self.assertIn("clean image of origin is not the file", self.trouble("origin"))
        os.utime(clean, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        twin = os.path.join(w.dir, "twin.xml")
        with open(twin, "w") as f:
            f.write("<domain type='qemu'><name>twin</name><metadata><vm xmlns='urn:boxery:vm:1' name='clone' generation='1' "
                    "net='boxery'/></metadata><memory unit='MiB'>64</memory>"
                    "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>")
        self.virsh("create", twin)
        self.assertIn("another domain, twin, carries a copy of its mark", self.trouble())
        self.assertIsNone(w.vm.call("list").entry("twin"))
        self.virsh("destroy", "twin")
        xml = os.path.join(w.dir, "clone.xml")
        with open(xml, "w") as f:
            f.write(self.virsh("dumpxml", "clone"))
        self.virsh("define", xml)
        self.assertIn("somebody has defined its domain", self.trouble())
        self.virsh("undefine", "clone")
        self.virsh("suspend", "clone")
        self.assertIn("was paused by somebody", self.trouble())
        self.virsh("resume", "clone")
        self.assertEqual(self.trouble(), "")
        self.virsh("snapshot-create-as", "clone", "--disk-only", "--no-metadata", "--diskspec",
                   "vda,file=" + w.path("run", "stray"))
        self.assertIn("its disk has 4 layers, not 3", self.trouble())
        os.unlink(w.path("run", "stray"))

    def evidence(self):
        w, watch = self.world, self.world.vm.watch()
        kept = w.path("broken", "clone.qcow2")
        watch.wait("entry", name="clone")
        self.virsh("destroy", "clone")
        watch.wait("stopped", 10, name="clone", generation=1)
        watch.close()
        self.assertEqual(self.trouble(), "")
        answer = self.good(w.vm.call("reset", "clone", generation=1, flags=HALT))
        self.assertEqual(answer.text, w.path("run", "clone.qcow2"))
        self.assertTrue(os.path.exists(answer.text))
        for _ in range(2):
            answer = self.good(w.vm.call("reset", "clone", generation=1, flags=EVIDENCE))
            self.assertEqual(answer.text, kept)
        self.assertFalse(os.path.exists(w.path("run", "clone.qcow2")))
        self.assertNotIn("boxery_rate", w.inside("nft", "list", "tables").stdout)
        w.inside("qemu-img", "check", "-q", kept)
        self.bad(w.start("clone", 1), ESTALE, "is refused")
        self.good(w.vm.call("reset", "clone", generation=1))
        self.assertEqual(os.listdir(w.path("broken")), [])
        self.good(w.vm.call("remove", "clone"))
        self.good(w.vm.call("remove", "origin"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
