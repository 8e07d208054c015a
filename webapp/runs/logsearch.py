"""Lines of a run's log that have a text, from all of the log and not only its shown end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from webapp.runs.logtail import Part, folded, log_path
from webapp.runs.models import Run

LINES_FOUND = 500
SEARCH_S = 5.0
SHOWN_CHARS = 1_000
_LINE_BYTES = 64 * 1024  # of a longer line the rest is searched as if it were another one


@dataclass(kw_only=True)
class Found:
    """Lines with their numbers in what was searched; the first LINES_FOUND of ``total``."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    total: int = 0
    searched_bytes: int = 0
    is_cut: bool = False  # the time was over before all was searched


def find_lines(*, run: Run, text: str, part: Part | None = None) -> Found | None:
    """Lines with the text, upper and lower case alike, as they are shown; None when there is no log. Raises OSError."""
    path = log_path(run)
    if path is None:
        return None
    found, wanted, number = Found(), text.casefold(), 0
    deadline = time.monotonic() + SEARCH_S
    with path.open("rb") as file:
        left = file.seek(0, 2) - (part.start if part else 0)
        if part:
            left = min(left, part.end - part.start) if part.end is not None else left
        file.seek(part.start if part else 0)
        is_begun, pieces = False, 0
        while left > 0 and (raw := file.readline(min(_LINE_BYTES, left))):
            left -= len(raw)
            found.searched_bytes += len(raw)
            number += not is_begun
            is_begun = not raw.endswith(b"\n")
            line = folded(raw.decode("utf-8", "replace").rstrip("\r\n"))
            at = line.casefold().find(wanted)
            if at >= 0:
                found.total += 1
                if len(found.lines) < LINES_FOUND:
                    found.lines.append((number, _around(line, _unfolded(line, at))))
            pieces += 1
            if pieces % 1000 == 0 and time.monotonic() > deadline:
                found.is_cut = left > 0
                break
    return found


def _unfolded(line: str, at: int) -> int:
    """Where a place of the folded line is in the line as it stands: "ß" is two letters when folded."""
    reached = 0
    for place, letter in enumerate(line):
        if reached >= at:
            return place
        reached += len(letter.casefold())
    return len(line)


def _around(line: str, at: int) -> str:
    """A line, or of a long one what is around the place."""
    if len(line) <= SHOWN_CHARS:
        return line
    start = max(0, min(at - SHOWN_CHARS // 4, len(line) - SHOWN_CHARS))
    end = start + SHOWN_CHARS
    return f"{'… ' if start else ''}{line[start:end]}{' …' if end < len(line) else ''}"
