#!/usr/bin/python3
"""Every built executable is linked with what its row of the table allows, and with nothing else (readelf -d).

linked.py BUILD_FOLDER. An executable that is installed and has no row is a finding; so is one that meson knows and the
build folder lacks.
"""

import os
import re
import subprocess
import sys

from lint import expect, report, targets
from rules import C_LIBRARY, LINKED, NEVER_LINKED, SANITIZERS

NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+?)\.so(?:[.\d]*)\]")


def needed(path):
    out = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    return NEEDED.findall(out)


def findings(name, libraries):
    allowed = LINKED[name] + C_LIBRARY + SANITIZERS
    return [f"{name} is linked with {lib}, which it must " + ("never have" if lib in NEVER_LINKED[name] else "not need")
            for lib in libraries if lib not in allowed or lib in NEVER_LINKED[name]]


def executables(build):
    """name -> path of what is installed as a program."""
    return {t["name"]: t["filename"][0] for t in targets(build) if t["type"] == "executable" and t["installed"]}


def self_test(built):
    expect(NEEDED.findall(" 0x1 (NEEDED)   Shared library: [libvirt.so.0]\n (NEEDED) Shared library: [libyaml-0.so.2]")
           == ["libvirt", "libyaml-0"], "reading readelf")
    expect(findings("boxery-deliver", ["libc", "libcurl"]), "a library that must never be there")
    expect(findings("boxery-deliver", ["libfoo"]), "a library that nobody allowed")
    expect(not findings("boxery-deliver", ["libc", "libssh2", "libasan"]), "what is allowed")
    expect(all(not set(LINKED[n]) & set(NEVER_LINKED[n]) for n in LINKED), "the two tables contradict each other")
    expect(sorted(LINKED) == sorted(NEVER_LINKED), "the two tables have different rows")
    # On the real thing: boxery-deliver speaks ssh, so it can never pass for boxery.
    if "boxery-deliver" in built:
        expect(findings("boxery", needed(built["boxery-deliver"])), "boxery-deliver passed for boxery")


if __name__ == "__main__":
    programs = executables(sys.argv[1])
    found = [f"{n}: {p} is not built" for n, p in programs.items() if not os.path.exists(p)]
    if not found:
        self_test(programs)
        for n, p in sorted(programs.items()):
            libraries = needed(p)
            print(f"{n}: {' '.join(libraries)}")
            found += findings(n, libraries) if n in LINKED else [f"{n} has no row in the table"]
    found += [f"{n} has a row in the table, and meson does not know it" for n in LINKED if n not in programs]
    report(found, "linked")
