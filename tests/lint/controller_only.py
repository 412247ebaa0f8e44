#!/usr/bin/python3
"""boxery builds and passes its unit tests where nothing but libc, jansson and the test library is installed; and is linked with no more.

pkg-config is given these two modules and no other. /usr/include is, in a mount namespace, what the packages of libc, the kernel's own
headers, jansson and cmocka put there; without the right to make one (or without dpkg) the headers are not hidden, which is said.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from lint import TOP, expect, report

KNOWN = ["jansson", "cmocka"]
PACKAGES = ["libc6-dev", "linux-libc-dev", "libcrypt-dev", "libjansson-dev", "libcmocka-dev"]
INCLUDE = "/usr/include"


def pkg_config_folder(module):
    return subprocess.run(["pkg-config", "--variable=pcfiledir", module], check=True, capture_output=True, text=True).stdout.strip()


def headers(folder):
    """Copies what those packages have below /usr/include; False: there is no such list here."""
    if not shutil.which("dpkg"):
        return False
    p = subprocess.run(["dpkg", "-L", *PACKAGES], capture_output=True, text=True, check=False)
    if p.returncode != 0:
        return False
    for path in sorted(set(p.stdout.splitlines())):
        to = folder + path[len(INCLUDE):]
        if not path.startswith(INCLUDE + "/"):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            os.makedirs(to, exist_ok=True)
        else:
            shutil.copy2(path, to, follow_symlinks=False)
    return True


def hiding(folder):
    """What to put before a command so that it sees those headers only; [] when that cannot be."""
    if not headers(folder):
        return []
    for more in ([], ["--map-root-user"]):
        prefix = ["unshare", "--mount", *more, "sh", "-c", f'mount --bind "{folder}" {INCLUDE} && exec "$@"', "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    return []


def knows(prefix, header):
    return subprocess.run([*prefix, "cc", "-E", "-x", "c", "-"], input=f"#include <{header}>\n", capture_output=True, text=True,
                          check=False).returncode == 0


def run(argv, env):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, check=False)
    return [] if p.returncode == 0 else [f"{' '.join(argv)}: status {p.returncode}\n{p.stdout[-4000:]}"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="boxery-controller-") as d:
        for name in ("pc", "include"):
            os.mkdir(os.path.join(d, name))
        for name in KNOWN:
            os.symlink(os.path.join(pkg_config_folder(name), name + ".pc"), os.path.join(d, "pc", name + ".pc"))
        # A compiler cache would answer from where the headers were not hidden.
        env = {**os.environ, "PKG_CONFIG_LIBDIR": os.path.join(d, "pc"), "PKG_CONFIG_PATH": "", "CCACHE_DISABLE": "1"}
        env.pop("CPATH", None)
        alone = hiding(os.path.join(d, "include"))
        if alone:
            for header in ("systemd/sd-event.h", "sodium.h", "libvirt/libvirt.h"):
                expect(knows([], header) and not knows(alone, header), f"<{header}> was to be hidden, and is not")
            expect(knows(alone, "jansson.h") and knows(alone, "sys/socket.h"), "what is allowed is hidden, too")
        elif os.geteuid() == 0 and shutil.which("dpkg"):
            report(["as root on Debian the headers should have been hidden"], "controller only")
        else:
            print("the other headers are not hidden: no right to make a mount namespace, or no dpkg", file=sys.stderr)
        build = os.path.join(d, "build")
        whole = subprocess.run(["meson", "setup", os.path.join(d, "whole"), TOP], capture_output=True, env=env, check=False)
        expect(whole.returncode != 0, "the whole project was configured without its libraries: nothing was hidden")
        found = run([*alone, "meson", "setup", build, TOP, "-Dcontroller_only=true"], env)
        found = found or run([*alone, "ninja", "-j2", "-C", build], env) or run([*alone, "meson", "test", "-C", build, "--no-rebuild"], env)
        report(found, "controller only")
