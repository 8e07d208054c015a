"""The seccomp allow-list of a worker, as raw BPF: compute, time, own memory, the one socket; nothing else.

Other architectures (and the x32 numbers) kill the process; anything not listed answers EPERM, files answer EACCES so that
Python turns it into a PermissionError. Executable memory is refused, so machine code cannot be made after preloading.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Sequence

from sandbox.isolation.kernel import IsolationError, call, prctl
from sandbox.isolation.syscalls import ARCHITECTURES, Architecture

# Calls allowed with any arguments. No call here creates a descriptor, a process, a mapping of a file, or touches another
# process. `write` reaches only the descriptors the worker was given; `rt_sigaction` and timers reach only itself.
ALLOWED: tuple[str, ...] = (
    "read", "write", "close", "lseek", "poll", "ppoll", "select", "pselect6", "brk", "munmap", "mremap", "madvise",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "sched_yield", "nanosleep", "gettimeofday", "time",
    "times", "getitimer", "setitimer", "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getrusage",
    "getrlimit", "sysinfo", "uname", "futex", "set_robust_list", "rseq", "getcpu", "getrandom", "restart_syscall", "exit",
    "exit_group",
)  # fmt: skip
# Allowed for the caller itself: a negative clock is another process's processor time, and tells that it exists.
CLOCKS: tuple[str, ...] = ("clock_gettime", "clock_getres", "clock_nanosleep")
# What a zygote needs besides: to fork workers, hand them their descriptors, put their layers on, and end and reap them.
# The interpreter looks at descriptors by `fstat`, which newer C libraries ask as `newfstatat`; no file can be opened.
ZYGOTE_TOO: tuple[str, ...] = (
    "sendmsg", "recvmsg", "sendto", "recvfrom", "dup", "dup2", "dup3", "fcntl", "fork", "vfork", "wait4", "kill", "setrlimit",
    "prlimit64", "seccomp", "fstat", "newfstatat",
)  # fmt: skip
# Refused with EACCES: Python reports PermissionError, and importlib then says "no such module" instead of failing oddly.
FILES: tuple[str, ...] = (
    "open", "openat", "openat2", "stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2",
    "readlink", "readlinkat", "getcwd", "execve", "execveat",
)  # fmt: skip
# Refused with ENOSYS: the C library falls back to `clone`, which is refused with EPERM.
ABSENT: tuple[str, ...] = ("clone3",)

_LD_W_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NR, _ARCH, _ARGS = 0, 4, 16
_X32_BIT = 0x40000000
_ANY_NAMESPACE = 0x7E020080  # CLONE_NEWUSER, -PID, -NET, -NS, -UTS, -IPC, -CGROUP, -TIME
_PROT_EXEC = 4
_NEGATIVE = 0x80000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2

_Instruction = tuple[int, int, int, int]


def this_architecture() -> Architecture:
    """Tables for this machine; raises `IsolationError` for a machine type without tables."""
    machine = platform.machine().lower()
    if machine not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise IsolationError(f"no seccomp tables for {machine} ({struct.calcsize('P') * 8}-bit)")
    return ARCHITECTURES[machine]


def worker_filter(architecture: Architecture) -> bytes:
    """BPF program of a sealed worker for one architecture."""
    numbers = architecture.numbers
    program = [*_opening(architecture), *_allow(numbers, ALLOWED), *_within_itself(numbers)]
    # Reading one's own limits is harmless: the process must be 0, a new-limit pointer (third argument, both words) null.
    program += [
        (_JEQ, 0, 8, numbers["prlimit64"]),
        (_LD_W_ABS, 0, 0, _ARGS),
        (_JEQ, 0, 5, 0),
        (_LD_W_ABS, 0, 0, _ARGS + 2 * 8),
        (_JEQ, 0, 3, 0),
        (_LD_W_ABS, 0, 0, _ARGS + 2 * 8 + 4),
        (_JEQ, 0, 1, 0),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
    ]
    return _closing(numbers, program)


def zygote_filter(architecture: Architecture) -> bytes:
    """BPF program of a zygote: what its workers may, and to fork them; no files, no sockets, no programs, no namespaces."""
    numbers = architecture.numbers
    program = [*_opening(architecture), *_allow(numbers, (*ALLOWED, *ZYGOTE_TOO)), *_within_itself(numbers)]
    program += [
        (_JEQ, 0, 4, numbers["clone"]),
        (_LD_W_ABS, 0, 0, _ARGS),
        (_JSET, 0, 1, _ANY_NAMESPACE),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
        (_RET, 0, 0, _ALLOW),
        (_JEQ, 0, 6, numbers["prctl"]),
        (_LD_W_ABS, 0, 0, _ARGS),
        (_JEQ, 3, 0, _PR_SET_PDEATHSIG),
        (_JEQ, 2, 0, _PR_SET_NO_NEW_PRIVS),
        (_JEQ, 1, 0, _PR_SET_SECCOMP),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
        (_RET, 0, 0, _ALLOW),
    ]
    return _closing(numbers, program)


def _opening(architecture: Architecture) -> list[_Instruction]:
    """Kill for any other architecture; load the call's number."""
    program: list[_Instruction] = [
        (_LD_W_ABS, 0, 0, _ARCH),
        (_JEQ, 1, 0, architecture.audit),
        (_RET, 0, 0, _KILL),
        (_LD_W_ABS, 0, 0, _NR),
    ]
    if architecture.name == "x86_64":
        program += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _KILL)]
    return program


