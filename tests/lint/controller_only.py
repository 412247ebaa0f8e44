#!/usr/bin/python3
"""boxery builds and passes its unit tests where nothing but libc, jansson and the test library is known; and is linked with no more.

That no other header is used is for portable.py to say.
"""

import os
import subprocess
import tempfile

from lint import TOP, expect, report

KNOWN = ["jansson", "cmocka"]


def pkg_config_folder(module):
    return subprocess.run(["pkg-config", "--variable=pcfiledir", module], check=True, capture_output=True, text=True).stdout.strip()


def run(argv, env):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, check=False)
    return [] if p.returncode == 0 else [f"{' '.join(argv)}: status {p.returncode}\n{p.stdout[-4000:]}"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="boxery-controller-") as d:
        os.mkdir(os.path.join(d, "pc"))
        for name in KNOWN:
            os.symlink(os.path.join(pkg_config_folder(name), name + ".pc"), os.path.join(d, "pc", name + ".pc"))
        env = {**os.environ, "PKG_CONFIG_LIBDIR": os.path.join(d, "pc"), "PKG_CONFIG_PATH": ""}
        build = os.path.join(d, "build")
        whole = subprocess.run(["meson", "setup", os.path.join(d, "whole"), TOP], capture_output=True, env=env, check=False)
        expect(whole.returncode != 0, "the whole project was configured without its libraries: nothing was hidden")
        found = run(["meson", "setup", build, TOP, "-Dcontroller_only=true"], env)
        found = found or run(["ninja", "-j2", "-C", build], env) or run(["meson", "test", "-C", build, "--no-rebuild"], env)
        report(found, "controller only")
