#!/usr/bin/python3
"""boxery-fetch against servers on loopback that serve truly or spoil: test_fetch.py BOXERY_FETCH"""
import hashlib
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
EMULATOR = os.path.join(HERE, "..", "emulator")
PROGRAM = ""
OK, USAGE, NOT_FOUND, CONFIG, DENIED, UNREACHABLE, INTERRUPTED = 0, 2, 3, 5, 6, 8, 130


class FileServer:
    def __init__(self, folder, *args):
        self.process = subprocess.Popen(["/usr/bin/python3", os.path.join(EMULATOR, "serve_files.py"), folder, *args],
                                        stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[1].rstrip("/")
        self.context = None

    def mode(self, word):
        urllib.request.urlopen(self.url + "/_serve/mode", data=word.encode(), timeout=10, context=self.context).close()

    def asked(self):
        with urllib.request.urlopen(self.url + "/_serve/requests", timeout=10, context=self.context) as f:
            return [r for r in json.load(f) if "_serve" not in r["path"]]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class Fetch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.served = os.path.join(self.folder.name, "served")
        self.cache = os.path.join(self.folder.name, "cache")
        os.mkdir(self.served)
        self.data = os.urandom(300000)
        with open(os.path.join(self.served, "thing.tar.gz"), "wb") as f:
            f.write(self.data)
        self.sum = hashlib.sha256(self.data).hexdigest()
        self.server = FileServer(self.served)

    def tearDown(self):
        self.server.stop()
        self.folder.cleanup()

    def run_fetch(self, *args, url=None, sha256=None, timeout=30):
        command = [PROGRAM, "--url", url or self.server.url + "/thing.tar.gz", "--out-dir", self.cache, *args]
        if sha256 != "":
            command += ["--sha256", sha256 or self.sum]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    def files(self):
        return sorted(os.path.join(d, f) for d, _, names in os.walk(self.cache) for f in names)

    def assert_refused(self, done, code, words):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.files(), [])

    def test_fetched_then_cached(self):
        done = self.run_fetch()
        self.assertEqual(done.returncode, OK, done.stderr)
        path = done.stdout.strip()
        self.assertEqual(path, os.path.join(self.cache, "sha256", self.sum))
        self.assertEqual(self.files(), [path])
        with open(path, "rb") as f:
            self.assertEqual(f.read(), self.data)
        again = self.run_fetch()
        self.assertEqual((again.returncode, again.stdout), (OK, done.stdout))
        self.assertIn("in the cache, verified", again.stderr)
        self.assertEqual(len(self.server.asked()), 1)
        self.server.stop()
        self.assertEqual(self.run_fetch().returncode, OK)

    def test_damaged_cache_is_fetched_again(self):
        path = self.run_fetch().stdout.strip()
        with open(path, "r+b") as f:
            f.write(b"damage")
        done = self.run_fetch()
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(len(self.server.asked()), 2)
        with open(path, "rb") as f:
            self.assertEqual(f.read(), self.data)

    def test_wrong_sum_names_both(self):
        wrong = "0" * 64
        done = self.run_fetch(sha256=wrong)
        self.assert_refused(done, CONFIG, wrong)
        self.assertIn(self.sum, done.stderr)
        self.assertIn("nothing was kept", done.stderr)

    def test_spoilt_on_the_way(self):
        for mode, code, words in (("wrong", CONFIG, self.sum), ("short", CONFIG, self.sum),
                                  ("truncate", UNREACHABLE, "cut off"), ("missing", NOT_FOUND, "404"),
                                  ("error", UNREACHABLE, "500"), ("redirect", DENIED, "302")):
            self.server.mode(mode)
            self.assert_refused(self.run_fetch(), code, words)

    def test_no_sum_no_download(self):
        self.assert_refused(self.run_fetch(sha256=""), USAGE, "not pinned")
        self.assert_refused(self.run_fetch(sha256="abc"), USAGE, "is not a SHA-256")
        self.assert_refused(self.run_fetch(sha256=self.sum.upper()), USAGE, "is not a SHA-256")
        self.assertEqual(self.server.asked(), [])

    def test_urls_that_are_refused(self):
        for url, words in (("http://example.org/x", "http is allowed only to a loopback address"),
                           ("http://localhost/x", "http is allowed only to a loopback address"),
                           ("http://127.0.0.1.example.org/x", "http is allowed only"),
                           ("http://127.0.0.1@example.org/x", "user name or password"),
                           ("https://user:secret@example.org/x", "user name or password"),
                           ("file:///etc/passwd", "is not an http or https"), ("ftp://127.0.0.1/x", "only https"),
                           ("/etc/passwd", "is not an http"), ("", "is not an http")):
            done = subprocess.run([PROGRAM, "--url", url, "--sha256", self.sum, "--out-dir", self.cache], capture_output=True,
                                  text=True, timeout=30)
            self.assert_refused(done, USAGE, words)
            self.assertNotIn("secret", done.stderr)

    def test_too_large(self):
        with open(os.path.join(self.served, "big"), "wb") as f:
            f.truncate((1 << 20) + 1)
        done = self.run_fetch("--max-size", "1M", url=self.server.url + "/big")
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("larger than the 1048576 bytes allowed", done.stderr)
        self.assertEqual(self.files(), [])

    def test_nobody_listens(self):
        self.server.stop()
        self.assert_refused(self.run_fetch(), UNREACHABLE, "thing.tar.gz")

    def test_interrupted(self):
        self.server.mode("stall")
        p = subprocess.Popen([PROGRAM, "--url", self.server.url + "/thing.tar.gz", "--out-dir", self.cache, "--sha256",
                              self.sum], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        p.send_signal(signal.SIGTERM)
        _, words = p.communicate(timeout=10)
        self.assertEqual(p.returncode, INTERRUPTED, words)
        self.assertEqual(self.files(), [])

    def test_killed_leaves_nothing_that_counts(self):
        self.server.mode("stall")
        p = subprocess.Popen([PROGRAM, "--url", self.server.url + "/thing.tar.gz", "--out-dir", self.cache, "--sha256",
                              self.sum], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        p.kill()
        p.wait()
        self.assertFalse(os.path.exists(os.path.join(self.cache, "sha256", self.sum)))
        self.server.mode("ok")
        self.assertEqual(self.run_fetch().returncode, OK)
        self.assertEqual(len(self.files()), 1)

    def test_at_once(self):
        """Of several of the same download one goes to the network, or more; all end with the whole file."""
        running = [subprocess.Popen([PROGRAM, "--url", self.server.url + "/thing.tar.gz", "--out-dir", self.cache,
                                     "--sha256", self.sum], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for _ in range(6)]
        for p in running:
            out, words = p.communicate(timeout=30)
            self.assertEqual(p.returncode, OK, words)
        self.assertEqual(len(self.files()), 1)
        with open(self.files()[0], "rb") as f:
            self.assertEqual(f.read(), self.data)
        self.assertEqual(len(self.server.asked()), 1)

    def test_cache_that_cannot_be_written(self):
        with open(self.cache, "w") as f:
            f.write("a file")
        done = self.run_fetch()
        self.assertNotEqual(done.returncode, OK)
        self.assertIn(self.cache, done.stderr)


class FetchTls(unittest.TestCase):
    """https: the server is believed only with the authority that was named, and sends us on only to https."""

    def test_authority_and_redirect(self):
        with tempfile.TemporaryDirectory() as folder:
            served, cache, state = (os.path.join(folder, n) for n in ("served", "cache", "state"))
            os.mkdir(served)
            with open(os.path.join(served, "x"), "wb") as f:
                f.write(b"hello")
            s = FileServer(served, "--tls", state)
            try:
                command = [PROGRAM, "--url", s.url + "/x", "--out-dir", cache, "--sha256", hashlib.sha256(b"hello").hexdigest()]
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, UNREACHABLE, done.stderr)
                self.assertIn("certificate", done.stderr)
                ca = os.path.join(state, "ca.pem")
                done = subprocess.run(command + ["--ca-file", ca], capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, OK, done.stderr)
                os.unlink(done.stdout.strip())
                self.sent_on_to_http(command + ["--ca-file", ca], state, s.url)
            finally:
                s.stop()


    def sent_on_to_http(self, command, state, elsewhere):
        """A redirect from https to http on loopback, where http as such is allowed, is still refused."""
        where = [""]

        class Redirect(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(302)
                self.send_header("Location", where[0])
                self.end_headers()

            def log_message(self, *args):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(state, "files.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = "https://127.0.0.1:%d/x" % server.server_port
        command = [own if a.startswith("https://") else a for a in command]
        for target, code, words in (("http://127.0.0.1:%d/x" % server.server_port, DENIED, "not https"),
                                    (own, UNREACHABLE, "more than 5 times"), (elsewhere + "/x", OK, "fetched")):
            where[0] = target
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
