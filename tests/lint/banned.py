#!/usr/bin/python3
"""No call of a banned function in any .c or .h of the product and its tests."""

import re
import sys

from lint import c_files, code_only, expect, read, report
from rules import BANNED_CALLS, FOLDERS

CALL = re.compile(r"(?<![\w.])(" + "|".join(BANNED_CALLS) + r")\s*\(")


def findings(path, text):
    code = code_only(text)
    return [f"{path}:{code.count(chr(10), 0, m.start()) + 1}: {m.group(1)}() is banned" for m in CALL.finditer(code)]


def self_test():
    expect(findings("x.c", "\n\tstrcpy(a, b);") == ["x.c:2: strcpy() is banned"], "a plain call")
    expect(findings("x.c", "int n = atoi (s);"), "a blank before the bracket")
    expect(not findings("x.c", "/* strcpy( */ \"system(\" 'x' // gets("), "comments and strings")
    expect(not findings("x.c", "fgets(a); my_system(b); strtoll(c); vsnprintf(d);"), "longer names")


if __name__ == "__main__":
    self_test()
    report([f for p in c_files(FOLDERS + ["tests"]) for f in findings(p, read(p))], "banned calls")
