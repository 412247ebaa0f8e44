#!/usr/bin/python3
"""clang-tidy or cppcheck over the product's C files with the flags they are really built with, two at a time.

analyse.py clang-tidy|cppcheck BUILD_FOLDER [FOLDER...]: limited to some folders when they are named.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from lint import TOP, expect, report
from rules import FOLDERS

JOBS = 2
# Warning options of gcc that clang has not, and the other way round, are no finding.
TIDY = ["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option"]
# Without the library "gnu": it says that the addresses of accept4() may not be NULL.
CPPCHECK = ["cppcheck", "--quiet", "--std=c11", "--library=posix", "--inline-suppr", "--error-exitcode=1",
            "--enable=warning,performance,portability", "--suppressions-list=" + os.path.join(TOP, "tests/lint/cppcheck.txt"),
            "--template={file}:{line}: {severity}: {message} [{id}]"]


def commands(build, folders):
    """The part of compile_commands.json that is the product's own code, each file once."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    chosen = {}
    for e in entries:
        path = os.path.realpath(os.path.join(e["directory"], e["file"]))
        if os.path.relpath(path, TOP).split("/")[0] in folders:
            chosen.setdefault(path, e)
    return chosen


def queue_header():
    """cppcheck reads no system headers, which is well but for one: sys/queue.h, whose macros are loops."""
    out = subprocess.run(["cc", "-M", "-x", "c", "-"], input="#include <sys/queue.h>\n", check=True, capture_output=True,
                         text=True).stdout
    return next(w for w in out.split() if w.endswith("/sys/queue.h"))


def run(argv):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return p.returncode, p.stdout


def tidy(build, files):
    """Findings as text, one per file that has any."""
    with ThreadPoolExecutor(JOBS) as pool:
        results = pool.map(lambda f: (f, *run(TIDY + ["-p", build, f])), files)
    return [out.strip() or f"{f}: clang-tidy ended with status {code}" for f, code, out in results if code != 0]


def cppcheck(entries):
    """Its own database: that of the build also has the tests, and other projects' code has none of our rules."""
    with tempfile.TemporaryDirectory() as d:
        database = os.path.join(d, "compile_commands.json")
        with open(database, "w", encoding="utf-8") as f:
            json.dump(entries, f)
        p = subprocess.run(CPPCHECK + [f"-j{JOBS}", "--include=" + queue_header(), "--project=" + database], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
    return p.stdout.splitlines() if p.returncode != 0 else []


def self_test(tool):
    """The tool must see a plain fault, or its silence means nothing."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.c")
        with open(path, "w", encoding="utf-8") as f:
            f.write("int f(int n);\nint f(int n)\n{\n\tint *p = 0;\n\tint a[2] = {0};\n\tif (n)\n\t\treturn a[n = 2];\n"
                    "\treturn *p;\n}\n")
        entry = {"directory": d, "file": path, "command": f"cc -c {path}"}
        if tool == "cppcheck":
            expect(cppcheck([entry]), "cppcheck did not see a null pointer")
            return
        with open(os.path.join(d, "compile_commands.json"), "w", encoding="utf-8") as f:
            json.dump([entry], f)
        with open(os.path.join(TOP, ".clang-tidy"), encoding="utf-8") as f, \
                open(os.path.join(d, ".clang-tidy"), "w", encoding="utf-8") as g:
            g.write(f.read())
        expect(tidy(d, [path]), "clang-tidy did not see a null pointer")


if __name__ == "__main__":
    name, where, only = sys.argv[1], sys.argv[2], sys.argv[3:] or FOLDERS
    self_test(name)
    chosen = commands(where, only)
    expect(chosen, "no file of the product in compile_commands.json")
    print(f"{len(chosen)} files")
    report(tidy(where, sorted(chosen)) if name == "clang-tidy" else cppcheck(list(chosen.values())), name)
