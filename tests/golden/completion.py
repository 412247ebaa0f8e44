#!/usr/bin/python3
"""completion.py BUILD SOURCE - what the shells offer: bash by asking it, zsh and fish when they are here, and by their words otherwise."""
import os
import re
import shutil
import subprocess
import sys

build, source = sys.argv[1:3]
folder = os.path.join(source, "contrib", "completion")
env = {**os.environ, "PATH": build + ":/usr/bin:/bin"}
fault = []


def bash(*words):
    """What bash offers for the last of these words."""
    script = f'source {folder}/boxery.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _boxery; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(subprocess.run(["bash", "-c", script, "bash", *words], env=env, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def expect(what, got, *wanted):
    for w in wanted:
        if w not in got:
            fault.append("%s: %r is not offered: %s" % (what, w, sorted(got)))


def help_of(*words):
    done = subprocess.run([os.path.join(build, words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


commands = [x.split()[0] for x in help_of("boxery").split("Commands:\n")[1].splitlines() if x.startswith("  ")]
expect("boxery", bash("boxery", ""), "--host", *commands)
expect("boxery --host h", bash("boxery", "--host", "h", ""), *commands)
expect("boxery runners", bash("boxery", "runners", ""), "once", "status", "reload")
options = re.findall(r"^  (--[a-z-]+)", help_of("boxery", "runners", "once"), re.M)
expect("boxery runners once --", bash("boxery", "runners", "once", "--"), *options)
if bash("boxery", "runners", "once", "--fo") != {"--follow"}:
    fault.append("--fo is not completed to --follow")
expect("boxery-host pool add --", bash("boxery-host", "pool", "add", "--"), "--wait", "--pool")
if bash("boxery", "nothing", ""):
    fault.append("something is offered for a command that there is not")
# Words that only the hosts' commands know stand in all three.
listed = {w for w in re.findall(r"boxery runners (\S+) \.\.\.", subprocess.run([os.path.join(build, "boxery"), "runners"], capture_output=True,
                                                                                text=True, timeout=60, check=False).stderr)[0].split("|")}
for name in ("boxery.bash", "_boxery", "boxery.fish"):
    with open(os.path.join(folder, name), encoding="ascii") as f:
        text = f.read()
    for word in listed | {"once"}:
        if not re.search(r"\b%s\b" % word, text):
            fault.append("%s does not know 'runners %s'" % (name, word))
for shell, name in (("zsh", "_boxery"), ("fish", "boxery.fish"), ("bash", "boxery.bash")):
    if shutil.which(shell):
        done = subprocess.run([shell, "-n", os.path.join(folder, name)], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            fault.append("%s: %s" % (name, done.stderr))
sys.exit("\n".join(fault) if fault else 0)
