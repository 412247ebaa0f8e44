#!/usr/bin/python3
"""runners_config.py BOXERY_RUNNERS FOLDER [--update] - what --check says about each FOLDER/*.yaml stands in *.expected:
the exit status, then the words. A file that is missing or a folder as a file are tried as well.

keys.table is made from the keys that the program itself names: each with every kind of value that is wrong for it, and those at the
edge of its range. A new key changes the table."""
import difflib
import os
import re
import subprocess
import sys
import tempfile

program, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
update = "--update" in sys.argv
faults = []


def said(name):
    done = subprocess.run([program, "--offline", "--check", name], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60)
    return "%d\n%s" % (done.returncode, done.stdout)


def expect(condition, what):
    if not condition:
        faults.append(what)


names = sorted(n for n in os.listdir(folder) if n.endswith(".yaml"))
for name in names:
    expected = os.path.join(folder, name[:-5] + ".expected")
    got = said(name)
    # The default labels name this machine.
    got = got.replace(",arm64,", ",x64,") if os.uname().machine == "aarch64" else got
    if update:
        with open(expected, "w") as f:
            f.write(got)
    with open(expected) as f:
        want = f.read()
    expect(got == want, "%s:\n  expected %r\n  got      %r" % (name, want, got))
    expect(got.startswith("0\n") == name.startswith("ok-"), "%s: %s" % (name, got))
    expect("\x1b" not in got and "\0" not in got, "%s: control characters come through" % name)
expect(len(names) >= 30, "the cases are missing")

got = said("no-such-file.yaml")
expect(got.startswith("3\n") and "no-such-file.yaml is missing" in got, got)
with tempfile.TemporaryDirectory() as d:
    expect(said(d).split("\n")[0] not in ("0", "-6", "-11"), "a folder as a file")
    big = os.path.join(d, "big.yaml")
    with open(big, "w") as f:
        f.write("#" * 70000)
    got = said(big)
    expect(got.startswith("5\n") and "big.yaml is larger than" in got, got)

# What is put behind each key: a name for it, and the text.
VALUES = [("nothing", ""), ("empty", "''"), ("a word", "word"), ("a mapping", "{a: b}"),
          ("a list", "[a, b]"), ("an empty list", "[]"), ("a list in a list", "[[a]]"), ("a list with nothing in it", "['']"),
          ("a list with a repetition", "[a, A]"), ("a negative number", "-1"), ("zero", "0"), ("one", "1"), ("a large number", "101"),
          ("a fraction", "1.5"), ("hexadecimal", "0x10"), ("more than 64 bits", "18446744073709551617"),
          ("a duration", "1h"), ("an unknown unit", "1y"), ("a short duration", "1s"),
          ("a long duration", "400d"), ("a path", "/a/b"), ("a folder", "/a/"), ("a control character", '"a\\x07"'),
          ("what is not ASCII", "\u00fc"), ("a NUL", '"a\\0"'), ("300 bytes", "x" * 300), ("31 in a list", str(list(range(31))).replace("'", "")),
          ("21 long ones in a list", "[%s]" % ", ".join("%s%d" % ("y" * 60, i) for i in range(10, 31)))]
# Keys that cannot be alone, and what belongs to them.
BESIDE = {"group": "org: acme", "repos": "org: acme"}


def keys_of(text):
    with open(os.path.join(scratch, "x.yaml"), "w") as f:
        f.write(text)
    return re.search(r"allowed: (.*)", said(os.path.join(scratch, "x.yaml")))[1].split(", ")


def table():
    for level, keys in (("", keys_of("nosuch: 1\n")), ("runners: ", keys_of("version: 1\nrunners:\n  - nosuch: 1\n"))):
        for key in keys:
            yield "== %s%s" % (level, key)
            for what, value in VALUES:
                if level:
                    beside = [] if key in ("repo", "org") else [BESIDE.get(key, "repo: octo/private")]
                    lines = ["version: 1", "runners:"] + [("  - " if i == 0 else "    ") + x for i, x in
                                                         enumerate(beside + ["%s: %s" % (key, value)])]
                else:
                    lines = ["%s: %s" % (key, value)] + [x for x in ("version: 1", "runners: [{repo: octo/private}]")
                                                         if not x.startswith(key + ":")]
                with open(os.path.join(scratch, "t.yaml"), "w", encoding="utf-8") as f:
                    f.write("\n".join(lines) + "\n")
                status, words = said(os.path.join(scratch, "t.yaml")).replace(scratch + "/", "").split("\n", 1)
                where = "t.yaml:%d: " % (len(lines) if level else 1)
                expect(status == "0" or (status == "5" and words.startswith("boxery-runners: " + where)),
                       "%s with %s: %s %s" % (key, what, status, words))
                yield "%s: %s" % (what, "ok" if status == "0" else words.strip().replace("boxery-runners: t.yaml:", ""))


with tempfile.TemporaryDirectory() as scratch:
    got = "\n".join(table()) + "\n"
expected = os.path.join(folder, "keys.table")
if update:
    with open(expected, "w", encoding="utf-8") as f:
        f.write(got)
with open(expected, encoding="utf-8") as f:
    want = f.read()
if got != want:
    faults += ["keys.table: " + line for line in difflib.unified_diff(want.split("\n"), got.split("\n"), "expected", "got", lineterm="", n=2)]
sys.exit("\n".join(faults) if faults else 0)
