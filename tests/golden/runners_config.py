#!/usr/bin/python3
"""runners_config.py BOXERY_RUNNERS FOLDER [--update] - what --check says about each FOLDER/*.yaml stands in *.expected:
the exit status, then the words. A file that is missing or a folder as a file are tried as well."""
import os
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
sys.exit("\n".join(faults) if faults else 0)
