#!/usr/bin/python3
"""Folders use each other and foreign libraries only as the table says; neither folders nor headers go in circles."""

import posixpath

from lint import c_files, expect, includes, read, report
from rules import FOLDERS, FREE_HEADERS, LIBRARY_OF_HEADER, MAY_USE


def library_of(header):
    return LIBRARY_OF_HEADER.get(header) or LIBRARY_OF_HEADER.get(header.split("/")[0])


def findings(path, text):
    folder = path.split("/")[0]
    folders, headers, libraries = MAY_USE[folder]
    if "linux" in folders:
        libraries = libraries + MAY_USE["linux"][2]
    out = []
    for line, kind, name in includes(text):
        where = f"{path}:{line}"
        library = library_of(name)
        if library:
            if library not in libraries:
                out.append(f"{where}: {folder}/ may not use {library} ({name})")
        elif kind == '"' and name not in FREE_HEADERS + headers:
            if "/" not in name:
                out.append(f'{where}: "{name}" must be written from the top, as "folder/name.h"')
            elif name.split("/")[0] not in folders + [folder]:
                out.append(f"{where}: {folder}/ may not use {name}")
    return out


def circle(graph):
    """One circle of {node: [nodes]} as a list, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for n in graph.get(node, []):
            found = visit(n)
            if found:
                return found
        path.pop()
        done.add(node)
        return None

    for node in graph:
        found = visit(node)
        if found:
            return found
    return None


def self_test():
    expect(findings("base/x.c", '\n#include "linux/log.h"') == ["base/x.c:2: base/ may not use linux/log.h"], "upwards")
    expect(findings("cli/x.c", '#include "pool/store.h"'), "more of a folder than its client")
    expect(not findings("cli/x.c", '#include "pool/client.h"'), "the client")
    expect(findings("pool/x.c", "#include <libvirt/libvirt.h>"), "a foreign library")
    expect(findings("vm/x.c", "#  include <sqlite3.h>"), "a blank after #")
    expect(findings("vm/x.c", '#include "slot.h"'), "not from the top")
    expect(not findings("base/x.c", '/* #include "linux/log.h" */'), "a comment")
    expect(circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"], "a circle")
    expect(circle({"a": ["b", "c"], "b": ["c"]}) is None, "no circle")


if __name__ == "__main__":
    self_test()
    files = {p: read(p) for p in c_files(FOLDERS)}
    found = [f for p, text in files.items() for f in findings(p, text)]
    used = {f: sorted({n.split("/")[0] for p, t in files.items() if p.startswith(f + "/")
                       for _, k, n in includes(t) if k == '"' and "/" in n} - {f}) for f in FOLDERS}
    headers = {p: [n for _, k, n in includes(t) if k == '"'] for p, t in files.items() if p.endswith(".h")}
    for graph, what in ((used, "folders"), (headers, "headers")):
        c = circle(graph)
        if c:
            found.append(f"{what} go in a circle: {' -> '.join(c)}")
    found += [f"{f}/ has no row in the table" for f in FOLDERS if f not in MAY_USE]
    report(found, "folders")
