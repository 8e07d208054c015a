"""Processes that outlived their supervisor: recognising them and ending them."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

from webapp.stack.service import StopStep

_POLL_S = 0.05


def stop_leftover(pid: int, *, mark: str, stop: tuple[StopStep, ...]) -> bool:
    """End process `pid` if it is the one we mean: `mark` must stand on its command line. True when it was and is gone now.

    A pid file alone proves nothing, the number may have been given to another program since.
    """
    if not _is_ours(pid, mark):
        return False
    for step in (*stop, StopStep(signal.SIGKILL, 5)):
        try:
            os.kill(pid, step.signal)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + step.grace_s
        while time.monotonic() < deadline:
            if not _is_ours(pid, mark):
                return True
            Event().wait(_POLL_S)
    return not _is_ours(pid, mark)


def _is_ours(pid: int, mark: str) -> bool:
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    # Valkey rewrites its command line to one string with spaces.
    return b" " + os.fsencode(mark) + b" " in b" " + command_line.replace(b"\0", b" ") + b" "


def end_processes_in(directory: Path, *, grace_s: float) -> None:
    """Wait for every process whose working directory is `directory` to end by itself; kill those that do not."""
    deadline = time.monotonic() + grace_s
    while left := [pid for pid in _all_pids() if _works_in(pid, directory)]:
        if time.monotonic() > deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        Event().wait(_POLL_S)


def _works_in(pid: int, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == directory
    except OSError:
        return False  # gone, dead, or somebody else's


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def children_of(parent: int) -> list[int]:
    """Process ids of the direct children of `parent`, dead ones that nobody has waited for included."""
    found = []
    for pid in _all_pids():
        try:
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            continue  # gone meanwhile
        # The second field is the program's name in brackets and may hold anything; state and parent follow it.
        if int(status.rpartition(")")[2].split()[1]) == parent:
            found.append(pid)
    return found


def command_of(pid: int) -> bytes:
    """The command line of a process, arguments separated by blanks; empty when it is gone or dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        return b""
