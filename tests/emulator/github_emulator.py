#!/usr/bin/python3
"""GitHub as far as a manager of JIT runners can see it. How to use it: API.md."""
import argparse
import ipaddress
import os
import secrets
import signal
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from emu import tls  # noqa: E402
from emu.faults import Faults  # noqa: E402
from emu.model import World  # noqa: E402
from emu.server import RequestLog, Server  # noqa: E402


class App:
    def __init__(self, world):
        self.world, self.faults, self.requests = world, Faults(world.lock), RequestLog()


def address(text):
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        return host.strip("[]"), int(port)
    except ValueError:
        raise argparse.ArgumentTypeError("%s: IP-ADDRESS:PORT expected" % text) from None


def options(argv):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--state-dir", required=True)
    p.add_argument("--listen", type=address, action="append", default=[], help="HTTPS")
    p.add_argument("--http", type=address, action="append", default=[])
    p.add_argument("--admin", type=address, action="append", default=[])
    p.add_argument("--address", action="append", default=[], help="further address in the certificate")
    p.add_argument("--name", action="append", default=[], help="further DNS name in the certificate")
    p.add_argument("--public-url")
    p.add_argument("--token", action="append", default=[])
    p.add_argument("--repo", action="append", default=[])
    for name in ("poll-seconds", "offline-after", "lease-seconds"):
        p.add_argument("--" + name, type=float)
    o = p.parse_args(argv)
    o.listen = o.listen or [("127.0.0.1", 0)]
    o.admin = o.admin or [("127.0.0.1", 0)]
    return o


def default_token(state_dir):
    path = os.path.join(state_dir, "token")
    if not os.path.exists(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write("github_pat_" + secrets.token_hex(36) + "\n")
    with open(path) as f:
        return f.read().strip()


def main(argv):
    o = options(argv)
    os.makedirs(o.state_dir, mode=0o700, exist_ok=True)
    settings = {k: v for k, v in (("poll_seconds", o.poll_seconds), ("offline_after", o.offline_after),
                                  ("lease_seconds", o.lease_seconds)) if v is not None}
    tokens = o.token or [default_token(o.state_dir)]
    app = App(World(tokens=tokens, repos=o.repo, settings=settings))
    # A wildcard is no name anyone connects to.
    addresses = dict.fromkeys([a for a, _ in o.listen if not ipaddress.ip_address(a).is_unspecified] + o.address +
                              ["127.0.0.1", "::1"])
    context = tls.server_context(o.state_dir, list(addresses), list(dict.fromkeys(o.name + ["localhost"])))
    servers = [Server(a, app, context) for a in o.listen] + [Server(a, app) for a in o.http]
    admins = [Server(a, app, is_admin=True) for a in o.admin]
    app.world.url = (o.public_url or servers[0].url()).rstrip("/")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    for s in servers + admins:
        threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    line = "ready %s %s" % (app.world.url, admins[0].url())
    with open(os.path.join(o.state_dir, "ready.new"), "w") as f:
        f.write(line + "\n")
    os.replace(os.path.join(o.state_dir, "ready.new"), os.path.join(o.state_dir, "ready"))
    print(line, flush=True)
    stop.wait()
    for s in servers + admins:
        s.server_close()
    os.unlink(os.path.join(o.state_dir, "ready"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
