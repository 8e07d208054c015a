"""The C library with checked results."""

from __future__ import annotations

import ctypes
import os


class IsolationError(Exception):
    """A layer could not be put on; the process must not run generated code."""


_libc = ctypes.CDLL(None, use_errno=True)
_libc_holding_the_gil = ctypes.PyDLL(None, use_errno=True)


def call(name: str, *arguments: object, what: str) -> int:
    """Call a C library function; raises `IsolationError` (with `what` and the reason) when it answers -1."""
    result = int(getattr(_libc, name)(*arguments))
    if result == -1:
        raise IsolationError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, value: int, what: str) -> None:
    """`prctl(option, value, 0, 0, 0)`; raises `IsolationError`."""
    zero = ctypes.c_ulong(0)
    call("prctl", option, ctypes.c_ulong(value), zero, zero, zero, what=what)


def fork() -> int:
    """`fork()` for a process that has never had a second thread: 0 in the child, its number in the parent; raises `OSError`.

    `os.fork` also renews every lock and the list of threads in the child, which touches so many pages that it takes longer than the
    fork. With one thread no lock is held by another, so nothing needs renewing.
    """
    pid = int(_libc_holding_the_gil.fork())
    if pid == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid
