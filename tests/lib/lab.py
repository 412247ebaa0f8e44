"""A whole host for tests and for ./quickstart: a private world, an image, the emulator, and boxery's own commands in it.

Everything lives under one folder (BOXERY_LAB, default /var/tmp/boxery-lab): `emulator/` (CA and token, kept, so that an
image that trusts the CA stays good), `image/` (base images, shared by hard links), `cache/`, and `w/NAME/`, a world each.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, "tests", "emulator"))
from emu.client import Emulator  # noqa: E402

ROOT = os.environ.get("BOXERY_LAB", "/var/tmp/boxery-lab")
BUILD = os.environ.get("BOXERY_BUILD", os.path.join(TOP, "build"))
WORLD = os.path.join(HERE, "world")
IMAGE = "lab"
PORTS = range(18480, 18490)  # for the download of an image build
RUNNER_VERSION = "2.338.0"
REPO = "octo/private"
LABELS = ["self-hosted", "linux", "x64", "boxery"]


class Failed(Exception):
    """A command that should have succeeded did not."""


def say(text):
    print(text, flush=True)


def run(command, check=True, timeout=1800, **more):
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, **more)
    if check and done.returncode != 0:
        raise Failed("%s: exit %d\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return done


def wait_until(what, probe, timeout=120, every=0.2):
    """The first true value of probe(); Failed with `what` when there is none in time."""
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed("not within %d s: %s" % (timeout, what))
        time.sleep(every)


def runner_tarball():
    """Packs the stand-in runner; returns (folder, file name, sha256)."""
    folder = os.path.join(ROOT, "downloads")
    os.makedirs(folder, exist_ok=True)
    name = "actions-runner-linux-x64-%s.tar.gz" % RUNNER_VERSION
    path = os.path.join(folder, name)
    run(["/usr/bin/python3", os.path.join(TOP, "tests", "emulator", "pack_runner.py"), path])
    with open(path, "rb") as f:
        return folder, name, hashlib.sha256(f.read()).hexdigest()


def authority():
    """The emulator's CA certificate, made by its first start."""
    state = os.path.join(ROOT, "emulator")
    path = os.path.join(state, "ca.pem")
    if not os.path.exists(path):
        Emulator.start(state, "--listen", "127.0.0.1:0").stop()
    return path


def tests_layer(sha256, url):
    """The github-runner layer as shipped, with the stand-in's download in place of GitHub's."""
    with open(os.path.join(TOP, "layers", "github-runner.yaml")) as f:
        text = f.read()
    import yaml
    layer = yaml.safe_load(text)
    layer["name"] = "lab-runner"
    layer["download"]["url"] = url
    layer["download"]["sha256"] = {"amd64": sha256, "arm64": sha256}
    return yaml.safe_dump(layer, sort_keys=False)


