"""What a guest's network jail is measured with: listeners in a world, a sniffer for frames, and raw frames sent by perl
(the only interpreter of a Debian minbase guest) as root in the guest."""
import select
import socket
import struct
import subprocess
import threading

GATEWAY = "192.168.130.1"
GATEWAY_MAC = "52:54:00:b0:0e:01"
BROADCAST = "ff:ff:ff:ff:ff:ff"

# Runs inside the world's namespaces: prints one line per connection or datagram that arrived.
LISTENER = r"""
import select, socket, sys
port, address = int(sys.argv[1]), sys.argv[2]
t = socket.socket(); t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); t.bind((address, port)); t.listen(16)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((address, port))
print("ready", flush=True)
while True:
    for s in select.select([t, u], [], [])[0]:
        if s is t:
            c, a = t.accept(); c.sendall(b"hello\n"); c.close(); print("tcp", *a, flush=True)
        else:
            print("udp", *u.recvfrom(100)[1], flush=True)
"""

# Prints "DEVICE HEX" for each frame seen on the devices, in or out.
SNIFFER = r"""
import select, socket, sys
socks = {}
for dev in sys.argv[1:]:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind((dev, 0)); socks[s] = dev
print("ready", flush=True)
while True:
    for s in select.select(list(socks), [], [])[0]:
        print(socks[s], s.recv(2048)[:96].hex(), flush=True)
"""

# DEVICE, then frames in hex: the same from a program in the world itself.
SEND_FROM_WORLD = r"""
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    for _ in range(3): s.send(bytes.fromhex(frame))
"""

# Each argument is a frame in hex, sent three times.
SEND_FRAMES = r"""
open(my $f, "<", "/sys/class/net/$ARGV[0]/ifindex") or die; my $index = <$f>; chomp $index;
socket(my $s, 17, 3, 0x0300) or die "socket: $!";
my $to = pack("S n i S C C a8", 17, 3, $index, 0, 0, 6, "");
for my $hex (@ARGV[1..$#ARGV]) { for (1..3) { send($s, pack("H*", $hex), 0, $to) or print "not sent: $!\n"; } }
print "sent\n";
"""

# Datagrams to ADDRESS:PORT from one port each, COUNT of them over SECONDS.
SEND_FLOOD = r"""
my ($a, $port, $count, $seconds) = @ARGV;
my $to = pack("S n C4 x8", 2, $port, split(/\./, $a));
for my $i (1..$count) {
	socket(my $s, 2, 2, 17) or die; bind($s, pack("S n C4 x8", 2, 10000 + $i, 0, 0, 0, 0)) or die; send($s, "x", 0, $to);
	select(undef, undef, undef, 20 * $seconds / $count) if $i % 20 == 0;
}
print "sent\n";
"""


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source, destination, protocol, payload, fragment=0):
    """fragment: its place in the whole, in units of 8 bytes."""
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, fragment, 64, protocol, 0, socket.inet_aton(source),
                       socket.inet_aton(destination))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def ipv6(source, destination, protocol, payload):
    return struct.pack("!IHBB", 0x60000000, len(payload), protocol, 255) + socket.inet_pton(socket.AF_INET6, source) + \
        socket.inet_pton(socket.AF_INET6, destination) + payload


def udp(source_port, destination_port, payload):
    return struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0) + payload


def tcp_syn(source, destination, source_port, destination_port):
    head = struct.pack("!HHIIBBHHH", source_port, destination_port, 1000, 0, 0x50, 2, 1024, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack("!BBH", 0, 6, len(head))
    return head[:16] + struct.pack("!H", checksum(pseudo + head)) + head[18:]


def arp(operation, sender_mac, sender, target_mac, target):
    return struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, operation, mac_bytes(sender_mac), socket.inet_aton(sender),
                       mac_bytes(target_mac), socket.inet_aton(target))


def dhcp(kind, hardware, address, number):
    """What a DHCP client sends: 1 DISCOVER, 4 DECLINE of an address, in the name of the card `hardware`."""
    head = struct.pack("!BBBBIHH4s4s4s4s", 1, 1, 6, 0, number, 0, 0x8000, bytes(4), bytes(4), bytes(4), bytes(4))
    options = b"\x63\x82\x53\x63" + bytes([53, 1, kind, 50, 4]) + socket.inet_aton(address) + b"\xff"
    return (head + mac_bytes(hardware) + bytes(10 + 192) + options).ljust(300, b"\0")


def frame(destination_mac, source_mac, kind, payload):
    return mac_bytes(destination_mac) + mac_bytes(source_mac) + struct.pack("!H", kind) + payload


