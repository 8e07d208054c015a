"""Finds the processes of a sandbox by what only they have on their command line: its code and the host's number."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

MARK = "from sandbox.inside.zygote import main"


def processes_of(host_pid: int) -> list[int]:
    """Living (not zombie) zygotes, launchers and workers of a host process."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if MARK.encode() in b"\0".join(arguments) and str(host_pid).encode() in arguments and state != "Z":
            found.append(int(folder.name))
    return sorted(found)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    ends_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.01)
    return True
