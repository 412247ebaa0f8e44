"""HTTP(S) servers: threads, bounded; faults and the request log sit here, around the handlers."""
import collections
import hashlib
import http.server
import itertools
import os
import socket
import socketserver
import ssl
import sys
import threading
import time

from . import admin, rest, service
from .web import Request, Response

CONNECTIONS_MAX = 256
REQUESTS_KEPT = 20000
LOGGED_BODY_MAX = 65536
BODY_MAX = {"rest": 1 << 20, "runner": 4 << 20, "admin": 16 << 20}
DISCARD_MAX = 64 << 20
IDLE_SECONDS = 90
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class TooLarge(Exception):
    pass


class RequestLog:
    def __init__(self):
        self.lock, self.entries, self.numbers = threading.Lock(), collections.deque(maxlen=REQUESTS_KEPT), itertools.count(1)

    def open(self, kind, version, request):
        headers = dict(request.headers)
        if "authorization" in headers:
            headers["authorization"] = "sha256:" + hashlib.sha256(headers["authorization"].encode()).hexdigest()
        body = "" if kind == "runner" else request.body[:LOGGED_BODY_MAX].decode("utf-8", "replace")
        entry = {"seq": None, "kind": kind, "method": request.method, "path": request.raw_path, "query": request.query,
                 "version": version, "headers": headers, "body": body, "remote": request.remote, "tls": request.tls,
                 "start": time.time(), "end": None, "status": None, "fault": None}
        with self.lock:
            entry["seq"] = next(self.numbers)
            self.entries.append(entry)
        return entry

    def show(self, since, kind):
        with self.lock:
            return [dict(e) for e in self.entries if e["seq"] > since and kind in ("all", e["kind"])]

    def clear(self):
        with self.lock:
            self.entries.clear()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def log_message(self, format, *args):  # noqa: A002 (the name is the base class's)
        if os.environ.get("EMULATOR_VERBOSE"):
            sys.stderr.write("%s %s\n" % (self.client_address[0], format % args))

    def date_time_string(self, timestamp=None):
        return super().date_time_string(self.server.app.world.wall() if timestamp is None else timestamp)

    def version_string(self):
        return "github.com"

    def _read(self, count):
        data = self.rfile.read(count)
        if len(data) != count:
            raise ConnectionError("body ended early")
        return data

    def read_body(self, most):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            parts, total = [], 0
            while True:
                size = int(self.rfile.readline(64).split(b";")[0], 16)
                total += size
                if total > most:
                    raise TooLarge()
                if size == 0:
                    while self.rfile.readline(8192) not in (b"\r\n", b"\n", b""):
                        pass
                    return b"".join(parts)
                parts.append(self._read(size))
                self._read(2)
        length = int(self.headers.get("Content-Length") or 0)
        if length > most:
            # Read and thrown away, so that a client which sends first and listens then gets the answer.
            left = min(length, DISCARD_MAX)
            while left > 0 and (got := self.rfile.read(min(65536, left))):
                left -= len(got)
            raise TooLarge()
        return self._read(length) if length > 0 else b""

    def request_of(self):
        headers = {k.lower(): v for k, v in self.headers.items()}
        return Request(self.command, self.path, headers, b"", self.client_address[0],
                       isinstance(self.connection, ssl.SSLSocket), self.connection)

    def serve(self):
        request, app = self.request_of(), self.server.app
        kind = "admin" if self.server.is_admin else "runner" if request.path.startswith("/_runner/") else "rest"
        try:
            request.body = self.read_body(BODY_MAX[kind])
        except TooLarge:
            self.close_connection = True
            self.send(Response.error(413, "Payload too large"))
            return
        except ValueError:
            self.close_connection = True
            self.send(Response.error(400, "Malformed request body"))
            return
        if kind == "admin":
            self.send(admin.answer(app, request))
            return
        entry = app.requests.open(kind, self.request_version, request)
        fault = app.faults.match(request)
        try:
            self.respond(app, kind, request, fault, entry)
        finally:
            entry["end"] = time.time()

    def respond(self, app, kind, request, fault, entry):
        if fault:
            entry["fault"] = fault.id
            time.sleep(fault.delay if fault.action != "drip" else 0)
        response = None
        if fault is None or fault.acts():
            response = (service if kind == "runner" else rest).answer(app.world, request)
        if fault is None:
            self.send(response, entry)
            return
        if fault.action in ("drop-before", "drop-after"):
            self.close_connection = True
            return
        if fault.action == "raw":
            self.close_connection = True
            self.wfile.write(fault.data)
            return
        with app.world.lock:
            response = fault.replace(response, app.world.rate())
        self.send(response, entry, cut=fault.spec.get("bytes") if fault.action == "truncate" else None,
                  drip=fault.delay if fault.action == "drip" else None)

    def send(self, response, entry=None, cut=None, drip=None):
        if entry is not None:
            entry["status"] = response.status
        body = b"" if self.command == "HEAD" or response.status in (204, 304) else response.body
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.status not in (204, 304) and "content-length" not in {n.lower() for n in response.headers}:
            self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if cut is not None:
            self.close_connection = True
            body = body[:int(cut)]
        if drip is None:
            self.wfile.write(body)
            return
        for i in range(len(body)):
            self.wfile.write(body[i:i + 1])
            self.wfile.flush()
            time.sleep(drip)


for _m in METHODS:
    setattr(Handler, "do_" + _m, Handler.serve)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address, app, context=None, is_admin=False):
        self.app, self.context, self.is_admin = app, context, is_admin
        self.slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    def server_bind(self):
        # The base class would look its own name up, which takes seconds where there is no resolver.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def url(self):
        host = "[%s]" % self.server_name if ":" in self.server_name else self.server_name
        return "%s://%s:%d" % ("https" if self.context else "http", host, self.server_port)

    def process_request(self, request, client_address):
        if not self.slots.acquire(timeout=5):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.slots.release()
            raise

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def finish_request(self, request, client_address):
        if self.context is None:
            super().finish_request(request, client_address)
            return
        # The handshake is the connection's own thread's business: a silent client must not stop others.
        request.settimeout(30)
        with self.context.wrap_socket(request, server_side=True) as tls:
            super().finish_request(tls, client_address)

    def handle_error(self, request, client_address):
        if os.environ.get("EMULATOR_VERBOSE") or not isinstance(sys.exc_info()[1], (OSError, ValueError)):
            super().handle_error(request, client_address)
