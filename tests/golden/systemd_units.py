#!/usr/bin/python3
"""systemd_units.py BUILD_DIR SOURCE_DIR - the units are ones that systemd takes, start the programs of this build, and are closed as far
as they say; boxery-github works as systemd starts it: a connected socket as fd 3, its credential in a folder."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

build, source = (os.path.abspath(p) for p in sys.argv[1:3])
sys.path[:0] = [os.path.join(source, "tests", "lib")]
import proto  # noqa: E402

faults = []
UNITS = os.path.join(source, "contrib", "systemd")
# How exposed each may be by systemd's own count (0 to 100); what is above it fails. The keeper has to be able to do a lot.
EXPOSED = {"system/boxery-runners.service": 13, "system/boxery-github@.service": 14, "system/boxery-keeper.service": 78}


def run(*args):
    return subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          env={**os.environ, "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""})


def expect(condition, what):
    if not condition:
        faults.append(what)


with tempfile.TemporaryDirectory() as folder:
    for kind in ("system", "user"):
        os.mkdir(os.path.join(folder, kind))
        names = [n for n in os.listdir(os.path.join(UNITS, kind)) if n.endswith((".service", ".socket"))]
        for name in names:
            with open(os.path.join(UNITS, kind, name)) as f:
                text = f.read().replace("@LIBEXECDIR@", build)
            expect("@" not in re.sub(r"^SystemCallFilter=.*$|@system-service", "", text, flags=re.M).replace("boxery-github@", ""),
                   "%s/%s: something is not filled in" % (kind, name))
            with open(os.path.join(folder, kind, name), "w") as f:
                f.write(text)
        for name in names:
            path = os.path.join(folder, kind, name.replace("@.", "@test."))
            if "@." in name:
                shutil.copy(os.path.join(folder, kind, name), path)
            done = run("systemd-analyze", "verify", "--man=no", *(["--user"] if kind == "user" else []), path)
            said = [line for line in done.stdout.splitlines() if folder in line or "boxery" in line]
            # Other units of this machine are not ours to judge; what is said about ours is.
            said = [line for line in said if "libvirtd" not in line and "nftables" not in line]
            expect(not said, "verify %s/%s:\n%s" % (kind, name, "\n".join(said)))
    for name, most in EXPOSED.items():
        path = os.path.join(folder, name)
        done = run("systemd-analyze", "security", "--offline=yes", "--threshold=%d" % most, path)
        overall = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
        expect(done.returncode == 0, "%s: more exposed than %.1f: %s" % (name, most / 10, overall and overall[0] or done.stdout[-2000:]))

with open(os.path.join(UNITS, "system", "boxery-github@.service")) as f:
    unit = f.read()
expect("LoadCredential=runners.env:" in unit and not re.search(r"^Environment.*TOKEN", unit, re.M), "the token is no credential")
for name in ("boxery-runners.service", "boxery-keeper.service"):
    with open(os.path.join(UNITS, "system", name)) as f:
        expect("LoadCredential" not in f.read(), name + " is given the credential")

with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/runners.env", "w") as f:
        f.write("GITHUB_TOKEN=github_pat_canary\n")
    os.chmod(folder + "/runners.env", 0o440)
    gh = proto.GitHub(os.path.join(build, "boxery-github"), "/nonexistent",
                      {"CREDENTIALS_DIRECTORY": folder, "LISTEN_FDS": "1", "BOXERY_STATE_DIR": folder, "BOXERY_RUNTIME_DIR": folder})
    reply, _ = gh.call("HELLO", scope="")
    expect(reply["code"] == 0 and "fine-grained" in reply["text"], "as systemd starts it: %s %s" % (reply, gh.child.text()))
    gh.close()
sys.exit("\n".join(faults) if faults else 0)
