#!/usr/bin/python3
"""man.py BUILD_DIR SOURCE_DIR - every command and option of --help stands in the man page, and the pages are sound mdoc."""
import os
import re
import subprocess
import sys

build, source = sys.argv[1:3]
pages = os.path.join(source, "docs", "man")
fault = []


def text_of(program, *arguments):
    done = subprocess.run([os.path.join(build, program), *arguments, "--help"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != 0:
        fault.append("%s %s --help: exit %d %s" % (program, " ".join(arguments), done.returncode, done.stderr))
    return done.stdout


def commands(text):
    listed = text.split("Commands:\n", 1)[1].split("\n\n", 1)[0] if "Commands:\n" in text else ""
    return [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]


with open(os.path.join(pages, "boxery-host.8")) as f:
    page = f.read()
# Words below a command that also works without one.
EXTRA = {"lease": [None, "renew", "ls"]}
for command in commands(text_of("boxery-host")):
    subs = EXTRA.get(command) or commands(text_of("boxery-host", command)) or [None]
    for sub in subs:
        words = [w for w in (command, sub) if w]
        entry = re.search(r"^\.It Cm %s( .*)?$" % " ".join(map(re.escape, words)), page, re.M)
        if not entry:
            fault.append("boxery-host.8 has no entry for '%s'" % " ".join(words))
            continue
        for option in re.findall(r"^  --([a-z-]+)", text_of("boxery-host", *words), re.M):
            if option != "help" and "Fl -%s" % option not in entry.group(0):
                fault.append("boxery-host.8: '%s' lacks --%s" % (" ".join(words), option))
with open(os.path.join(pages, "boxery.1")) as f:
    page = f.read()
for command in commands(text_of("boxery")):
    if not re.search(r"\b%s\b" % command, page):
        fault.append("boxery.1 does not name '%s'" % command)
for name in sorted(os.listdir(pages)):
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", os.path.join(pages, name)], stdout=subprocess.PIPE,
                          text=True, timeout=60)
    if done.stdout:
        fault.append(done.stdout)
sys.exit("\n".join(fault) if fault else 0)
