"""Landlock: no file, no TCP port, no signal and no abstract socket outside this process and its children.

No rule is ever added, so everything the running kernel can handle is refused. What Landlock does not cover (UDP, chmod,
stat) is the seccomp filter's work.
"""

from __future__ import annotations

import ctypes
import os
import struct

from sandbox.isolation.kernel import IsolationError, call

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same numbers on x86-64 and arm64
_ASK_VERSION = 1
# Bits of file access by ABI: 13 from the start, then rename across folders, truncate, device ioctl.
_FILE_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NETWORK_FROM_ABI, _SCOPES_FROM_ABI = 4, 6
_TCP_BIND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def abi() -> int:
    """Landlock version of the running kernel; raises `IsolationError` when there is none (as in gVisor)."""
    return call(
        "syscall",
        ctypes.c_long(_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint(_ASK_VERSION),
        what="Landlock",
    )


def ruleset(version: int) -> bytes:
    """Attribute block that handles everything `version` can."""
    parts = [(1 << _FILE_BITS[min(version, 5)]) - 1]
    if version >= _NETWORK_FROM_ABI:
        parts.append(_TCP_BIND_CONNECT)
    if version >= _SCOPES_FROM_ABI:
        parts.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    return struct.pack(f"<{len(parts)}Q", *parts)


def restrict() -> int:
    """Refuse everything Landlock can for this process and its children; returns the ABI; raises `IsolationError`.

    no_new_privs must be set. The result is tested by doing: a kernel that accepts and enforces nothing is an error.
    """
    version = abi()
    block = ruleset(version)
    size = ctypes.c_size_t(len(block))
    descriptor = call("syscall", ctypes.c_long(_CREATE_RULESET), block, size, ctypes.c_uint(0), what="Landlock rules")
    try:
        call("syscall", ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(descriptor), ctypes.c_uint(0), what="Landlock")
    finally:
        os.close(descriptor)
    for path in ("/", "/etc/passwd", "/proc/self/environ"):
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            continue
        raise IsolationError(f"Landlock was accepted but {path} can still be opened")
    return version
