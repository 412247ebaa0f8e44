"""Root in a guest of a lab: one ssh connection per life, and many short scripts over it in one go."""
import os
import re
import shlex
import subprocess

import lab as lab_module

CONNECT_TIMEOUT = 60
SCRIPT_TIMEOUT = 120


class Lost(Exception):
    """The guest did not answer to the end."""


class Guest:
    """name, address, key: who; known_hosts: lines for ssh; environment: what every script sees."""

    def __init__(self, lab, name, address, key, known_hosts, generation):
        self.lab, self.name, self.address, self.key, self.generation = lab, name, address, key, generation
        self.control = os.path.join(lab.dir, "cm-" + name)
        self.known = os.path.join(lab.dir, "known-" + name)
        with open(self.known, "w") as f:
            f.write(known_hosts.rstrip("\n") + "\n")

    def command(self, *options, key=None, known=None, address=None):
        return [lab_module.WORLD, "run", self.lab.dir, "--", "ssh", "-F", "/dev/null", "-i", key or self.key, "-o",
                "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=/dev/null",
                "-o", "LogLevel=ERROR", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8", "-o",
                "UserKnownHostsFile=" + (known or self.known), "-o", "ConnectTimeout=%d" % CONNECT_TIMEOUT, *options,
                "root@" + (address or self.address)]

    def ssh(self, text, *options, timeout=SCRIPT_TIMEOUT, **who):
        """Runs a bash script; the finished process, or Lost."""
        try:
            return subprocess.run(self.command(*options, **who) + ["bash -s"], input=text, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Lost("no answer from %s within %d s" % (self.name, timeout)) from None

    def play(self, scripts, environment):
        """scripts: [(name, text, seconds)]. Returns {name: (exit status, output)}; a script that was cut off is not in it."""
        lines = ["export %s=%s" % (k, shlex.quote(str(v))) for k, v in environment.items()]
        lines += ["export LC_ALL=C", "run() { printf '@@ %s\\n' \"$1\"; timeout -k 5 \"$2\" bash -c \"$3\" </dev/null 2>&1; "
                  "printf '\\n@@= %d\\n' $?; }"]
        lines += ["run %s %d %s" % (shlex.quote(name), seconds, shlex.quote(text)) for name, text, seconds in scripts]
        out = self.ssh("\n".join(lines) + "\n", timeout=sum(s for _, _, s in scripts) + 120).stdout
        return {name: (int(status), text.strip()) for name, text, status in
                re.findall(r"^@@ ([^\n]*)\n(.*?)\n@@= (\d+)$", out, re.M | re.S)}
