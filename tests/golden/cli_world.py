"""boxery-host against the real keeper with stand-ins for its children (tests/fault/keeper_world.py)."""
import base64
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from keeper_world import Case, World, enter_namespace, main, time, until  # noqa: E402

HOST = os.environ["BOXERY_HOST"]


def run(w, *args, env=None, **more):
    """Exit status and the two outputs."""
    return subprocess.run([HOST, *args], env={**w.env, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False, **more)


def begin(w, *args, env=None, **more):
    """Started, with its output in pipes."""
    return subprocess.Popen([HOST, *args], env={**w.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **more)


# 4096 bits; nobody has the private half. Making one takes seconds.
RSA_KEY = ("ssh-rsa "
           "AAAAB3NzaC1yc2EAAAADAQABAAACAQDJUOshmkYfHhf75iXgW0s6axUA9Iy5PWQxtDJ/N8bq18oi+/5v4w9dhgYQDEkjncZjQ5iCrPhxGGo1LQ"
           "DGGteZP01gXG4qfvLPmDEAHcDFrWr5spiTTQpcolzQcoM+jVT51q1p2/XMH6VToTjkLRxnya02aC/RLQpgSnSUdScg49Xk6jK5dYvjMFp5Px/A"
           "by3PTehGCvOiq3eoC+NAlkJTBWR7kng9GTiONXDSXPg1cLhgQkmzu/5cW8XSmeXrghQKZD6sGkLwhkJmQVi62O8e+52u20uFyXq7fgoG6nZHj2"
           "DOaLuraq7tClwpGkJQ3J3qsUCFYPVNxw6Sf75po1NUFZBQ4GyT/XDZCEuingoF9fQ1sLby0JYdOacmKTpHyhmvmS/1ooBDh9XBcbgJcdlWAVPl"
           "9L/WchKwSFAkFjRc6m6IDMmYeFcrFNehLbaOWCl/cCHFyzPEqNMngIInt0W29WKhYThN3bbsylJUP7SxxoZ4eqDLvqqHDvdXUdvfAqvhu+giv9"
           "Qbz1u+ljnuZ7F2cS8+vw+0FRz+/NQmfjVL+503Y9+nPRdEc5p5t3I+1+ou4zPpHR4Pwae078sFCEqUhq2rITTKhR7HtHX5GEqoPovqLv5ZVfAZ"
           "vY9UYnimA1N1ZPl4xHcMjhnC0yYqmX5KYzIl2NckRtn8WvG7jcihsw=="
           " a comment\n")


def key_files(folder):
    """A public key, its private half, and what can be wrong with one."""
    files = {name: os.path.join(folder, name) for name in ("id", "id.pub", "cut", "two", "rsa.pub", "long", "dss", "empty", "binary")}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a comment", "-f", files["id"]], check=True, timeout=60)
    with open(files["id.pub"], encoding="ascii") as f:
        line = f.read()
    number = b"\0\0\0\3\1\0\1" + (1025).to_bytes(4, "big") + b"\0" + b"\xff" * 1024  # what an RSA key of 8192 bits looks like
    long = "ssh-rsa " + base64.b64encode(b"\0\0\0\7ssh-rsa" + number).decode() + "\n"
    for name, text in (("rsa.pub", RSA_KEY), ("cut", line[:60]), ("two", line + line), ("long", long), ("dss", line.replace("ssh-ed25519", "ssh-dss")), ("empty", "# none\n"),
                       ("binary", "ssh-ed25519\0 x")):
        with open(files[name], "w", encoding="ascii") as f:
            f.write(text)
    return files


__all__ = ["Case", "HOST", "World", "begin", "enter_namespace", "key_files", "main", "os", "re", "run", "signal", "subprocess", "sys",
           "tempfile", "time", "until"]