def _allow(numbers: dict[str, int], names: Sequence[str]) -> list[_Instruction]:
    program: list[_Instruction] = []
    for name in names:
        if name in numbers:
            program += [(_JEQ, 0, 1, numbers[name]), (_RET, 0, 0, _ALLOW)]
    return program


def _within_itself(numbers: dict[str, int]) -> list[_Instruction]:
    """No executable memory, no clock and no processors of another process: bits of an argument's low word are refused."""
    program: list[_Instruction] = []
    refused = [("mmap", 2, _PROT_EXEC), ("mprotect", 2, _PROT_EXEC), *((name, 0, _NEGATIVE) for name in CLOCKS)]
    for name, argument, bits in (*refused, ("sched_getaffinity", 0, 0xFFFFFFFF)):
        program += [
            (_JEQ, 0, 4, numbers[name]),
            (_LD_W_ABS, 0, 0, _ARGS + argument * 8),
            (_JSET, 0, 1, bits),
            (_RET, 0, 0, _ERRNO | errno.EPERM),
            (_RET, 0, 0, _ALLOW),
        ]
    return program


def _closing(numbers: dict[str, int], program: list[_Instruction]) -> bytes:
    """Refuse the rest, each call with the answer its callers understand; as bytes for the kernel."""
    program = [*program, *_refuse(numbers, FILES, errno.EACCES), *_refuse(numbers, ABSENT, errno.ENOSYS)]
    program.append((_RET, 0, 0, _ERRNO | errno.EPERM))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _refuse(numbers: dict[str, int], names: Sequence[str], code: int) -> list[_Instruction]:
    instructions: list[_Instruction] = []
    for name in names:
        if name in numbers:
            instructions += [(_JEQ, 0, 1, numbers[name]), (_RET, 0, 0, _ERRNO | code)]
    return instructions


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def no_new_privileges() -> None:
    """Set no_new_privs on this process; raises `IsolationError`."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")


def install(program: bytes) -> None:
    """Install a BPF program on this (single-threaded) process; raises `IsolationError`. There is no way back."""
    block = _Program(len(program) // 8, program)
    zero = ctypes.c_ulong(0)
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    call("prctl", _PR_SET_SECCOMP, mode, ctypes.byref(block), zero, zero, what="seccomp filter")


def die_with_parent(expected_parent: int) -> None:
    """Ask for SIGKILL when the parent (thread) ends; raises `IsolationError` when it is already gone.

    A change of user id undoes it, so it is asked for again after one. `expected_parent` is 0 for a parent in an outer
    process namespace.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "parent-death signal")
    if os.getppid() != expected_parent:
        raise IsolationError("the parent process is gone")
