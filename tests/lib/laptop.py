"""A person's machine beside a lab's host: another root folder's home, an ssh configuration, gh's login, and nothing else.

The host's sshd is a real one on loopback. The laptop is a mount namespace in which /root and the system's CA list are its own; a
command there has HOME in its environment, and that is all.
"""
import json
import os
import shutil
import signal
import subprocess

from lab import BUILD, REPO, WORLD, run, wait_until

PORT = 2222
CA_LIST = "/etc/ssl/certs/ca-certificates.crt"

# Run by a script with `&`, SIGINT would be ignored by all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Laptop:
    def __init__(self, lab):
        self.lab, self.dir = lab, os.path.join(lab.dir, "laptop")
        self.processes = []
        for folder in ("home/.ssh", "home/.config/gh", "bin"):
            os.makedirs(os.path.join(self.dir, folder), 0o700, exist_ok=True)
        for name in ("boxery",):
            shutil.copy(os.path.join(BUILD, name), self.path("bin", name))
        for key in ("home/.ssh/id_ed25519", "host_key"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(key)])
        self.log_in()
        self.trust()
        self.start_sshd()

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(self.path(name), 0o600)

    def log_in(self):
        host = self.lab.emulator.url.split("//")[1].removesuffix(":443")
        self.write("home/.config/gh/hosts.yml", f'"{host}":\n    user: octocat\n    oauth_token: {self.lab.emulator.token}\n    git_protocol: https\n')

    def trust(self):
        with open(self.lab.emulator.ca, encoding="ascii") as f:
            self.write("ca.crt", f.read())

    def start_sshd(self):
        shutil.copy(self.path("home/.ssh/id_ed25519.pub"), self.path("authorized_keys"))
        variables = dict(line.split("=", 1) for line in self.lab.inside(["env"]).stdout.splitlines() if line.startswith("BOXERY_"))
        variables["PATH"] = BUILD + ":/usr/sbin:/usr/bin:/sbin:/bin"
        environment = " ".join(f"{k}={v}" for k, v in sorted(variables.items()))
        self.write("sshd_config", f"ListenAddress 127.0.0.1:{PORT}\nHostKey {self.path('host_key')}\nAuthorizedKeysFile {self.path('authorized_keys')}\n"
                   f"StrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nSetEnv {environment}\n")
        with open(self.path("host_key.pub"), encoding="ascii") as f:
            self.write("home/.ssh/known_hosts", f"[127.0.0.1]:{PORT} {' '.join(f.read().split()[:2])}\n")
        self.write("home/.ssh/config", f"Host vmhost\n\tHostName 127.0.0.1\n\tPort {PORT}\n\tUser root\n\tConnectTimeout 10\n")
        os.makedirs("/run/sshd", exist_ok=True)
        with open(self.path("sshd.log"), "w", encoding="ascii") as log:
            self.processes.append(subprocess.Popen([WORLD, "run", self.lab.dir, "--", "/usr/sbin/sshd", "-D", "-e", "-f", self.path("sshd_config")],
                                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        wait_until("sshd on the host", lambda: self.lab.inside(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"], check=False).returncode == 0, 30)

    def command(self, program, *arguments):
        script = (f"mount --make-rprivate / && mount --bind {self.path('home')} /root && mount --bind {self.path('ca.crt')} {CA_LIST} && cd /root && "
                  "exec env -i HOME=/root \"$@\"")
        return [WORLD, "run", self.lab.dir, "--", "unshare", "--mount", "sh", "-c", script, "sh", program, *arguments]

    def boxery(self, *arguments, check=True, **more):
        return run(self.command(self.path("bin/boxery"), *arguments), check=check, **more)

    def ssh(self, *arguments, check=True):
        return run(self.command("/usr/bin/ssh", "-o", "BatchMode=yes", *arguments), check=check)

    def once(self, *arguments):
        """Started; its events come line by line on stdout."""
        p = subprocess.Popen(self.command(self.path("bin/boxery"), "--host", "vmhost", "runners", "once", "--repo", REPO, "--json", *arguments), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(p)
        return p

    @staticmethod
    def until(p, word, seen):
        """Reads events into seen until this one, or the end."""
        for line in p.stdout:
            seen.append(json.loads(line))
            if seen[-1]["event"] == word:
                return seen[-1]
        return None

    def stop(self):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()
            for pipe in (p.stdout, p.stderr):
                if pipe:
                    pipe.close()
