"""Shared by the checks: which files there are, and C text without comments and strings."""

import json
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", re.M)


def code_only(text):
    """Comments and literals become blanks; the lines keep their numbers."""
    return _TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def includes(text):
    """(line, '<' or '\"', name) of each include that is not in a comment."""
    without_comments = _TOKEN.sub(
        lambda m: m.group() if m.group()[0] in "\"'" else re.sub(r"[^\n]", " ", m.group()), text)
    return [(without_comments.count("\n", 0, m.start()) + 1, m.group(1), m.group(2))
            for m in _INCLUDE.finditer(without_comments)]


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def c_files(folders):
    """Paths from the top of every .c and .h below the folders, in order."""
    found = []
    for folder in folders:
        for where, _, names in os.walk(os.path.join(TOP, folder)):
            found += [os.path.relpath(os.path.join(where, n), TOP) for n in names if n.endswith((".c", ".h"))]
    return sorted(found)


def targets(build):
    """All targets of a build folder as meson describes them."""
    with open(os.path.join(build, "meson-info", "intro-targets.json"), encoding="utf-8") as f:
        return json.load(f)


def report(findings, what):
    """Prints the findings and ends the check."""
    for f in findings:
        print(f)
    print(f"{what}: {len(findings)} finding(s)")
    sys.exit(1 if findings else 0)


def expect(condition, words):
    """For --self-test: a check that cannot fail is worth nothing."""
    if not condition:
        print(f"self-test failed: {words}")
        sys.exit(1)
