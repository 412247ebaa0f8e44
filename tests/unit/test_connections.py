#!/usr/bin/python3
"""The host forgets what one address has begun, in the kernel's own table, and nothing else. In a network namespace: root."""
import os
import socket
import subprocess
import sys
import unittest

FORGET = os.path.abspath(sys.argv.pop(1))
GUEST, OTHER, FAR = "10.77.0.10", "10.77.0.11", "10.77.0.99"
RULES = "table inet t {\n chain c {\n  type filter hook input priority 0; policy accept;\n  ct state new counter\n }\n}\n"
N = 300  # some of them end by themselves meanwhile


def table():
    """source -> how many entries it has begun."""
    out = {}
    with open("/proc/net/nf_conntrack", encoding="utf-8") as f:
        for line in f:
            source = line.split("src=", 1)[1].split()[0]
            out[source] = out.get(source, 0) + 1
    return out


def run(*argv, **more):
    return subprocess.run(argv, check=True, timeout=30, text=True, **more)


class Connections(unittest.TestCase):
    def setUp(self):
        self.sockets = []
        self.addCleanup(lambda: [s.close() for s in self.sockets])

    def udp(self, source, n):
        for i in range(n):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.sockets.append(s)
            s.bind((source, 0))
            s.sendto(b"x", (FAR, 1000 + i))

    def tcp(self, source):
        """Established, as what counts against the next life."""
        listener = socket.create_server((FAR, 0))
        client = socket.create_connection(listener.getsockname(), 5, (source, 0))
        self.sockets += [listener, client, listener.accept()[0]]

    def test_of_one_address_only(self):
        self.udp(GUEST, N)
        self.tcp(GUEST)
        self.udp(OTHER, 7)
        self.tcp(OTHER)
        self.udp(FAR, 3)
        before = table()
        self.assertEqual((before[GUEST], before[OTHER]), (N + 1, 8))
        run(FORGET, GUEST)
        after = table()
        self.assertNotIn(GUEST, after)
        self.assertEqual(after[OTHER], 8)
        self.assertEqual(after[FAR], before[FAR])
        run(FORGET, GUEST)  # again: nothing is there, and nothing changes
        self.assertEqual(table(), after)

    def test_not_an_address(self):
        done = subprocess.run([FORGET, "10.77.0"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("10.77.0: Invalid argument", done.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: a network namespace needs root")
        sys.exit(77)
    if "inside" not in sys.argv:
        os.execvp("unshare", ["unshare", "-n", sys.executable, os.path.abspath(__file__), FORGET, "inside"])
    run("ip", "link", "set", "lo", "up")
    for address in (GUEST, OTHER, FAR):
        run("ip", "address", "add", address + "/32", "dev", "lo")
    run("nft", "-f", "-", input=RULES)
    unittest.main(argv=sys.argv[:1], verbosity=2)
