"""The C library with checked results."""

from __future__ import annotations

import ctypes
import os


class IsolationError(Exception):
    """A layer could not be put on; the process must not run generated code."""


_libc = ctypes.CDLL(None, use_errno=True)


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
