"""The rules as data. What they mean and why is in docs/architecture.md, sections 2 and 3; the scripts beside check them.

A rule is changed here only together with that page.
"""

# Folders with code of the product; tests/ may use everything and is looked at only where a check says so.
FOLDERS = ["base", "link", "linux", "jit", "pool", "vm", "ssh", "github", "manager", "layers", "cli", "controller", "guest"]

# folder -> (folders it may use, single headers of others it may use, foreign libraries it may use).
# Whoever may use linux/ may use what linux/ is made of: libsystemd and libsodium.
MAY_USE = {
    "base": ([], [], []),
    "link": (["base"], [], ["jansson"]),
    "linux": (["base"], [], ["systemd", "sodium"]),
    "jit": (["base", "linux"], [], []),
    "pool": (["base", "linux", "jit"], ["vm/proto.h", "ssh/proto.h"], ["sqlite3", "jansson"]),
    "vm": (["base", "linux"], [], ["libvirt", "jansson", "conntrack"]),
    "ssh": (["base", "linux", "jit"], [], ["libssh2", "seccomp", "openssl"]),
    "github": (["base", "linux", "jit"], [], ["curl", "jansson", "openssl"]),
    "manager": (["base", "link", "linux", "jit"], ["github/proto.h", "pool/client.h", "pool/proto.h", "pool/state.h"],
                ["yaml", "jansson"]),
    "layers": (["base", "linux"], [], ["yaml", "curl", "openssl"]),
    "controller": (["base", "link"], ["cli/options.h"], ["jansson"]),
    "guest": (["base"], [], ["sodium"]),
    "cli": (["base", "linux"], ["manager/proto.h", "pool/client.h", "pool/proto.h", "pool/state.h"], ["jansson"]),
}
# Generated, or nobody's in particular.
FREE_HEADERS = ["boxery-config.h"]

# Header (or its folder) -> library, for every foreign library of the product.
LIBRARY_OF_HEADER = {
    "systemd": "systemd", "sodium.h": "sodium", "sqlite3.h": "sqlite3", "jansson.h": "jansson", "libvirt": "libvirt",
    "libnetfilter_conntrack": "conntrack",
    "libssh2.h": "libssh2", "libssh2_sftp.h": "libssh2", "seccomp.h": "seccomp", "openssl": "openssl", "curl": "curl",
    "yaml.h": "yaml",
}

# Executable -> libraries it may be linked with, besides the C library. Anything else is refused.
C_LIBRARY = ["libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64", "libgcc_s"]
SANITIZERS = ["libasan", "libubsan", "liblsan"]
LINKED = {
    "begin": [], # of the guest, static
    "boxery": ["libjansson"],
    "boxery-host": ["libjansson", "libsystemd", "libsodium"],
    "boxery-keeper": ["libsqlite3", "libsystemd", "libsodium", "libjansson"],
    "boxery-vm": ["libvirt", "libvirt-qemu", "libsystemd", "libsodium", "libjansson", "libnetfilter_conntrack"],
    "boxery-deliver": ["libssh2", "libseccomp", "libcrypto", "libsystemd", "libsodium"],
    "boxery-runners": ["libyaml-0", "libjansson", "libsystemd", "libsodium"],
    "boxery-github": ["libcurl", "libjansson", "libcrypto", "libsystemd", "libsodium"],
    "boxery-fetch": ["libcurl", "libcrypto", "libsystemd", "libsodium"],
    "boxery-build": ["libyaml-0", "libcrypto", "libsystemd", "libsodium"],
}
# What must never appear, whatever the table above says one day: the other half of the same rule.
NEVER_LINKED = {
    "begin": ["libsodium", "libsystemd", "libcrypto", "libc"],
    "boxery": ["libsystemd", "libsodium", "libvirt", "libsqlite3", "libcurl", "libssh2"],
    "boxery-host": ["libvirt", "libsqlite3", "libcurl", "libssh2"],
    "boxery-keeper": ["libvirt", "libcurl", "libssh2"],
    "boxery-vm": ["libcurl", "libssh2", "libsqlite3"],
    "boxery-deliver": ["libcurl", "libvirt", "libsqlite3"],
    "boxery-runners": ["libvirt", "libsqlite3", "libcurl", "libssh2"],
    "boxery-github": ["libvirt", "libsqlite3", "libssh2"],
    "boxery-fetch": ["libvirt", "libsqlite3", "libssh2"],
    "boxery-build": ["libvirt", "libsqlite3", "libssh2", "libcurl"],
}

# Calls without a bound, with hidden state or with a shell; strtoull and snprintf stand in for most of them.
BANNED_CALLS = [
    "sprintf", "vsprintf", "strcpy", "stpcpy", "strcat", "strncpy", "atoi", "atol", "atoll", "atof", "strtol",
    "gets", "alloca", "system", "popen", "strtok", "tmpnam", "mktemp",
]

# What must build on macOS: base/ and everything that `boxery` consists of.
PORTABLE_EXECUTABLE = "boxery"
PORTABLE_HEADERS = [
    # ISO C
    "assert.h", "ctype.h", "errno.h", "inttypes.h", "limits.h", "locale.h", "setjmp.h", "signal.h", "stdarg.h",
    "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "time.h",
    # POSIX
    "dirent.h", "fcntl.h", "fnmatch.h", "glob.h", "grp.h", "libgen.h", "netdb.h", "poll.h", "pwd.h", "regex.h", "spawn.h",
    "strings.h", "syslog.h", "termios.h", "unistd.h", "arpa/inet.h", "netinet/in.h", "sys/mman.h", "sys/select.h",
    "sys/socket.h", "sys/stat.h", "sys/statvfs.h", "sys/time.h", "sys/types.h", "sys/uio.h", "sys/un.h", "sys/utsname.h",
    "sys/wait.h",
    # on both systems, though in no standard
    "getopt.h", "sys/ioctl.h", "sys/file.h",
    # a library; who may use it is said above
    "jansson.h",
]
# Names of portable headers that macOS nevertheless lacks.
NOT_PORTABLE = [
    "accept4", "canonicalize_file_name", "clock_nanosleep", "clone", "close_range", "dup3", "epoll_create1", "eventfd",
    "execvpe", "explicit_bzero", "fallocate", "fexecve", "get_current_dir_name", "getrandom", "memfd_create", "mempcpy",
    "memrchr", "pidfd_open", "pipe2", "ppoll", "prctl", "program_invocation_name", "program_invocation_short_name",
    "qsort_r", "rawmemchr", "renameat2", "secure_getenv", "sigtimedwait", "sigwaitinfo", "splice", "strchrnul",
    "strverscmp", "syncfs", "timerfd_create", "unshare", "MSG_CMSG_CLOEXEC", "O_PATH", "O_TMPFILE", "POLLRDHUP",
    "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED",
]
