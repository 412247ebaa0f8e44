"""Scripted faults: which requests they hit, and what becomes of the answer."""
import base64
import itertools
import json
import re

from .web import Response

ACTIONS = ("delay", "answer", "answer-after", "drop-before", "drop-after", "raw", "truncate", "patch", "drip", "rate-limit")
FAULTS_MAX = 1000
LIMIT_WORDS = {
    "primary": "API rate limit exceeded for user ID 1.",
    "secondary": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
}


class Fault:
    def __init__(self, number, spec):
        self.id, self.spec = number, spec
        self.action = spec.get("action", "delay")
        if self.action not in ACTIONS:
            raise ValueError("action: one of %s" % ", ".join(ACTIONS))
        try:
            self.method, self.path = re.compile(spec.get("method", "")), re.compile(spec.get("path", ""))
        except re.error as e:
            raise ValueError("method or path is no regular expression: %s" % e) from e
        self.left, self.skip, self.hits = int(spec.get("count", 1)), int(spec.get("skip", 0)), 0
        self.delay = float(spec.get("delay_ms", 0)) / 1000
        self.data = base64.b64decode(spec.get("data_b64", ""))

    def show(self):
        return {**self.spec, "id": self.id, "left": self.left, "hits": self.hits}

    def takes(self, request):
        target = request.path + ("?" + request.query_text if request.query_text else "")
        if self.left == 0 or not (self.method.fullmatch(request.method) if self.method.pattern else True):
            return False
        if not self.path.search(target):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.left -= self.left > 0
        self.hits += 1
        return True

    def acts(self):
        """Does the request still do what it asks for?"""
        return self.action in ("delay", "answer-after", "drop-after", "truncate", "patch", "drip") or \
            (self.action == "raw" and bool(self.spec.get("after")))

    def body(self):
        body = self.spec.get("body", "")
        return body.encode() if isinstance(body, str) else json.dumps(body).encode()

    def replace(self, response, rate):
        """The answer to send. `response` is None when the request did not act."""
        s = self.spec
        if self.action in ("answer", "answer-after"):
            kind = "text/plain" if isinstance(s.get("body", ""), str) else "application/json; charset=utf-8"
            return Response(int(s.get("status", 500)), self.body(), {"Content-Type": kind, **s.get("headers", {})})
        if self.action == "rate-limit":
            return self._limited(rate)
        if self.action == "patch":
            response.headers.update(s.get("headers", {}))
            if "json" in s:
                response.body = json.dumps({**json.loads(response.body or b"{}"), **s["json"]}).encode()
            if "status" in s:
                response.status = int(s["status"])
        return response

    def _limited(self, rate):
        kind, s = self.spec.get("kind", "primary"), self.spec
        headers = {"x-ratelimit-" + k: str(v) for k, v in rate.items()}
        if kind == "primary":
            headers.update({"x-ratelimit-remaining": "0", "x-ratelimit-used": headers["x-ratelimit-limit"]})
        elif kind == "secondary":
            headers["retry-after"] = str(s.get("retry_after", 60))
        headers.update(s.get("headers", {}))
        words = LIMIT_WORDS["primary" if kind == "primary" else "secondary"]
        return Response.error(int(s.get("status", 403)), words, headers)


class Faults:
    def __init__(self, lock):
        self.lock, self.rules, self.numbers = lock, [], itertools.count(1)

    def add(self, spec):
        with self.lock:
            if len(self.rules) >= FAULTS_MAX:
                raise ValueError("no more than %d faults" % FAULTS_MAX)
            self.rules.append(Fault(next(self.numbers), spec))
            return self.rules[-1]

    def remove(self, number=None):
        with self.lock:
            self.rules = [f for f in self.rules if number is not None and f.id != number]

    def show(self):
        with self.lock:
            return [f.show() for f in self.rules]

    def match(self, request):
        with self.lock:
            return next((f for f in self.rules if f.takes(request)), None)
