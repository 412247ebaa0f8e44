#!/usr/bin/python3
"""layer_files.py BOXERY_BUILD FOLDER [--update] - what `layers --check` says about each FOLDER/NAME.yaml stands in NAME.expected:
the exit status, then the words. Also: files that are missing, too large, or require each other."""
import os
import subprocess
import sys
import tempfile

program, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
update = "--update" in sys.argv
faults = []


def said(*args, cwd=None):
    done = subprocess.run([program, "layers", "--check", *args], cwd=cwd or os.path.dirname(folder), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    return "%d\n%s" % (done.returncode, done.stdout)


def expect(condition, what):
    if not condition:
        faults.append(what)


names = sorted(n[:-5] for n in os.listdir(folder) if n.endswith(".yaml"))
for name in names:
    expected = os.path.join(folder, name + ".expected")
    got = said("--layer-dir", os.path.basename(folder), name)
    if update:
        with open(expected, "w") as f:
            f.write(got)
    with open(expected) as f:
        want = f.read()
    expect(got == want, "%s:\n  expected %r\n  got      %r" % (name, want, got))
    expect(got.startswith("0\n") == name.startswith("ok-"), "%s: %s" % (name, got))
    expect("\x1b" not in got and "\0" not in got, "%s: control characters come through" % name)
expect(len(names) >= 40, "the cases are missing")

with tempfile.TemporaryDirectory() as d:
    def write(name, text):
        with open(os.path.join(d, name + ".yaml"), "w") as f:
            f.write(text)

    got = said("--layer-dir", d, "nothing")
    expect(got == "3\nboxery-build: there is no layer nothing in %s\n" % d, got)
    got = said("--layer-dir", d, "../x")
    expect(not got.startswith("0\n") and "layer" in got, got)
    write("needs", "name: needs\nrequires: [absent]\n")
    got = said("--layer-dir", d, "needs")
    expect(got == "3\nboxery-build: layer absent, which needs requires, is not in %s\n" % d, got)
    write("a", "name: a\nrequires: [b]\n")
    write("b", "name: b\nrequires: [c]\n")
    write("c", "name: c\nrequires: [a]\n")
    got = said("--layer-dir", d, "a")
    expect(got.endswith("layers require each other: a requires b requires c requires a\n"), got)
    write("big", "name: big\n" + "#" * 70000)
    got = said("--layer-dir", d, "big")
    expect(not got.startswith("0\n") and "big.yaml" in got, got)
    write("source", "name: source\nfiles:\n- {source: no/such.file, dest: /x}\n")
    got = said("--layer-dir", d, "source")
    expect(got.startswith("3\n") and "no/such.file" in got, got)
    # The first folder that has a layer counts.
    with tempfile.TemporaryDirectory() as second:
        with open(os.path.join(second, "only-here.yaml"), "w") as f:
            f.write("name: only-here\nrequires: [plain]\n")
        write("plain", "name: plain\ndescription: from the first\n")
        with open(os.path.join(second, "plain.yaml"), "w") as f:
            f.write("name: plain\ndescription: from the second\n")
        expect(said("--layer-dir", d, "--layer-dir", second, "only-here").startswith("0\n"), "two folders")
        expect("from the first" in said("--layer-dir", d, "--layer-dir", second, "plain"), "order of folders")

# The layers that are shipped are good, all of them.
shipped = os.path.join(os.path.dirname(folder), "..", "..", "layers")
got = said("--layer-dir", shipped)
expect(got.startswith("0\n") and got.count("\n") >= 4, got)
sys.exit("\n".join(faults) if faults else 0)
