#!/usr/bin/python3
"""The rules of vm/guard_rules.c in a real kernel: a bridge with veth ports in the place of taps, in a network of its own.

    test_filter.py RENDER     (tests/golden's vm_render, which prints the rules)

The frames of tests/vm/jail.py are sent into a port as a guest would. Each must be seen where it is aimed at while there are
no rules, and not with them; what a guest is for must pass. No libvirt, no guest: seconds instead of minutes.
"""
import os
import re
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "vm"))
import jail  # noqa: E402
from jail import BROADCAST, GATEWAY, GATEWAY_MAC  # noqa: E402

RENDER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else None
ME, MAC = "192.168.130.11", "52:54:00:b0:0e:0b"
VICTIM, VICTIM_MAC = "192.168.130.10", "52:54:00:b0:0e:0a"
OUTSIDE = "203.0.113.10"
# What the guard alone leaves to nwfilter.
LEFT_TO_NWFILTER = {"DHCP: another's address declined"}
SETTLE_S = 0.5


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def rules(kind):
    run("nft", "flush", "ruleset")
    if kind:
        run("nft", "-f", "-", input=run(RENDER, kind))


def port(name, far):
    run("ip", "link", "add", name, "type", "veth", "peer", "name", far)
    for end in (name, far):
        run("sysctl", "-qw", "net.ipv6.conf.%s.disable_ipv6=1" % end)
        run("ip", "link", "set", end, "up")


