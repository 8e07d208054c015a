"""Helpers about real processes: waiting for a condition, and whether a process lives."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="changes the user id")


def wait_until(condition: Callable[[], bool], *, within_s: float = 60.0, what: str = "the condition") -> None:
    """Return once `condition` holds; fail the test when it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within_s} s")
        Event().wait(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not just waiting to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def is_running(pid: int, program: str) -> bool:
    """Whether the process has become `program` (and is no longer the launcher that names it as an argument)."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(program) + b"\0")


def processes_mentioning(text: str) -> list[int]:
    """Live processes, other than this one, with `text` on their command line or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(text) in words and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found
