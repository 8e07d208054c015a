"""Namespaces with an empty root, an unused user id and no capabilities.

Root (with CAP_SYS_ADMIN) unshares directly; anybody else through a user namespace, where the kernel and its security
modules allow it. Neither /proc nor /dev is mounted: Python needs neither once it has loaded its modules.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

from sandbox.isolation.kernel import IsolationError, call, prctl

_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_ALL = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET | _NEWCGROUP
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 32, 16384, 1 << 18
_HARDENED = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "amd64": 155, "aarch64": 41, "arm64": 41}
_FIRST_UNUSED_ID = 1_000_000_000
_NOBODY = 65_534
_CAPBSET_DROP, _CAPABILITY_VERSION_3 = 24, 0x20080522


def unused_id() -> int:
    """A user and group id nobody has: one per zygote, far above what systems hand out."""
    return _FIRST_UNUSED_ID + os.getpid() % 1_000_000


def unshare() -> str:
    """Enter new namespaces (the pid one counts for children); returns how; raises `IsolationError`."""
    if os.geteuid() == 0:
        try:
            call("unshare", ctypes.c_int(_ALL), what="namespaces")
        except IsolationError:
            pass  # root without CAP_SYS_ADMIN: a user namespace may still be allowed
        else:
            return "namespaces of root"
    user, group = os.geteuid(), os.getegid()
    call("unshare", ctypes.c_int(_NEWUSER | _ALL), what="user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_FIRST_UNUSED_ID} {user} 1"),
        ("gid_map", f"{_FIRST_UNUSED_ID} {group} 1"),
    ):
        try:
            Path("/proc/self", name).write_text(text, encoding="ascii")
        except OSError as error:
            # Ubuntu's AppArmor rule shows here, not at unshare.
            raise IsolationError(f"user namespace: writing {name}: {error.strerror}") from error
    return "user namespace"


def empty_root() -> None:
    """Replace the root by an empty read-only tmpfs; raises `IsolationError`. Needs the namespaces of `unshare`."""
    place = next((path for path in (b"/tmp", b"/mnt", b"/var", b"/etc") if Path(os.fsdecode(path)).is_dir()), b"/")
    call("mount", None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None, what="making mounts private")
    options = b"size=4k,nr_inodes=2,mode=555"
    call("mount", b"tmpfs", place, b"tmpfs", ctypes.c_ulong(_HARDENED), options, what="mounting the empty root")
    os.chdir(place)
    number = ctypes.c_long(_PIVOT_ROOT[platform.machine().lower()])
    call("syscall", number, b".", b".", what="changing the root")
    call("umount2", b".", ctypes.c_int(_DETACH), what="leaving the old root")
    os.chdir("/")
    read_only = ctypes.c_ulong(_MS_REMOUNT | _MS_RDONLY | _HARDENED)
    call("mount", None, b"/", None, read_only, None, what="making the root read-only")
    left = os.listdir("/")  # noqa: PTH208 - no pathlib needed to count
    if left:
        raise IsolationError(f"the new root is not empty: {left[:3]}")


def become_nobody() -> bool:
    """Take an unused user and group id when the process may; returns whether it did.

    Failing is not an error by itself (root without CAP_SETUID): files and signals are refused by other layers too.
    """
    for number in (unused_id(), _NOBODY):
        try:
            os.setgroups([])
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
        except OSError:
            continue
        return True
    return False


def drop_capabilities() -> None:
    """Give up every capability, and the bounding set where allowed; raises `IsolationError`."""
    for capability in range(64):
        try:
            prctl(_CAPBSET_DROP, capability, "capability bounding set")
        except IsolationError:
            break  # the last one is passed, or dropping is not allowed: the sets below are what counts
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    call("capset", header, struct.pack("<6I", 0, 0, 0, 0, 0, 0), what="dropping capabilities")
