"""Which processes belong to a trainer, and proving that none is left. Reads /proc; a reused pid is told by its start time."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be confused with a later one of the same pid. `started` is in clock ticks since boot."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class _Status:
    parent: int
    session: int
    state: str
    started: int


def _status(pid: int) -> _Status | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return _Status(parent=int(fields[1]), session=int(fields[3]), state=fields[0], started=int(fields[19]))


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None when there is none (a zombie counts as none)."""
    status = _status(pid)
    return Process(pid, status.started) if status is not None and status.state not in "ZX" else None


def is_alive(process: Process) -> bool:
    """True while this very process runs."""
    return identify(process.pid) == process


def family(leader: Process) -> set[Process]:
    """Living processes of the leader's session and all their descendants, the leader included."""
    table: dict[int, _Status] = {}
    for path in _PROC.iterdir():
        if path.name.isdigit():
            status = _status(int(path.name))
            if status is not None:
                table[int(path.name)] = status
    reused = leader.pid in table and table[leader.pid].started != leader.started
    members = {pid for pid, status in table.items() if status.session == leader.pid and not reused}
    grown = True
    while grown:
        more = {pid for pid, status in table.items() if status.parent in members} - members
        members |= more
        grown = bool(more)
    return {Process(pid, table[pid].started) for pid in members if table[pid].state not in "ZX"}


def kill_all(processes: set[Process], *, within_s: float) -> set[Process]:
    """SIGKILL them and wait until they are gone; returns those that are still there after ``within_s``."""
    for process in processes:
        if is_alive(process):
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    deadline = time.monotonic() + within_s
    left = {process for process in processes if is_alive(process)}
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = {process for process in left if is_alive(process)}
    return left
