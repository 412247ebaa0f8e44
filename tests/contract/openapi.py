"""GitHub's OpenAPI description: where it comes from, and how a request or an answer is checked against it."""
import fcntl
import json
import os
import re
import subprocess
import tarfile
import tempfile
from urllib.parse import unquote

import jsonschema

PACKAGE, VERSION = "@octokit/openapi", "23.0.2"
MEMBER = "package/generated/api.github.com.json"
ERROR = {"$ref": "#/components/schemas/basic-error"}
# Calls GitHub documents elsewhere than in this version of the description; (method, path) -> answers by status.
ELSEWHERE = {
    ("get", scope + "/actions/runners/deprecations/{version}"): {"200": {
        "type": "object", "required": ["runner_version"], "properties": {
            "runner_version": {"type": "string"},
            "registration_deprecates_at": {"type": "string", "format": "date-time", "nullable": True},
            "runtime_deprecates_at": {"type": "string", "format": "date-time", "nullable": True}}}}
    for scope in ("/repos/{owner}/{repo}", "/orgs/{org}")}


class Unavailable(Exception):
    """The description cannot be had; the text says why and what to do."""


def cache_dir():
    return os.environ.get("BOXERY_TEST_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "boxery-test")


def _npm(*args, cwd):
    try:
        return subprocess.run(("npm",) + args, cwd=cwd, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Unavailable("npm %s: %s; install Debian's npm package, or set BOXERY_TEST_CACHE to a filled cache"
                          % (" ".join(args), e)) from e


def _download(target):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as folder:
        for wanted in (PACKAGE + "@" + VERSION, PACKAGE):
            done = _npm("pack", "--loglevel=error", wanted, cwd=folder)
            if done.returncode == 0:
                break
        else:
            raise Unavailable("npm could not fetch %s: %s; the contract test needs the npm registry or a filled cache (%s)"
                              % (PACKAGE, " ".join(done.stderr.split("\n")[:2]).strip() or "no reason given", target))
        tarball = os.path.join(folder, done.stdout.strip().splitlines()[-1])
        with tarfile.open(tarball) as tar, open(os.path.join(folder, "d"), "wb") as out:
            source = tar.extractfile(MEMBER)
            while chunk := source.read(1 << 20):
                out.write(chunk)
        os.replace(os.path.join(folder, "d"), target)


def load():
    """The description, from the cache or from npm. Unavailable when neither has it."""
    folder = cache_dir()
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "octokit-openapi-%s.json" % VERSION)
    with open(target + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(target):
            _download(target)
    with open(target) as f:
        return Description(json.load(f))


def _nullable(base):
    """OpenAPI 3.0's nullable: null passes whatever the keyword says."""
    def check(validator, value, instance, schema):
        if instance is None and schema.get("nullable"):
            return
        yield from base(validator, value, instance, schema) or ()
    return check


_BASE = jsonschema.Draft4Validator
_Validator = jsonschema.validators.extend(_BASE, {
    k: _nullable(_BASE.VALIDATORS[k]) for k in ("type", "enum", "oneOf", "anyOf", "allOf", "format")})
_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time")
def _date_time(value):
    return not isinstance(value, str) or bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value))


@_FORMATS.checks("uri")
def _uri(value):
    return not isinstance(value, str) or bool(re.match(r"[a-z][a-z0-9+.-]*:", value))


class Description:
    def __init__(self, document):
        self.document = document
        self.resolver = jsonschema.RefResolver("", document)
        self.paths = []
        for path, operations in list(document["paths"].items()) + [(p, None) for _, p in ELSEWHERE]:
            pattern = "".join("(?P<%s>[^/]+)" % part[1:-1].replace("-", "_") if part.startswith("{") else re.escape(part)
                              for part in re.split(r"(\{[^}]*\})", path))
            self.paths.append((path.count("{"), re.compile(pattern), path, operations))
        # Literal parts win over named ones: .../runners/downloads is no {runner_id}.
        self.paths.sort(key=lambda p: p[0])

    def deref(self, node):
        while isinstance(node, dict) and "$ref" in node:
            node = self.resolver.resolve(node["$ref"])[1]
        return node

    def operation(self, method, path):
        """(documented path, operation, path values); the operation is None when the method is not documented for the path."""
        method, known = method.lower(), None
        for _, pattern, documented, operations in self.paths:
            match = pattern.fullmatch(path)
            if not match:
                continue
            known = known or documented
            if operations is None and (method, documented) in ELSEWHERE:
                answers = ELSEWHERE[method, documented]
                return documented, {"parameters": [], "responses": {
                    s: {"content": {"application/json": {"schema": x}}} for s, x in answers.items()}}, match.groupdict()
            if operations and method in operations:
                return documented, operations[method], match.groupdict()
        return known, None, {}

    def parameters(self, operation, where):
        return {p["name"]: p for p in map(self.deref, operation.get("parameters", [])) if p["in"] == where}

    def request_schema(self, operation):
        body = self.deref(operation.get("requestBody"))
        return body["content"]["application/json"]["schema"] if body else None

    def response_schema(self, operation, status):
        """(documented, schema or None). A status the call does not name must at least look like GitHub's error."""
        response = self.deref(operation["responses"].get(str(status)))
        if response is None:
            return False, (ERROR if status >= 400 else None)
        content = response.get("content", {})
        return True, content["application/json"]["schema"] if "application/json" in content else None

    def errors(self, schema, value):
        """Sentences on what the schema forbids in the value."""
        found = _Validator(schema, resolver=self.resolver, format_checker=_FORMATS).iter_errors(value)
        return ["%s: %s" % ("/".join(map(str, e.absolute_path)) or ".", e.message[:200]) for e in found]

    def unknown(self, schema, value, at=""):
        """Fields the schema does not know: not forbidden, but nothing GitHub sends or reads."""
        schema = self.deref(schema)
        if isinstance(value, list):
            return [u for i, v in enumerate(value) for u in self.unknown(schema.get("items", {}), v, "%s/%d" % (at, i))]
        parts = [self.deref(s) for k in ("oneOf", "anyOf", "allOf") for s in schema.get(k, ())] + [schema]
        known = {k: v for p in parts for k, v in p.get("properties", {}).items()}
        if not isinstance(value, dict) or not known or any(p.get("additionalProperties") for p in parts):
            return []
        return [u for k, v in value.items()
                for u in ([at + "/" + k] if k not in known else self.unknown(known[k], v, at + "/" + k))]


def plain_path(path):
    """Without the Enterprise Server's prefix, decoded."""
    return unquote(path[len("/api/v3"):] if path.startswith("/api/v3/") else path)