def serve(folder):
    """Serves a folder on loopback; (process, URL). The first port that is free: the URL is part of the image's record, so another
    one means another build."""
    for port in PORTS:
        server = subprocess.Popen(["/usr/bin/python3", os.path.join(TOP, "tests", "emulator", "serve_files.py"), folder,
                                   "--listen", "127.0.0.1:%d" % port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        words = server.stdout.readline().split()
        if len(words) == 2:
            return server, words[1].rstrip("/")
        said = server.communicate()[1].strip().splitlines()
    raise Failed("no port of 127.0.0.1:%d to %d can be served from: %s" % (PORTS[0], PORTS[-1], said[-1] if said else "no words"))


@contextlib.contextmanager
def one_at_a_time(path):
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure_image(log=say):
    """Builds the image of the tests once; afterwards boxery-build says that nothing changed."""
    os.makedirs(ROOT, exist_ok=True)
    with one_at_a_time(os.path.join(ROOT, "image.lock")):
        folder, _, sha256 = runner_tarball()
        layers = os.path.join(ROOT, "layers")
        shutil.rmtree(layers, ignore_errors=True)
        shutil.copytree(os.path.join(TOP, "layers"), layers, ignore=shutil.ignore_patterns("*.[ch]", "meson.build"))
        server, url = serve(folder)
        try:
            build_image(layers, sha256, url, log)
        finally:
            server.terminate()
            server.communicate()


def build_image(layers, sha256, url, log):
    with open(os.path.join(layers, "lab-runner.yaml"), "w") as f:
        f.write(tests_layer(sha256, url + "/actions-runner-linux-{arch}-{version}.tar.gz"))
    # An existing image tells boxery-build by itself whether anything changed.
    command = [os.path.join(BUILD, "boxery-build"), "base", IMAGE, "--layers", "debian,lab-runner",
               "--layer-dir", layers, "--image-dir", os.path.join(ROOT, "image"), "--cache-dir",
               os.path.join(ROOT, "cache"), "--ca", authority()]
    done = run(command, check=False)
    if done.returncode != 0:
        raise Failed("boxery-build: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
    for line in done.stderr.splitlines() + done.stdout.splitlines():
        log("  " + line)


def end_stale_worlds():
    """Worlds are named NAME-PID; one whose process is gone was left by a test that was killed."""
    folder = os.path.join(ROOT, "w")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        pid = name.rpartition("-")[2]
        if pid.isdigit() and not os.path.exists("/proc/" + pid):
            run([WORLD, "stop", os.path.join(folder, name)], check=False)
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


class Lab:
    """One world. `with Lab("name") as lab:` starts it and ends every process in it afterwards."""

    def __init__(self, name, keep=False, emulator_args=()):
        self.dir = os.path.join(ROOT, "w", name if keep else "%s-%d" % (name, os.getpid()))
        self.keep, self.emulator_args = keep, list(emulator_args)
        self.emulator = None
        self.services = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        if not self.keep:
            end_stale_worlds()
        elif self.image_has_changed():
            say("  not reused: the world in %s was made from an older image" % self.dir)
            run([WORLD, "stop", self.dir], check=False)
            shutil.rmtree(self.dir)
        run([WORLD, "start", self.dir])
        base = os.path.join(self.dir, "image", "base")
        if not os.path.exists(os.path.join(base, IMAGE)):
            os.makedirs(base, exist_ok=True)
            run(["cp", "-al", os.path.join(ROOT, "image", "base", IMAGE), base])
        self.emulator = Emulator.start(
            os.path.join(ROOT, "emulator"), "--listen", "203.0.113.10:443", "--admin", "203.0.113.10:8081",
            "--repo", REPO, *self.emulator_args, token="github_pat_" + os.urandom(20).hex(), prefix=[WORLD, "run-emu", self.dir, "--"])
        self._call_from_inside(self.emulator)

    def image_has_changed(self):
        ours = os.path.join(self.dir, "image", "base", IMAGE, "manifest.env")
        if not os.path.exists(ours):
            return False
        with open(ours) as mine, open(os.path.join(ROOT, "image", "base", IMAGE, "manifest.env")) as built:
            return mine.read() != built.read()

    def _call_from_inside(self, emulator):
        """The admin port is in the world's network: calls go through curl run there."""
        def call(method, path, body=None, ok=(200, 201), timeout=120):
            command = ["curl", "-sS", "-m", str(timeout), "-X", method, "-w", "\n%{http_code}",
                       emulator.admin + "/_emulator/" + path]
            if body is not None:
                command += ["-H", "content-type: application/json", "--data-binary", json.dumps(body)]
            text, _, status = self.inside(command).stdout.rpartition("\n")
            answer = json.loads(text) if text.startswith(("{", "[")) else text
            if int(status) not in ok:
                raise RuntimeError("%s %s: %s %s" % (method, path, status, answer))
            return answer
        emulator.call = call

    def stop(self):
        for service in self.services:
            if service.poll() is None:
                service.kill()
                service.wait()
        if self.emulator and self.emulator.process:
            self.emulator.process.kill()
            self.emulator.process.wait()
            self.emulator.process.stdout.close()
        run([WORLD, "stop", self.dir], check=False)
        if not self.keep and not os.environ.get("BOXERY_KEEP_WORLDS"):
            shutil.rmtree(self.dir, ignore_errors=True)

    # -- commands in the world

    def inside(self, command, check=True, **more):
        return run([WORLD, "run", self.dir, "--"] + list(command), check=check, **more)

    def host(self, *arguments, check=True, **more):
        """boxery-host ARGUMENTS; the finished process."""
        return self.inside([os.path.join(BUILD, "boxery-host")] + list(arguments), check=check, **more)

    def host_json(self, *arguments):
        return json.loads(self.host(*arguments, "--json").stdout)

    def vm(self, name):
        for vm in self.host_json("ls")["vms"]:
            if vm["name"] == name:
                return vm
        return None

    def wait_state(self, name, *states, timeout=600):
        def probe():
            vm = self.vm(name)
            return vm if vm and vm["state"] in states else None
        return wait_until("%s in state %s" % (name, " or ".join(states)), probe, timeout, every=0.5)

    def new_pool_vm(self, name, *options, wait=True):
        self.host("new", name, "--image", IMAGE, "--memory", "1G", *options)
        self.host("pool", "add", name, *(["--wait"] if wait else []))

    # -- the service

    def configure(self, **settings):
        """Writes runners.yaml and runners.env for the emulator. settings override entry keys."""
        entry = {"repo": REPO, "labels": LABELS, "pool": "default", "min_ready": 1, "max": 2}
        entry.update(settings)
        top = {"version": 1, "poll_interval": entry.pop("poll_interval", "5s"), "runners": [entry]}
        import yaml
        self.write("config/runners.yaml", yaml.safe_dump(top, sort_keys=False))
        self.write("config/runners.env", "GITHUB_TOKEN=%s\nBOXERY_GITHUB_URL=https://203.0.113.10\n"
                   "BOXERY_GITHUB_CA_FILE=%s\n" % (self.emulator.token, self.emulator.ca), 0o600)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.dir, name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "w") as f:
            os.fchmod(f.fileno(), mode)
            f.write(text)

    def start_runners(self):
        log = open(os.path.join(self.dir, "log", "runners.log"), "a")
        service = subprocess.Popen([WORLD, "run", self.dir, "--", os.path.join(BUILD, "boxery-host"), "runners"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.services.append(service)
        return service

    def stop_runners(self, service, how=signal.SIGTERM, timeout=60):
        service.send_signal(how)
        return service.wait(timeout)

    def keeper_pid(self):
        """The keeper of this world, by its executable and its mount namespace."""
        reaper = run([WORLD, "pid", self.dir]).stdout.strip()
        mine = os.readlink("/proc/%s/ns/mnt" % reaper)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if (os.path.basename(os.readlink("/proc/%s/exe" % pid)) == "boxery-keeper"
                        and os.readlink("/proc/%s/ns/mnt" % pid) == mine):
                    return int(pid)
        return None

    def log(self, name):
        with contextlib.suppress(OSError), open(os.path.join(self.dir, name), errors="replace") as f:
            return f.read()
        return ""
