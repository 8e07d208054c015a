"""System call numbers per architecture, from the kernel's tables, for the calls the filter names."""

from __future__ import annotations

from dataclasses import dataclass

AUDIT_ARCH_X86_64 = 0xC000003E
AUDIT_ARCH_AARCH64 = 0xC00000B7


@dataclass(frozen=True)
class Architecture:
    """One machine type: its audit number, and call name to number."""

    name: str
    audit: int
    numbers: dict[str, int]


_X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "access": 21, "ioctl": 16, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "dup2": 33,
    "nanosleep": 35, "getitimer": 36, "setitimer": 38, "getpid": 39, "socket": 41, "sendto": 44, "recvfrom": 45,
    "sendmsg": 46, "recvmsg": 47, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "exit": 60,
    "wait4": 61, "kill": 62, "uname": 63, "fcntl": 72, "getcwd": 79, "readlink": 89, "gettimeofday": 96,
    "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107,
    "getegid": 108, "getppid": 110, "sigaltstack": 131, "prctl": 157, "setrlimit": 160, "gettid": 186, "time": 201,
    "futex": 202, "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "tgkill": 234, "openat": 257, "newfstatat": 262, "readlinkat": 267,
    "faccessat": 269, "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "dup3": 292, "prlimit64": 302,
    "getcpu": 309, "seccomp": 317, "getrandom": 318, "execveat": 322, "membarrier": 324, "statx": 332, "rseq": 334,
    "clone3": 435, "openat2": 437, "faccessat2": 439, "waitid": 247, "close_range": 436,
    "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip

_AARCH64 = {
    "getcwd": 17, "dup": 23, "dup3": 24, "fcntl": 25, "ioctl": 29, "faccessat": 48, "openat": 56, "close": 57,
    "lseek": 62, "read": 63, "write": 64, "pselect6": 72, "ppoll": 73, "readlinkat": 78, "newfstatat": 79,
    "fstat": 80, "exit": 93, "exit_group": 94, "waitid": 95, "futex": 98, "set_robust_list": 99, "nanosleep": 101,
    "getitimer": 102, "setitimer": 103, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
    "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "kill": 129, "tgkill": 131,
    "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "uname": 160,
    "getrlimit": 163, "setrlimit": 164, "getrusage": 165, "prctl": 167, "getcpu": 168, "gettimeofday": 169,
    "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178,
    "sysinfo": 179, "socket": 198, "socketpair": 199, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212,
    "brk": 214, "munmap": 215, "mremap": 216, "clone": 220, "execve": 221, "mmap": 222, "mprotect": 226,
    "madvise": 233, "wait4": 260, "prlimit64": 261, "seccomp": 277, "getrandom": 278, "execveat": 281,
    "membarrier": 283, "statx": 291, "rseq": 293, "clone3": 435, "close_range": 436, "openat2": 437,
    "faccessat2": 439, "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip

ARCHITECTURES: dict[str, Architecture] = {
    "x86_64": Architecture("x86_64", AUDIT_ARCH_X86_64, _X86_64),
    "amd64": Architecture("x86_64", AUDIT_ARCH_X86_64, _X86_64),
    "aarch64": Architecture("aarch64", AUDIT_ARCH_AARCH64, _AARCH64),
    "arm64": Architecture("aarch64", AUDIT_ARCH_AARCH64, _AARCH64),
}