def attacks():
    """Frames of the guest in slot 1, with a victim in slot 0: name -> (frame, device on which it must not be seen, bytes to recognise it by)."""
    me, mac, spoof = "192.168.130.11", "52:54:00:b0:0e:0b", "52:54:00:de:ad:01"
    tap = "boxery-10"
    bridge = "virbr-boxery"

    def mark(n):
        return b"boxery-mark-%d" % n
    decline = dhcp(4, "52:54:00:b0:0e:0a", "192.168.130.10", 0xB0E70001)
    discover = dhcp(1, mac, "0.0.0.0", 0xB0E70002)
    six = ipv6("fe80::5054:ff:feb0:e0b", "ff02::fb", 17, udp(5353, 5353, mark(4)))
    return {
        "another source MAC": (frame(BROADCAST, spoof, 0x0800, ipv4(
            me, "255.255.255.255", 17, udp(5, 6, mark(1)))), bridge, mark(1)),
        "another source address": (frame(GATEWAY_MAC, mac, 0x0800, ipv4(
            "192.168.130.77", GATEWAY, 17, udp(5, 6, mark(2)))), bridge, mark(2)),
        "ARP for the gateway's address": (frame(BROADCAST, mac, 0x0806, arp(
            2, mac, GATEWAY, BROADCAST, GATEWAY)), tap, arp(2, mac, GATEWAY, BROADCAST, GATEWAY)),
        "a frame to the other guest": (frame("52:54:00:b0:0e:0a", mac, 0x0800, ipv4(
            me, "192.168.130.10", 17, udp(5, 6, mark(3)))), tap, mark(3)),
        "IPv6": (frame("33:33:00:00:00:fb", mac, 0x86DD, six), tap, mark(4)),
        "a VLAN tag": (frame(BROADCAST, mac, 0x8100, b"\0\5\x08\0" + ipv4(
            me, "255.255.255.255", 17, udp(5, 6, mark(5)))), tap, mark(5)),
        "an unknown protocol": (frame(BROADCAST, mac, 0x88B5, mark(6) + bytes(40)), tap, mark(6)),
        "ARP to the other guest": (frame("52:54:00:b0:0e:0a", mac, 0x0806, arp(
            2, mac, me, "52:54:00:b0:0e:0a", "192.168.130.10")), tap, arp(
            2, mac, me, "52:54:00:b0:0e:0a", "192.168.130.10")),
        "a priority tag": (frame(GATEWAY_MAC, mac, 0x8100, b"\0\0\x08\0" + ipv4(
            me, GATEWAY, 17, udp(5, 6, mark(9)))), bridge, mark(9)),
        "two VLAN tags": (frame(BROADCAST, mac, 0x88A8, b"\0\5\x81\0\0\6\x08\0" + ipv4(
            me, "255.255.255.255", 17, udp(5, 6, mark(10)))), tap, mark(10)),
        "the other guest's address": (frame(GATEWAY_MAC, mac, 0x0800, ipv4(
            "192.168.130.10", GATEWAY, 17, udp(53, 53, mark(12)))), bridge, mark(12)),
        # What follows teaches a bridge without rules that the other guest is here.
        "the other guest's MAC and address": (frame(GATEWAY_MAC, "52:54:00:b0:0e:0a", 0x0800, ipv4(
            "192.168.130.10", "203.0.113.10", 17, udp(5, 6, mark(13)))), bridge, mark(13)),
        "the gateway's MAC": (frame(GATEWAY_MAC, GATEWAY_MAC, 0x0800, ipv4(
            me, GATEWAY, 17, udp(5, 53, mark(14)))), bridge, mark(14)),
        "ARP for the other guest's address": (frame(BROADCAST, mac, 0x0806, arp(
            1, mac, "192.168.130.10", "00:00:00:00:00:00", "192.168.130.10")), bridge, arp(
            1, mac, "192.168.130.10", "00:00:00:00:00:00", "192.168.130.10")),
        "ARP with another MAC inside": (frame(GATEWAY_MAC, mac, 0x0806, arp(
            2, spoof, me, GATEWAY_MAC, GATEWAY)), bridge, arp(2, spoof, me, GATEWAY_MAC, GATEWAY)),
        "a bridge's own protocol": (frame("01:80:c2:00:00:00", mac, 38, b"\x42\x42\3" + mark(15) + bytes(24)), tap,
                                    mark(15)),
        "multicast": (frame("01:00:5e:00:00:fb", mac, 0x0800, ipv4(
            me, "224.0.0.251", 17, udp(5353, 5353, mark(7)))), tap, mark(7)),
        "DHCP as a server": (frame(BROADCAST, mac, 0x0800, ipv4(
            me, "255.255.255.255", 17, udp(67, 68, mark(8)))), tap, mark(8)),
        "DHCP: another's address declined": (frame(GATEWAY_MAC, mac, 0x0800, ipv4(
            me, GATEWAY, 17, udp(68, 67, decline))), bridge, decline[:34]),
        "DHCP: asking for an address": (frame(BROADCAST, mac, 0x0800, ipv4(
            "0.0.0.0", "255.255.255.255", 17, udp(68, 67, discover))), bridge, discover[:34]),
    }


class Printer:
    """A child that prints lines; `lines` grows by itself."""

    def __init__(self, command):
        self.lines = []
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if not select.select([self.child.stdout], [], [], 20)[0] or self.child.stdout.readline() != "ready\n":
            self.child.kill()
            raise RuntimeError("%s did not start" % command)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.append(line.strip())

    def stop(self):
        self.child.kill()
        self.child.wait()
        self.thread.join(5)
        self.child.stdout.close()
        return self.lines


def listener(enter, port, address="0.0.0.0"):
    return Printer(enter + ["/usr/bin/python3", "-c", LISTENER, str(port), address])


def sniffer(enter, *devices):
    return Printer(enter + ["/usr/bin/python3", "-c", SNIFFER, *devices])