def world():
    """boxery-10 and boxery-11 are the taps, guest10 and guest11 what a guest's card would be; `world` leads outside."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "virbr-boxery", "address", GATEWAY_MAC, "type", "bridge", "stp_state", "0", "forward_delay", "0",
        "mcast_snooping", "0")
    run("ip", "link", "set", "virbr-boxery", "up")
    run("ip", "address", "add", GATEWAY + "/24", "dev", "virbr-boxery")
    for n in ("10", "11"):
        port("boxery-" + n, "guest" + n)
        run("ip", "link", "set", "boxery-" + n, "master", "virbr-boxery")
    port("world", "outside")
    run("ip", "address", "add", "203.0.113.1/24", "dev", "world")
    run("ip", "neighbour", "add", OUTSIDE, "lladdr", "52:54:00:00:00:99", "dev", "world")
    for address, mac in ((ME, MAC), (VICTIM, VICTIM_MAC)):
        run("ip", "neighbour", "add", address, "lladdr", mac, "dev", "virbr-boxery")
    for name in ("ip_forward=1", "conf.all.rp_filter=0", "conf.boxery-11.rp_filter=0", "conf.virbr-boxery.rp_filter=0"):
        run("sysctl", "-qw", "net.ipv4." + name)


def send(frames, device="guest11"):
    run("/usr/bin/python3", "-c", jail.SEND_FROM_WORLD, device, *(f.hex() for f in frames))


def seen(frames, device="guest11"):
    """Which of name -> (frame, device, mark) are seen on their device."""
    sniffer = jail.sniffer([], *sorted({d for _, d, _ in frames.values()}))
    try:
        send([f for f, _, _ in frames.values()], device)
        time.sleep(SETTLE_S)
    finally:
        lines = sniffer.stop()
    return {name for name, (_, d, mark) in frames.items() if any(x.startswith(d + " ") and mark.hex() in x for x in lines)}


def wanted():
    """What a guest is for: name -> (frame, device, mark)."""
    def out(name, destination, protocol, payload, device="virbr-boxery"):
        return name, (jail.frame(GATEWAY_MAC, MAC, 0x0800, jail.ipv4(ME, destination, protocol, payload)), device, payload)
    ask = jail.arp(1, MAC, ME, "00:00:00:00:00:00", GATEWAY)
    answer = jail.mac_bytes(MAC) + jail.mac_bytes(GATEWAY_MAC) + b"\x08\x06" + jail.arp(2, GATEWAY_MAC, GATEWAY, MAC, ME)
    return dict([
        out("DNS", GATEWAY, 17, jail.udp(4000, 53, b"boxery-dns")),
        out("DNS by TCP", GATEWAY, 6, jail.tcp_syn(ME, GATEWAY, 4000, 53)),
        out("the answer of ssh", GATEWAY, 6, jail.tcp_syn(ME, GATEWAY, 22, 4000)),
        out("outside", OUTSIDE, 17, jail.udp(4000, 9, b"boxery-outside"), "world"),
        out("ping outside", OUTSIDE, 1, b"\x08\0\xf7\xff" + bytes(4), "world"),
        ("ARP", (jail.frame(BROADCAST, MAC, 0x0806, ask), "guest11", answer)),
    ])


def to_guest():
    """From the host, sent on the bridge's own device: name -> (frame, device, mark)."""
    def into(name, source, mac, destination, protocol, payload, device, source_mac=GATEWAY_MAC):
        return name, (jail.frame(mac, source_mac, 0x0800, jail.ipv4(source, destination, protocol, payload)), device, payload)
    syn = jail.tcp_syn(GATEWAY, ME, 4000, 22)
    about_me = jail.arp(1, GATEWAY_MAC, GATEWAY, "00:00:00:00:00:00", ME)
    about_victim = jail.arp(1, GATEWAY_MAC, GATEWAY, "00:00:00:00:00:00", VICTIM)
    good = dict([
        into("ssh", GATEWAY, MAC, ME, 6, syn, "guest11"),
        into("an answer of DNS", GATEWAY, MAC, ME, 17, jail.udp(53, 4000, b"boxery-in-1"), "guest11"),
        into("from outside", OUTSIDE, MAC, ME, 17, jail.udp(9, 4000, b"boxery-in-2"), "guest11"),
        into("an error", GATEWAY, MAC, ME, 1, b"\3\4\0\0" + bytes(8), "guest11"),
        ("ARP about it", (jail.frame(BROADCAST, GATEWAY_MAC, 0x0806, about_me), "guest11", about_me)),
    ])
    bad = dict([
        into("another port", GATEWAY, MAC, ME, 6, jail.tcp_syn(GATEWAY, ME, 4000, 8125), "guest11"),
        into("flooded", GATEWAY, "52:54:00:b0:0e:0c", "192.168.130.12", 17, jail.udp(53, 5, b"boxery-in-3"), "guest11"),
        into("another's address", GATEWAY, MAC, VICTIM, 17, jail.udp(53, 5, b"boxery-in-4"), "guest11"),
        into("from another guest", VICTIM, MAC, ME, 17, jail.udp(53, 5, b"boxery-in-5"), "guest11"),
        into("broadcast", GATEWAY, BROADCAST, "255.255.255.255", 17, jail.udp(53, 5, b"boxery-in-6"), "guest11"),
        into("another MAC", GATEWAY, MAC, ME, 17, jail.udp(53, 5, b"boxery-in-7"), "guest11", "52:54:00:de:ad:03"),
        ("ARP about the victim", (jail.frame(BROADCAST, GATEWAY_MAC, 0x0806, about_victim), "guest11", about_victim)),
        ("IPv6", (jail.frame(MAC, GATEWAY_MAC, 0x86DD, jail.ipv6("fe80::1", "fe80::2", 17, jail.udp(53, 5, b"boxery-in-8"))),
                  "guest11", b"boxery-in-8")),
    ])
    return good, bad


def beside_the_bridge(last):
    """As in tests/vm: did a datagram to 01:80:c2:00:00:0LAST arrive, did the bridge learn from such a frame?"""
    listener = jail.listener([], 8127)
    try:
        to = "01:80:c2:00:00:0" + last
        send([jail.frame(to, MAC, 0x0800, jail.ipv4(ME, "203.0.113.1", 17, jail.udp(5, 8127, b"beside"))),
              jail.frame(to, "52:54:00:de:ad:02", 0x88CC, bytes(60))])
        time.sleep(SETTLE_S)
        learnt = "52:54:00:de:ad:02" in run("bridge", "fdb", "show", "br", "virbr-boxery")
    finally:
        lines = listener.stop()
    return any(x.startswith("udp " + ME) for x in lines), learnt


