"""For tests: starts an emulator as a child process and speaks its admin calls."""
import json
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "github_emulator.py")


class Emulator:
    """`url` is the API root, `ca` the file to trust, `token` a token that may do everything, `admin` the admin URL."""

    def __init__(self, url, admin, state_dir=None, token=None, process=None):
        self.url, self.admin, self.state_dir, self.token, self.process = url, admin, state_dir, token, process
        self.ca = os.path.join(state_dir, "ca.pem") if state_dir else None

    @classmethod
    def start(cls, state_dir, *args, token="github_pat_of_a_test", prefix=()):
        """`prefix`: a command to run it under, such as ("ip", "netns", "exec", NAME)."""
        command = list(prefix) + ["/usr/bin/python3", PROGRAM, "--state-dir", state_dir, "--token", token, *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline().split()
        if len(line) != 3 or line[0] != "ready":
            process.kill()
            process.wait()
            raise RuntimeError("the emulator did not start: %s" % " ".join(command))
        return cls(line[1], line[2], state_dir, token, process)

    def stop(self):
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdout.close()
        self.process = None
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def call(self, method, path, body=None, ok=(200, 201), timeout=120):
        """An admin call; `path` without /_emulator/."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.admin + "/_emulator/" + path, data, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as r:
                status, text = r.status, r.read()
        except urllib.error.HTTPError as e:
            status, text = e.code, e.read()
        answer = json.loads(text) if text.startswith((b"{", b"[")) else text.decode("utf-8", "replace")
        if status not in ok:
            raise RuntimeError("%s %s: %d %s" % (method, path, status, answer))
        return answer

    def state(self):
        return self.call("GET", "state")

    def runners(self):
        return self.state()["runners"]

    def repo(self, full_name, **more):
        return self.call("POST", "repos", {"full_name": full_name, **more})

    def job(self, repo, labels, script, **more):
        return self.call("POST", "jobs", {"repo": repo, "labels": labels, "script": script, **more})

    def cancel(self, job_id):
        return self.call("POST", "jobs/%d/cancel" % job_id)

    def log(self, job_id):
        return self.call("GET", "jobs/%d" % job_id)["log"]

    def wait_job(self, job_id, status="completed", timeout=60):
        """The job once it has the status; RuntimeError with the job in its text when it has not in time."""
        return self.call("GET", "wait?job=%d&status=%s&timeout=%s" % (job_id, status, timeout), timeout=timeout + 30)

    def wait_runner(self, runner, state, timeout=60):
        return self.call("GET", "wait?runner=%s&state=%s&timeout=%s" % (urllib.parse.quote(str(runner)), state, timeout),
                         timeout=timeout + 30)

    def fault(self, method, path, action, **more):
        return self.call("POST", "faults", {"method": method, "path": path, "action": action, **more})

    def clear_faults(self):
        return self.call("DELETE", "faults")

    def behaviour(self, behaviour, **more):
        return self.call("POST", "behaviours", {"behaviour": behaviour, **more})

    def settings(self, **more):
        return self.call("POST", "settings", more)

    def requests(self, kind="rest", since=0):
        return self.call("GET", "requests?kind=%s&since=%d" % (kind, since))

    def reset(self):
        return self.call("POST", "reset")

    def rest(self, method, path, body=None, token=None, headers=None, timeout=90):
        """A GitHub call over TLS: (status, headers with lower-case names, parsed JSON or text)."""
        token = self.token if token is None else token
        all_headers = {"User-Agent": "emulator-test", "Accept": "application/vnd.github+json", **(headers or {})}
        if token:
            all_headers.setdefault("Authorization", "Bearer " + token)
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, all_headers, method=method)
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.ca))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        try:
            with opener.open(request, timeout=timeout) as r:
                status, got, text = r.status, r.headers, r.read()
        except urllib.error.HTTPError as e:
            status, got, text = e.code, e.headers, e.read()
        try:
            value = json.loads(text)
        except ValueError:
            value = text.decode("utf-8", "replace")
        return status, {k.lower(): v for k, v in got.items()}, value
