"""The trainer's printed output as text people can read: the end of the file, progress rewrites folded, terminal codes gone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trainer.rundir import RunDirectory
from webapp.runs.models import Run

TAIL_BYTES = 256 * 1024
MAX_LINE_CHARACTERS = 4_000
# CSI and OSC sequences (colours, cursor moves, titles, OSC-8 links), then any other two-byte escape.
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """The end of the log. ``size`` and ``start`` are bytes; ``start`` above 0 means that earlier output is not shown."""

    text: str
    size: int
    start: int


def log_path(run: Run) -> Path | None:
    """Where the run's log lies; None when it has no directory, no log yet, or the log is not a plain file inside it."""
    if not run.directory:
        return None
    root = Path(run.directory).resolve()
    path = RunDirectory(root).log.resolve()
    return path if path.is_relative_to(root) and path.is_file() else None


def read_tail(*, run: Run) -> LogTail | None:
    """The last TAIL_BYTES of the log from the start of a line, cleaned; None when there is no log. Raises OSError."""
    path = log_path(run)
    if path is None:
        return None
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - TAIL_BYTES)
        file.seek(start)
        raw = file.read(TAIL_BYTES)
    if start:
        _, newline, rest = raw.partition(b"\n")
        raw = rest if newline else raw
        start = size - len(raw)
    return LogTail(text=clean(raw.decode("utf-8", "replace")), size=size, start=start)


def clean(text: str) -> str:
    """Without terminal codes; of a line rewritten with carriage returns only its last state; long lines cut, saying so."""
    return "\n".join(_clean_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _clean_line(line: str) -> str:
    states = [state for state in _ANSI.sub("", line).split("\r") if state]
    last = states[-1] if states else ""
    if len(last) <= MAX_LINE_CHARACTERS:
        return last
    return f"{last[:MAX_LINE_CHARACTERS]} … {len(last) - MAX_LINE_CHARACTERS} more characters: download the log"
