"""Looks for secrets where they must not be: argv and environment of every process, and files."""
import os

CHUNK = 1 << 20


def in_processes(needles, skip=()):
    """Places [(pid, program, "cmdline" or "environ", needle)] of this machine; skip: pids that may know."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) in skip or int(pid) == os.getpid():
            continue
        for what in ("cmdline", "environ"):
            try:
                with open("/proc/%s/%s" % (pid, what), "rb") as f:
                    content = f.read()
                program = os.path.basename(os.readlink("/proc/%s/exe" % pid))
            except OSError:
                continue
            found += [(int(pid), program, what, n) for n in needles if n.encode() in content]
    return found


def in_files(folder, needles, skip=lambda path: False):
    """Places [(path, needle)] below folder; sockets and links are passed over."""
    found = []
    encoded = [(n, n.encode()) for n in needles]
    keep = max(len(b) for _, b in encoded)
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.islink(path) or not os.path.isfile(path) or skip(path):
                continue
            try:
                with open(path, "rb") as f:
                    tail = b""
                    while chunk := f.read(CHUNK):
                        window = tail + chunk
                        found += [(path, n) for n, b in encoded if b in window]
                        tail = window[-keep:]
            except OSError:
                continue
    return found


def in_memory(pid, needles):
    """Needles in a process's own memory (anonymous and private writable mappings)."""
    found = set()
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in maps:
            span, access = line.split()[:2]
            if "r" not in access or "w" not in access:
                continue
            begin, end = (int(x, 16) for x in span.split("-"))
            try:
                memory.seek(begin)
                content = memory.read(end - begin)
            except (OSError, OverflowError, ValueError):
                continue
            found |= {n for n in needles if n.encode() in content}
    return found
