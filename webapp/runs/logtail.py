"""The trainer's printed output as text people can read: the end of the file, progress rewrites folded, terminal codes gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.rundir import RunDirectory
from webapp.runs.models import Run

TAIL_BYTES = 256 * 1024
_PIECE_BYTES = 256 * 1024
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


@dataclass(frozen=True, kw_only=True)
class Part:
    """The bytes of the log that one attempt printed; ``end`` is None for the newest."""

    attempt: int
    start: int
    end: int | None


def parts_of(*, run: Run) -> list[Part]:
    """Attempts whose lines can be told apart, oldest first; none when there is one attempt, or it is not known where they begin.

    Offsets grow from attempt to attempt as long as the file does. Earlier ones point into a file that retention has removed, and those
    of a run made elsewhere say nothing.
    """
    parts: list[Part] = []
    end = None
    for number, start in run.attempts.order_by("-number").values_list("number", "log_offset"):
        if end is not None and start >= end:
            break
        parts.insert(0, Part(attempt=number, start=start, end=end))
        end = start
    return parts if len(parts) > 1 else []


def pieces_of(path: Path, part: Part | None) -> Iterator[bytes]:
    """The log's bytes, or one attempt's, in pieces. Raises OSError."""
    with path.open("rb") as file:
        file.seek(part.start if part else 0)
        left = part.end - part.start if part and part.end is not None else None
        while piece := file.read(_PIECE_BYTES if left is None else min(_PIECE_BYTES, left)):
            left = None if left is None else left - len(piece)
            yield piece


def read_tail(*, run: Run, part: Part | None = None) -> LogTail | None:
    """The last TAIL_BYTES of the log (of an attempt) from the start of a line, cleaned; None when there is no log. Raises OSError."""
    path = log_path(run)
    if path is None:
        return None
    with path.open("rb") as file:
        first = part.start if part else 0
        size = max(0, (part.end if part and part.end is not None else file.seek(0, 2)) - first)
        start = max(0, size - TAIL_BYTES)
        file.seek(first + start)
        raw = file.read(min(size, TAIL_BYTES))
    if start:
        _, newline, rest = raw.partition(b"\n")
        raw = rest if newline else raw
        start = size - len(raw)
    return LogTail(text=clean(raw.decode("utf-8", "replace")), size=size, start=start)


def clean(text: str) -> str:
    """Without terminal codes; of a line rewritten with carriage returns only its last state; long lines cut, saying so."""
    return "\n".join(_clean_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def folded(line: str) -> str:
    """A line without terminal codes, in its last state."""
    states = [state for state in _ANSI.sub("", line).split("\r") if state]
    return states[-1] if states else ""


def _clean_line(line: str) -> str:
    last = folded(line)
    if len(last) <= MAX_LINE_CHARACTERS:
        return last
    return f"{last[:MAX_LINE_CHARACTERS]} … {len(last) - MAX_LINE_CHARACTERS} more characters: download the log"
