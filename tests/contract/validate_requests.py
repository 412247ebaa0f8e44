#!/usr/bin/python3
"""Checks requests that the emulator has logged against GitHub's OpenAPI description.

validate_requests.py FILE|-|http://ADMIN-ADDRESS:PORT        one line per fault, exit 1 when there is one
Requests that were meant to be wrong are left out with --except REGEX (searched in "METHOD PATH").
"""
import argparse
import json
import os
import re
import sys
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import openapi  # noqa: E402

VERSIONS = ("2022-11-28", "2026-03-10")


def _value_errors(description, schema, text):
    """A path or query value is text; its schema says what it must read as."""
    schema = description.deref(schema)
    if schema.get("type") in ("integer", "number"):
        if not re.fullmatch(r"-?\d+", text):
            return ["%r is no number" % text]
        return description.errors(schema, int(text))
    if schema.get("type") == "boolean":
        return [] if text in ("true", "false") else ["%r is neither true nor false" % text]
    return description.errors(schema, text)


def _body_errors(description, operation, entry):
    schema, body = description.request_schema(operation), entry["body"]
    if schema is None:
        return ["has a body, the call takes none"] if body else []
    if not body:
        return ["has no body"] if description.deref(operation["requestBody"]).get("required") else []
    try:
        value = json.loads(body)
    except ValueError as e:
        return ["the body is no JSON: %s" % e]
    found = ["body " + e for e in description.errors(schema, value)]
    found += ["body %s: unknown field" % u for u in description.unknown(schema, value)]
    if "json" not in entry["headers"].get("content-type", ""):
        found.append("the body's content-type is %r" % entry["headers"].get("content-type"))
    return found


def check_one(description, entry):
    """Sentences on what is wrong with one logged request."""
    headers, found = entry["headers"], []
    if not headers.get("user-agent"):
        found.append("no User-Agent")
    if headers.get("accept") not in ("application/vnd.github+json", "application/json"):
        found.append("Accept is %r, not application/vnd.github+json" % headers.get("accept"))
    if headers.get("x-github-api-version", VERSIONS[0]) not in VERSIONS:
        found.append("X-GitHub-Api-Version is %r" % headers["x-github-api-version"])
    path, operation, values = description.operation(entry["method"], openapi.plain_path(entry["path"]))
    if operation is None:
        return found + (["the method is not documented for %s" % path] if path else ["no such call"])
    for where, given in (("path", values), ("query", entry["query"])):
        known = description.parameters(operation, where)
        for name, text in given.items():
            if name in known:
                found += ["%s %s: %s" % (where, name, e) for e in _value_errors(description, known[name]["schema"], text)]
            elif where == "query":
                found.append("query %s: unknown" % name)
        found += ["%s %s: missing" % (where, n) for n, p in known.items() if p.get("required") and n not in given]
    if "per_page" in entry["query"] and entry["query"]["per_page"].isdigit() and int(entry["query"]["per_page"]) > 100:
        found.append("query per_page: at most 100")
    return found + _body_errors(description, operation, entry)


def check(description, entries):
    """One sentence per fault, over all entries."""
    return ["%s %s: %s" % (e["method"], e["path"], fault) for e in entries for fault in check_one(description, e)]


def _read(source):
    if source.startswith("http://"):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(source.rstrip("/") + "/_emulator/requests?kind=rest", timeout=30) as r:
            return json.load(r)
    if source == "-":
        return json.load(sys.stdin)
    with open(source) as f:
        return json.load(f)


def main(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("--except", dest="but", action="append", default=[])
    o = p.parse_args(argv)
    try:
        description = openapi.load()
    except openapi.Unavailable as e:
        print("validate_requests: %s" % e, file=sys.stderr)
        return 2
    entries = [e for e in _read(o.source) if not any(re.search(b, "%s %s" % (e["method"], e["path"])) for b in o.but)]
    faults = check(description, entries)
    for f in faults:
        print(f)
    print("%d requests, %d faults" % (len(entries), len(faults)))
    if not entries:
        print("nothing to check is no success", file=sys.stderr)
    return 1 if faults or not entries else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
