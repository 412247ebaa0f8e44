#!/usr/bin/python3
"""What has to build on macOS includes only headers that are there, and uses no name that is not.

portable.py BUILD_FOLDER: base/ and the sources of `boxery` and of all libraries it is linked with.
"""

import os
import re
import sys

from lint import TOP, c_files, code_only, expect, includes, read, report, targets
from rules import FREE_HEADERS, NOT_PORTABLE, PORTABLE_EXECUTABLE, PORTABLE_HEADERS

NAME = re.compile(r"\b(" + "|".join(NOT_PORTABLE) + r")\b")


def findings(path, text):
    code = code_only(text)
    out = [f"{path}:{line}: <{name}> is not on the list of portable headers"
           for line, kind, name in includes(text) if kind == "<" and name not in PORTABLE_HEADERS]
    out += [f"{path}:{code.count(chr(10), 0, m.start()) + 1}: {m.group(1)} is not portable"
            for m in NAME.finditer(code)]
    return out


def linked_sources(build):
    """C sources of the executable; of the libraries, by the archives on its link line."""
    all_targets = targets(build)
    wanted = [t for t in all_targets if t["name"] == PORTABLE_EXECUTABLE]
    if not wanted:
        report([f"no target {PORTABLE_EXECUTABLE}"], "portable")
    parameters = [p for t in wanted for s in t["target_sources"] for p in s.get("parameters", [])]
    with open(os.path.join(build, "build.ninja"), encoding="utf-8") as f:
        rule = next((line for line in f if line.startswith(f"build {PORTABLE_EXECUTABLE}: ")), "")
    archives = {os.path.basename(w) for w in rule.split() + parameters if w.endswith(".a")}
    wanted += [t for t in all_targets if any(os.path.basename(n) in archives for n in t["filename"])]
    return {os.path.relpath(p, TOP) for t in wanted for s in t["target_sources"] for p in s.get("sources", [])}


def with_headers(paths):
    """Adds what they include of ours, to the end."""
    seen, todo = set(), list(paths)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += [n for _, k, n in includes(read(path)) if k == '"' and n not in FREE_HEADERS]
    return sorted(seen)


def self_test():
    expect(findings("x.c", "\n#include <sys/epoll.h>"), "a Linux header")
    expect(findings("x.c", "fd = pipe2(p, 0);") == ["x.c:1: pipe2 is not portable"], "a Linux call")
    expect(not findings("x.c", '#include <stdio.h>\n/* pipe2 */ char *s = "prctl";'), "words only")


if __name__ == "__main__":
    self_test()
    paths = with_headers(set(c_files(["base"])) | linked_sources(sys.argv[1]))
    expect("base/error.c" in paths and "controller/main_boxery.c" in paths, "the sources of boxery were not found")
    print("looked at: " + " ".join(paths))
    report([f for p in paths for f in findings(p, read(p))], "portable")
