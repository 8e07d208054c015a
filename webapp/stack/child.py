"""Becomes another program, under two promises: it dies with its parent, and it has the identity asked for.

Run as a script, standard library only: ``python -I -S child.py DEATH_SIGNAL PARENT_PID IDENTITY PROGRAM [ARGUMENT …]``.
A small program of its own instead of a ``preexec_fn``, so that nothing but ``exec`` happens between fork and exec in a
parent that may have threads.

IDENTITY is ``same``; ``namespace:UID:GID`` (a user namespace in which the caller appears as UID, so that PostgreSQL,
which refuses to run as root, runs while every file keeps its owner); or ``drop:UID:GID`` (really become that user).
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
EXIT_CANNOT_START = 125

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Never returns: either becomes the program or exits with 125 and one line on stderr."""
    death_signal, parent_pid, identity, *program = arguments
    try:
        take_identity(identity)
        # After the change of identity: the kernel clears the parent-death signal when credentials change.
        die_with_parent(signal.Signals[death_signal], parent_pid=int(parent_pid))
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execv(program[0], program)  # noqa: S606  no shell is wanted here
    except OSError as error:
        print(f"cannot start {program[0]} as {identity}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_CANNOT_START)


def take_identity(identity: str) -> None:
    """Apply an IDENTITY as the module text describes it; OSError when the kernel refuses."""
    kind, _, numbers = identity.partition(":")
    if kind == "same":
        return
    uid, gid = (int(number) for number in numbers.split(":"))
    if kind == "namespace":
        outer_uid, outer_gid = os.geteuid(), os.getegid()
        _call(_libc.unshare, CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")  # required before an unprivileged gid_map
        Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")
    elif kind == "drop":
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    else:
        raise OSError(f"unknown identity {identity!r}")


def die_with_parent(death_signal: signal.Signals, *, parent_pid: int) -> None:
    """Have the kernel send `death_signal` to this process when the thread that forked it ends.

    `parent_pid` closes the race in which the parent died before the request was made.
    """
    _call(_libc.prctl, PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), death_signal)


def _call(function: "ctypes._NamedFuncPointer", *arguments: int) -> None:
    if function(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