def beside_arp():
    """Does the host answer ARP for an address of its other side, asked past the bridge?"""
    ask = jail.arp(1, MAC, ME, "00:00:00:00:00:00", "203.0.113.1")
    answer = b"\x08\x06" + bytes.fromhex("0001080006040002")
    return seen({"answer": (jail.frame("01:80:c2:00:00:0e", MAC, 0x0806, ask), "guest11", answer)}) != set()


def fragments_arrive():
    """A datagram for the host in two parts."""
    whole = jail.udp(4000, 8128, b"in two parts" * 4)
    listener = jail.listener([], 8128)
    try:
        send([jail.frame(GATEWAY_MAC, MAC, 0x0800, jail.ipv4(ME, GATEWAY, 17, part, fragment=at))
              for part, at in ((whole[:24], 0x2000), (whole[24:], 3))])
        time.sleep(SETTLE_S)
    finally:
        lines = listener.stop()
    return any(x.startswith("udp " + ME) for x in lines)


class Filter(unittest.TestCase):
    def setUp(self):
        # The bridge must not remember what an earlier test has taught it.
        run("ip", "link", "set", "virbr-boxery", "type", "bridge", "fdb_flush")
        self.addCleanup(rules, None)

    def teach(self):
        """Both guests say who they are, as they would."""
        for device, mac, address in (("guest10", VICTIM_MAC, VICTIM), ("guest11", MAC, ME)):
            send([jail.frame(GATEWAY_MAC, mac, 0x0806, jail.arp(1, mac, address, "00:00:00:00:00:00", GATEWAY))], device)

    def test_nothing_passes(self):
        attacks = {k: (f, d.replace("boxery-10", "guest10"), m) for k, (f, d, m) in jail.attacks().items()}
        for kind, passes in ((None, set(attacks)), ("guard", set()), ("guard-nwfilter", LEFT_TO_NWFILTER)):
            with self.subTest(kind):
                rules(kind)
                run("ip", "link", "set", "virbr-boxery", "type", "bridge", "fdb_flush")
                self.teach()
                self.assertEqual(seen(attacks), passes)

    def test_beside_the_bridge(self):
        for kind in (None, "guard", "guard-nwfilter"):
            with self.subTest(kind):
                rules(kind)
                run("ip", "link", "set", "virbr-boxery", "type", "bridge", "fdb_flush")
                self.assertEqual(beside_the_bridge("2"), (not kind, not kind))
                # LLDP is not shown to the bridge's rules at all, so it learns; the host still takes nothing of it.
                self.assertEqual(beside_the_bridge("e")[0], not kind)
                self.assertEqual(beside_arp(), not kind)

    def test_fragments(self):
        for kind in (None, "guard", "guard-nwfilter"):
            with self.subTest(kind):
                rules(kind)
                self.teach()
                self.assertEqual(fragments_arrive(), not kind)

    def test_what_a_guest_is_for(self):
        for kind in (None, "guard", "guard-nwfilter"):
            with self.subTest(kind):
                rules(kind)
                self.teach()
                self.assertEqual(seen(wanted()), set(wanted()))

    def test_the_proxy_and_nothing_beside_it(self):
        """BOXERY_GUEST_PROXY=10.1.2.3:3128 opens that of a closed range, and not one thing more."""
        run("ip", "route", "add", "10.0.0.0/8", "via", OUTSIDE, "dev", "world")
        self.addCleanup(run, "ip", "route", "del", "10.0.0.0/8")

        def out(destination, protocol, payload, source=ME, mac=MAC):
            return jail.frame(GATEWAY_MAC, mac, 0x0800, jail.ipv4(source, destination, protocol, payload)), "world", payload
        frames = {"the proxy": out("10.1.2.3", 6, jail.tcp_syn(ME, "10.1.2.3", 4001, 3128)),
                  "another port": out("10.1.2.3", 6, jail.tcp_syn(ME, "10.1.2.3", 4002, 3129)),
                  "by UDP": out("10.1.2.3", 17, jail.udp(4003, 3128, b"boxery-proxy-1")),
                  "a ping": out("10.1.2.3", 1, b"\x08\0\xf7\xfe\0\1" + bytes(2)),
                  "its neighbour": out("10.1.2.4", 6, jail.tcp_syn(ME, "10.1.2.4", 4004, 3128)),
                  "in another's name": out("10.1.2.3", 6, jail.tcp_syn(VICTIM, "10.1.2.3", 4005, 3128), VICTIM)}
        for kind, passes in ((None, set(frames)), ("guard", set()), ("guard-proxy", {"the proxy"})):
            with self.subTest(kind):
                rules(kind)
                self.teach()
                self.assertEqual(seen(frames), passes)
        self.teach()
        self.assertEqual(seen(wanted()), set(wanted()))
        attacks = {k: (f, d.replace("boxery-10", "guest10"), m) for k, (f, d, m) in jail.attacks().items()}
        self.assertEqual(seen(attacks), set())

    def test_to_a_guest(self):
        good, bad = to_guest()
        for kind, passes in ((None, set(good) | set(bad)), ("guard", set(good))):
            with self.subTest(kind):
                rules(kind)
                self.teach()
                self.assertEqual(seen({**good, **bad}, "virbr-boxery"), passes)

    def test_tap_that_nobody_knows(self):
        """Nothing of it is taken by the host or bridged to a guest, whoever it says to be."""
        port("stray", "strayfar")
        self.addCleanup(run, "ip", "link", "del", "stray")
        run("ip", "link", "set", "stray", "master", "virbr-boxery")
        frames = {
            "outside": (jail.frame(GATEWAY_MAC, MAC, 0x0800, jail.ipv4(ME, OUTSIDE, 17, jail.udp(7, 9, b"stray-1"))), "world",
                        b"stray-1"),
            "to a guest": (jail.frame(VICTIM_MAC, GATEWAY_MAC, 0x0800, jail.ipv4(
                OUTSIDE, VICTIM, 17, jail.udp(7, 9, b"stray-2"))), "guest10", b"stray-2"),
        }
        for kind, passes in ((None, set(frames)), ("guard", set()), ("guard-nwfilter", set())):
            with self.subTest(kind):
                rules(kind)
                self.assertEqual(seen(frames, "strayfar"), passes)

    def test_parts_of_the_rules(self):
        """Without the bridge's part the host takes nothing; the sets cannot be changed; nothing is asked of a slot's tap."""
        rules("guard")
        for change in (("add", "element", "bridge", "boxery_boxery", "taps", "{ stray }"),
                       ("delete", "element", "bridge", "boxery_boxery", "taps", "{ boxery-11 }"),
                       ("flush", "set", "bridge", "boxery_boxery", "slots")):
            self.assertNotEqual(subprocess.run(["nft", *change], stderr=subprocess.DEVNULL, check=False).returncode, 0)
        run("nft", "delete", "table", "bridge", "boxery_boxery")
        self.assertEqual(seen({"outside": wanted()["outside"]}), set())
        text = run(RENDER, "guard")
        self.assertEqual(len(set(re.findall(r'"(boxery-\d+)"', text))), 240)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root: it makes a network of its own")
        sys.exit(77)
    if os.environ.get("BOXERY_TEST_NETNS") != str(os.getppid()):
        os.environ["BOXERY_TEST_NETNS"] = str(os.getpid())
        sys.exit(subprocess.run(["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c",
                                 'mount -t sysfs sysfs /sys && BOXERY_TEST_NETNS=$$ "$@"', "sh", "/usr/bin/python3",
                                 os.path.abspath(__file__), RENDER, *sys.argv[1:]], check=False).returncode)
    world()
    unittest.main()
