#!/usr/bin/python3
"""boxery-deliver against a real sshd (started per connection on a loopback socket) and against peers that are none.

usage: test_deliver.py BOXERY_DELIVER; run as root, because the guest's user is root."""
import base64
import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import proto  # noqa: E402

PROGRAM = ""
ENFORCED = True
CANARY = "canary-5d0f6b1e2a97"


def jit_config(size=4000):
    # Random filling: a needle taken from the middle is then found only where the config really is.
    inner = json.dumps({".credentials": base64.b64encode(CANARY.encode()).decode(),
                        ".runner": base64.b64encode(os.urandom(size // 2)).decode()})
    return base64.b64encode(inner.encode())


class Peer:
    """Listens on loopback; each accepted connection is given to handle() in a thread."""

    def __init__(self, handle):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.handle, self.error = handle, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            conn, _ = self.listener.accept()
            with conn:
                self.handle(conn)
        except OSError as e:
            self.error = e

    def connect(self):
        return socket.create_connection(self.listener.getsockname())

    def close(self):
        self.listener.close()
        self.thread.join(10)


class DeliverTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="boxery-deliver-")
        for name in ("host", "other-host", "client", "other-client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", f"{cls.dir}/{name}"], check=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", f"{cls.dir}/host-ecdsa"], check=True)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def setUp(self):
        self.out = f"{self.dir}/out"
        self.log = f"{self.dir}/log"
        for path in (self.out, self.log):
            if os.path.exists(path):
                os.unlink(path)
        self.procs = []

    def tearDown(self):
        for p in self.procs:
            p.kill()
            p.wait()

    def read(self, name):
        with open(f"{self.dir}/{name}", "rb") as f:
            return f.read()

    def pin(self, name="host"):
        return " ".join(self.read(name + ".pub").decode().split()[:2])

    def sshd(self, conn, command=None, host_key="host", extra=""):
        """Serves one connection with OpenSSH's sshd and waits for it."""
        with open(f"{self.dir}/authorized_keys", "w", encoding="ascii") as f:
            f.write(f'command="{command or "cat > " + self.out}",restrict {self.pin("client")}\n')
        with open(f"{self.dir}/config", "w", encoding="ascii") as f:
            f.write(f"HostKey {self.dir}/{host_key}\nAuthorizedKeysFile {self.dir}/authorized_keys\nStrictModes no\n"
                    f"PermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\nLogLevel DEBUG1\n{extra}\n")
        with open(self.log, "ab") as log:
            p = subprocess.Popen(["/usr/sbin/sshd", "-i", "-e", "-f", f"{self.dir}/config"], stdin=conn, stdout=conn,
                                 stderr=log)
        self.procs.append(p)
        p.wait()

    def pair(self):
        ours, theirs = proto.pair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        return ours, theirs

    def start(self, peer, jit=None, key=None, pin=None, timeout_ms=15000, **request):
        ours, theirs = self.pair()
        guest = peer.connect()
        fds = [theirs.fileno(), proto.memfd(jit or jit_config()), proto.memfd(key or self.read("client")), guest.fileno()]
        ours.send(proto.DELIVER_REQUEST.pack(host_key=pin or self.pin(), timeout_ms=timeout_ms, seq=7, **request))
        child = proto.Child(PROGRAM, fds)
        self.addCleanup(child.close)
        for fd in fds[1:3]:
            os.close(fd)
        theirs.close()
        guest.close()
        return child, ours

    def finish(self, child, sock, timeout=30):
        sock.settimeout(timeout)
        data = sock.recv(8192)
        status = child.wait()
        self.assertTrue(data, f"no result, process ended with {status}: {child.text()}")
        result = proto.DELIVER_RESULT.unpack(data)
        self.assertEqual(result["seq"], 7)
        self.assertEqual(status, 0)
        self.assertEqual(child.text(), "")
        self.assertNotIn(CANARY, result["text"])
        result["step"] = proto.DELIVER_STEPS[result["step"]]
        sock.close()
        return result

    def deliver(self, handle, **kw):
        peer = Peer(handle)
        self.addCleanup(peer.close)
        return self.finish(*self.start(peer, **kw))

    def failed(self, result, code, step, *words):
        self.assertEqual((result["code"], result["step"]), (-code, step), result["text"])
        for word in words:
            self.assertIn(word, result["text"])

    def attempts(self):
        return self.read("log").count(b"userauth-request")

    # --- what works

    def test_delivery(self):
        for size in (60, 4100, 48000):
            with self.subTest(size=size):
                jit = jit_config(size)
                r = self.deliver(self.sshd, jit=jit)
                self.assertEqual((r["code"], r["step"], r["exit_status"]), (0, "done", 0), r["text"])
                self.assertEqual(self.read("out"), jit)
                self.assertGreaterEqual(r["total_ms"], r["handshake_ms"])
        self.assertEqual(r["text"] == "", ENFORCED)

    def test_asked_command(self):
        self.deliver(lambda c: self.sshd(c, command=f"echo $SSH_ORIGINAL_COMMAND > {self.out}; cat > /dev/null"))
        self.assertEqual(self.read("out"), b"boxery-deliver\n")

    def test_output_is_dropped(self):
        r = self.deliver(lambda c: self.sshd(c, command=f"cat > {self.out}; cat {self.out}; cat {self.out} >&2"))
        self.assertEqual((r["code"], r["exit_status"]), (0, 0), r["text"])

    # --- who it is

    def test_wrong_host_key(self):
        r = self.deliver(self.sshd, pin=self.pin("other-host"))
        self.failed(r, errno.EKEYREJECTED, "host-key", "pinned for this life")
        shown = [subprocess.run(["ssh-keygen", "-l", "-f", f"{self.dir}/{n}.pub"], check=True, capture_output=True,
                                text=True).stdout.split()[1] for n in ("host", "other-host")]
        for fingerprint in shown:
            self.assertIn(fingerprint, r["text"])
        self.assertEqual(self.attempts(), 0)
        self.assertFalse(os.path.exists(self.out))

    def test_other_algorithm_is_not_negotiated(self):
        r = self.deliver(lambda c: self.sshd(c, host_key="host-ecdsa"))
        self.failed(r, errno.EPROTO, "handshake", "agreeing on keys")
        self.assertEqual(self.attempts(), 0)

    def test_wrong_client_key(self):
        r = self.deliver(self.sshd, key=self.read("other-client"))
        self.failed(r, errno.EACCES, "auth", "refuses the delivery key")
        self.assertGreater(self.attempts(), 0)
        self.assertFalse(os.path.exists(self.out))

    def test_key_of_another_kind(self):
        for key in (b"no key at all\n", self.read("host-ecdsa")[:200], b"\0" * 400):
            r = self.deliver(self.sshd, key=key)
            self.failed(r, errno.EINVAL, "auth", "delivery key")

    # --- peers that are not what they should be

    def test_silence(self):
        for say in (b"", b"SSH-2.0-silent\r\n"):
            r = self.deliver(lambda c, say=say: (c.sendall(say), c.recv(1 << 20), time.sleep(2.5)), timeout_ms=700)
            self.failed(r, errno.ETIMEDOUT, "handshake", "deadline")
            self.assertTrue(650 <= r["total_ms"] < 1700, r)

    def test_drip(self):
        def drip(conn):
            for _ in range(200):
                conn.sendall(b"x")
                time.sleep(0.02)
        r = self.deliver(drip, timeout_ms=700)
        self.failed(r, errno.ETIMEDOUT, "handshake")
        self.assertLess(r["total_ms"], 1700)

    def test_garbage(self):
        for data in (os.urandom(3000), b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n" + os.urandom(4000),
                     b"SSH-2.0-x\r\n\xff\xff\xff\xff" + b"A" * 100, b"SSH-1.5-old\r\n", b"\0" * 5000):
            r = self.deliver(lambda c, data=data: (c.sendall(data), c.shutdown(socket.SHUT_WR), c.recv(1 << 20)),
                             timeout_ms=3000)
            self.assertEqual(r["step"], "handshake")
            self.assertIn(-r["code"], (errno.EPROTO, errno.ECONNRESET), r["text"])

    def flood(self, head, piece):
        def run(conn):
            conn.sendall(head)
            while True:
                conn.sendall(piece * 1000)
        r = self.deliver(run, timeout_ms=8000)
        self.failed(r, errno.EPROTO, "handshake", "more than 262144 bytes")

    def test_huge_banner(self):
        self.flood(b"", b"A")
        self.flood(b"", b"another line\r\n")

    def test_endless_packets(self):
        body = bytes([2]) + struct.pack(">I", 4) + b"none"  # SSH_MSG_IGNORE, in the clear before the keys
        pad = 16 - (5 + len(body)) % 8
        packet = struct.pack(">IB", 1 + len(body) + pad, pad) + body + b"\0" * pad
        self.flood(b"SSH-2.0-flood\r\n", packet)

    def test_closed_at_once(self):
        r = self.deliver(lambda c: None)
        self.failed(r, errno.ECONNRESET, "handshake", "closed the connection")

    def cut(self, conn, limit, back_limit=None):
        """Passes a connection on to sshd and cuts it after so many bytes in one direction."""
        left, right = socket.socketpair()
        t = threading.Thread(target=self.sshd, args=(right,), daemon=True)
        t.start()
        stop = threading.Event()

        def pump(src, dst, most):
            done = 0
            try:
                while not stop.is_set() and (data := src.recv(4096)):
                    if most is not None and done + len(data) > most:
                        break
                    dst.sendall(data)
                    done += len(data)
            except OSError:
                pass
            stop.set()
            for s in (conn, left):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        back = threading.Thread(target=pump, args=(left, conn, back_limit), daemon=True)
        back.start()
        pump(conn, left, limit)
        back.join()
        right.close()
        left.close()
        t.join()

    def test_cut_in_mid_send(self):
        jit = jit_config(48000)
        r = self.deliver(lambda c: self.cut(c, 20000), jit=jit)
        self.assertEqual(r["code"], -errno.ECONNRESET, r["text"])
        self.assertIn(r["step"], ("sending", "waiting"))
        self.assertEqual(r["exit_status"], -1)

    def test_cut_everywhere(self):
        """Wherever it is cut there is a result that says no, and never the step 'done'."""
        for back in (0, 40, 1500, 1900, 2100, 2300, 2500, 2700):
            r = self.deliver(lambda c, back=back: self.cut(c, None, back))
            if r["code"] == 0:
                break  # all of it fitted
            self.assertIn(r["code"], (-errno.ECONNRESET, -errno.EPROTO), r["text"])
            self.assertNotEqual(r["step"], "done")

    # --- what the guest's command does

    def test_exit_status(self):
        r = self.deliver(lambda c: self.sshd(c, command="cat >/dev/null; exit 75"))
        self.failed(r, errno.EREMOTEIO, "waiting", "status 75", "this life has had its delivery")
        self.assertEqual(r["exit_status"], 75)
        # A command that reads nothing: its end may come while we send.
        r = self.deliver(lambda c: self.sshd(c, command="exit 3"))
        self.assertEqual((r["code"], r["exit_status"]), (-errno.EREMOTEIO, 3), r["text"])

    def test_killed_command(self):
        r = self.deliver(lambda c: self.sshd(c, command="cat >/dev/null; kill -9 $$"))
        self.failed(r, errno.EREMOTEIO, "waiting", "signal KILL")
        self.assertEqual(r["exit_status"], -1)

    def test_command_that_never_ends(self):
        r = self.deliver(lambda c: self.sshd(c, command="cat >/dev/null; sleep 30"), timeout_ms=2500)
        self.failed(r, errno.ETIMEDOUT, "waiting")

    def test_command_that_floods(self):
        r = self.deliver(lambda c: self.sshd(c, command="cat /dev/zero"))
        self.assertEqual(r["code"], -errno.EPROTO, r["text"])
        self.assertIn("more than 262144 bytes", r["text"])

    def test_echoed_secret_is_not_told(self):
        jit = jit_config()
        r = self.deliver(lambda c: self.sshd(c, command="cat >&2; exit 9"), jit=jit)
        self.failed(r, errno.EREMOTEIO, "waiting", "status 9")
        self.assertNotIn(jit[:24].decode(), r["text"])

    # --- what is asked of it

    def test_bad_requests(self):
        def silent(conn):
            self.assertEqual(conn.recv(100), b"")  # not one byte reaches the guest
        cases = [({"pin": "ssh-rsa AAAA"}, errno.EINVAL), ({"pin": self.pin()[:-4]}, errno.EINVAL),
                 ({"pin": "x" * 512}, errno.EBADMSG), ({"timeout_ms": 0}, errno.EINVAL),
                 ({"timeout_ms": 1 << 40}, errno.EINVAL), ({"jit": b"!" * 400}, errno.EINVAL), ({"jit": b"AAAA"}, errno.EINVAL)]
        for fields, code in cases:
            with self.subTest(**fields):
                r = self.deliver(silent, **fields)
                self.failed(r, code, "starting")

    def test_unsealed_secret(self):
        for which in (1, 2):
            peer = Peer(lambda c: c.recv(100))
            ours, theirs = self.pair()
            guest = peer.connect()
            fds = [theirs.fileno(), proto.memfd(jit_config(), seal=which != 1),
                   proto.memfd(self.read("client"), seal=which != 2), guest.fileno()]
            ours.send(proto.DELIVER_REQUEST.pack(host_key=self.pin(), timeout_ms=3000, seq=7))
            child = proto.Child(PROGRAM, fds)
            self.addCleanup(child.close)
            theirs.close()
            guest.close()
            self.failed(self.finish(child, ours), errno.EBADMSG, "starting", "not a sealed memory file")
            for fd in fds[1:3]:
                os.close(fd)
            peer.close()

    def test_malformed_message(self):
        good = proto.DELIVER_REQUEST.pack(host_key=self.pin(), timeout_ms=1000)
        for data in (good[:-8], good + b"\0", b"\0" * len(good), b"x", good[:4] + b"\x09" + good[5:]):
            ours, theirs = self.pair()
            ours.send(data)
            child = proto.Child(PROGRAM, [theirs.fileno(), proto.memfd(jit_config()), proto.memfd(self.read("client"))])
            self.addCleanup(child.close)
            theirs.close()
            self.assertNotEqual(child.wait(), 0)
            self.assertEqual(ours.recv(8192), b"")
            self.assertIn("boxery-deliver: ", child.text())

    def test_by_hand(self):
        child = proto.Child(PROGRAM, args=["--help"])
        self.addCleanup(child.close)
        self.assertEqual(child.wait(), 2)
        self.assertIn("--about", child.text())

    # --- what can be seen of it

    def test_nothing_to_see_while_it_waits(self):
        jit = jit_config()
        peer = Peer(lambda c: self.sshd(c, command=f"cat > {self.out}; sleep 60"))
        self.addCleanup(peer.close)
        child, sock = self.start(peer, jit=jit, timeout_ms=60000)
        try:
            proto.until(lambda: os.path.exists(self.out) and self.read("out") == jit, timeout=20)
            time.sleep(0.3)
            self.assertEqual(child.proc_status("NoNewPrivs"), "1" if ENFORCED else "0")
            self.assertEqual(child.proc_status("Seccomp"), "2" if ENFORCED else "0")
            key = base64.b64decode(b"".join(self.read("client").split(b"\n")[1:-2]))
            seed = key[key.index(b"\0\0\0\x40") + 4:][:32] if b"\0\0\0\x40" in key else key[-96:-64]
            needles = [jit[100:140], base64.b64encode(CANARY.encode()), CANARY.encode(), seed,
                       self.read("client").split(b"\n")[2][:40]]
            for where in ("cmdline", "environ"):
                for needle in needles:
                    self.assertNotIn(needle, child.proc(where))
            # Both secrets have done their work: not in memory either, and their files are closed.
            for needle in needles:
                self.assertIsNone(child.memory_has(needle), needle)
            self.assertTrue(child.memory_has(b"ssh-ed25519"))  # the search does find what is there
            links = [os.readlink(f"/proc/{child.pid}/fd/{n}") for n in os.listdir(f"/proc/{child.pid}/fd")]
            self.assertFalse([x for x in links if "memfd" in x], links)
            self.assertEqual(child.text(), "")
        finally:
            child.close()
            for p in self.procs:
                p.kill()

    def test_filter_is_there_before_the_first_byte(self):
        peer = Peer(lambda c: c.recv(1000) and time.sleep(3))
        self.addCleanup(peer.close)
        jit = jit_config()
        child, sock = self.start(peer, jit=jit, timeout_ms=60000)
        time.sleep(0.6)
        # Both secrets are still needed here: this is what shows that memory_has() would find them.
        self.assertTrue(child.memory_has(jit[100:140]))
        self.assertTrue(child.memory_has(self.read("client").split(b"\n")[2][:40]))
        self.assertEqual(child.proc_status("Seccomp"), "2" if ENFORCED else "0")
        child.close()
        self.assertEqual(child.status, -signal.SIGKILL)
        self.assertEqual(sock.recv(8192), b"")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if os.geteuid() != 0 or not os.path.exists("/usr/sbin/sshd"):
        print("skipped: needs root and openssh-server")
        sys.exit(77)
    ABOUT = subprocess.run([PROGRAM, "--about"], check=True, capture_output=True, text=True).stdout
    ENFORCED = "filter: seccomp" in ABOUT
    unittest.main(verbosity=2)
