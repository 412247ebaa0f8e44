#!/usr/bin/python3
"""Serves one folder over HTTP (or HTTPS with the emulator's CA), truly or spoilt. Prints "ready URL"; ends on SIGTERM.

POST /_serve/mode with one of MODES as the body; GET /_serve/requests lists what was asked.
"""
import argparse
import http.server
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from emu import tls  # noqa: E402

MODES = ("ok", "wrong", "truncate", "short", "missing", "error", "stall", "redirect")
REQUESTS_KEPT = 1000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format, *args):  # noqa: A002
        pass

    def answer(self, status, body=b"", headers=(), announced=None):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body) if announced is None else announced))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        if announced is not None:
            self.close_connection = True

    def do_POST(self):
        wanted = self.rfile.read(min(64, int(self.headers.get("Content-Length") or 0))).decode("ascii", "replace").strip()
        if self.path != "/_serve/mode" or wanted not in MODES:
            self.answer(400, ("one of %s\n" % ", ".join(MODES)).encode())
            return
        self.server.mode = wanted
        self.answer(200)

    def do_GET(self):
        s = self.server
        if self.path == "/_serve/requests":
            self.answer(200, json.dumps(s.seen).encode(), [("Content-Type", "application/json")])
            return
        mode, name = s.mode, os.path.normpath(self.path.split("?")[0]).lstrip("/")
        entry = {"method": self.command, "path": self.path, "mode": mode, "status": None, "bytes": 0}
        s.seen.append(entry)
        del s.seen[:-REQUESTS_KEPT]
        path = os.path.realpath(os.path.join(s.folder, name))
        inside = path.startswith(os.path.realpath(s.folder) + os.sep)
        if mode == "stall":
            time.sleep(3600)
        if mode in ("missing", "error", "redirect") or not inside or not os.path.isfile(path):
            entry["status"] = {"error": 500, "redirect": 302}.get(mode, 404)
            self.answer(entry["status"], headers=[("Location", "/elsewhere/" + name)] if mode == "redirect" else ())
            return
        with open(path, "rb") as f:
            data = f.read()
        whole = len(data)
        if mode == "wrong":
            data = data[:whole // 2] + bytes([data[whole // 2] ^ 1]) + data[whole // 2 + 1:]
        elif mode in ("truncate", "short"):
            data = data[:whole // 2]
        entry.update(status=200, bytes=len(data))
        self.answer(200, data, [("Content-Type", "application/octet-stream")], whole if mode == "truncate" else None)

    do_HEAD = do_GET


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def server_bind(self):
        http.server.socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def main(argv):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder")
    p.add_argument("--listen", default="127.0.0.1:0", help="ADDR:PORT")
    p.add_argument("--tls", metavar="STATE_DIR", help="HTTPS with the CA kept there")
    p.add_argument("--mode", choices=MODES, default="ok")
    o = p.parse_args(argv)
    host, _, port = o.listen.rpartition(":")
    server = Server((host, int(port)), Handler)
    server.folder, server.mode, server.seen = o.folder, o.mode, []
    if o.tls:
        os.makedirs(o.tls, mode=0o700, exist_ok=True)
        # Its own certificate file: an emulator may live in the same folder.
        context = tls.server_context(o.tls, [host, "127.0.0.1"] if host != "127.0.0.1" else [host], ["localhost"], "files.pem")
        # The handshake happens in the connection's own thread, at its first read.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    print("ready %s://%s:%d" % ("https" if o.tls else "http", host, server.server_port), flush=True)
    stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
