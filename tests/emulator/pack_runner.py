#!/usr/bin/python3
"""Packs runner/ as actions/runner's release asset is packed: no top directory, the same names. Prints the SHA-256.

The same input gives the same bytes, so that a layer can pin the sum.
"""
import argparse
import gzip
import hashlib
import io
import os
import sys
import tarfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runner")
MTIME = 1790000000
VERSION_FILE = "bin/standin.version"


def entries(source):
    """Relative paths below `source`, sorted, folders first where they contain others."""
    found = []
    for folder, folders, files in os.walk(source):
        folders.sort()
        found += [os.path.relpath(os.path.join(folder, n), source) for n in folders + files]
    return sorted(found)


def pack(out, version="2.338.0", source=SOURCE):
    """Writes the tarball and returns its SHA-256."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in [""] + entries(source):
            path = os.path.join(source, name)
            info = tarfile.TarInfo("./" + name)
            info.mtime, info.uid, info.gid, info.uname, info.gname = MTIME, 0, 0, "", ""
            if os.path.isdir(path):
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
                continue
            with open(path, "rb") as f:
                data = (version + "\n").encode() if name == VERSION_FILE else f.read()
            info.size = len(data)
            info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(info, io.BytesIO(data))
    data = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=data, mode="wb", mtime=0) as z:
        z.write(raw.getvalue())
    with open(out + ".new", "wb") as f:
        f.write(data.getvalue())
    os.replace(out + ".new", out)
    return hashlib.sha256(data.getvalue()).hexdigest()


def main(argv):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", help="file, or a folder that gets actions-runner-linux-ARCH-VERSION.tar.gz")
    p.add_argument("--arch", choices=("x64", "arm64"), default="x64")
    p.add_argument("--version", default="2.338.0")
    o = p.parse_args(argv)
    if os.path.isdir(o.out):
        o.out = os.path.join(o.out, "actions-runner-linux-%s-%s.tar.gz" % (o.arch, o.version))
    print(pack(o.out, o.version))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
