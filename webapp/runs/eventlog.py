"""Reading an attempt's event files from a position. Touches no database and trusts nothing it reads.

Files are read in the order of their numbers. A line counts when its newline is there; the torn last line of a file is left for
the next read, and dropped once a later file exists (the writer has moved on). Gaps are judged by `seq`, never guessed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from trainer.events import KINDS, Event, Payload
from webapp.runs.storable import storable, storable_text

BATCH_LINES = 500
BATCH_BYTES = 4 * 1024**2
LINE_BYTES = 64 * 1024**2  # longer lines are skipped and reported
KIND_CHARS = 100
_QUOTED_CHARS = 2000  # of a line that cannot be read
_FILE = re.compile(r"[0-9]{1,9}\.jsonl")
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|NaN|Infinity|[:,[]\s*-?[0-9][0-9.]*[eE]\+?[0-9]{3}")
_INT4 = 2**31 - 1
_INT8 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Position:
    """Everything before `offset` bytes of `file` is read; `seq` is the newest number seen. ("", 0, 0) is the start."""

    file: str = ""
    offset: int = 0
    seq: int = 0


@dataclass(slots=True)
class Line:
    """One event. `model` is its payload, None when `problem` says why there is none."""

    seq: int | None
    at: datetime
    rollout: int | None
    kind: str
    payload: dict[str, Any]
    model: Payload | None = None
    problem: str = ""


@dataclass(slots=True)
class Batch:
    """What was read: events, what is wrong with the log, and where to go on."""

    position: Position
    lines: list[Line] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # first and last missing seq
    repeated: int = 0  # lines whose seq was read before; ignored
    full: bool = False  # there is probably more


def read_batch(folder: Path, position: Position) -> Batch:
    """Up to BATCH_LINES events after ``position`` from the files in ``folder``. Raises OSError when a file cannot be read."""
    batch = Batch(position)
    names = _event_files(folder)
    index = names.index(position.file) if position.file in names else -1
    if index < 0:
        if not names:
            return batch
        index = 0
        batch.position = Position(names[0], 0, position.seq)
    # The listing is older than the reads below: a file that had a successor then is complete now.
    while True:
        _read_file(folder / names[index], batch)
        index += 1
        if batch.full or index == len(names):
            return batch
        batch.position = Position(names[index], 0, batch.position.seq)


def _event_files(folder: Path) -> list[str]:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted((name for name in names if _FILE.fullmatch(name)), key=lambda name: int(name[:-6]))


def _read_file(path: Path, batch: Batch) -> None:
    position = batch.position
    offset, seq, read = position.offset, position.seq, 0
    with path.open("rb") as file:
        file.seek(offset)
        while len(batch.lines) < BATCH_LINES and read < BATCH_BYTES:
            raw, length = _next_line(file)
            if not length:
                batch.position = Position(position.file, offset, seq)
                return
            offset += length
            read += length
            line = _parse(raw, length)
            if line.seq is not None:
                if line.seq <= seq:
                    batch.repeated += 1
                    continue
                if line.seq > seq + 1:
                    batch.gaps.append((seq + 1, line.seq - 1))
                seq = line.seq
            batch.lines.append(line)
    batch.position = Position(position.file, offset, seq)
    batch.full = True


def _next_line(file: BinaryIO) -> tuple[bytes, int]:
    """The next whole line without its newline (cut when over LINE_BYTES) and its length; length 0 when it is not whole."""
    raw = file.readline(LINE_BYTES)
    if raw.endswith(b"\n"):
        return raw[:-1], len(raw)
    if len(raw) < LINE_BYTES:
        return b"", 0
    length = len(raw)
    while piece := file.readline(LINE_BYTES):
        length += len(piece)
        if piece.endswith(b"\n"):
            return raw, length
    return b"", 0


def _unreadable(raw: bytes, why: str) -> Line:
    text = storable_text(raw[: _QUOTED_CHARS * 4].decode("utf-8", "backslashreplace")[:_QUOTED_CHARS])
    return Line(None, datetime.now(UTC), None, "unreadable", {"line": text}, problem=why)


def _parse(raw: bytes, length: int) -> Line:
    if length > LINE_BYTES:
        return _unreadable(raw, f"a line of {length} bytes is over the limit of {LINE_BYTES}")
    try:
        decoded = json.loads(raw)
        if _SUSPECT.search(raw):
            decoded = storable(decoded)
        event = Event.model_validate(decoded)
        if event.seq > _INT8:
            return _unreadable(raw, f"seq {event.seq} is out of range")
        if len(event.kind) > KIND_CHARS:
            return _unreadable(raw, f"a kind of {len(event.kind)} characters")
        at = datetime.fromtimestamp(event.time, UTC)
    except RecursionError:
        return _unreadable(raw, "nested too deeply")
    except (ValueError, OverflowError, OSError) as error:  # not JSON, not UTF-8, not an event, no such time
        return _unreadable(raw, f"not an event: {_first_line(error)}")
    line = Line(event.seq, at, event.rollout, event.kind, event.payload)
    if event.rollout is not None and not 0 <= event.rollout <= _INT4:
        line.rollout = None
        line.problem = f"rollout {event.rollout} is out of range"
        return line
    key = event.payload.get("environment")
    if isinstance(key, str) and (not key or "/" in key):  # pages have it in their addresses
        line.problem = f"{key!r:.60} is no key of an environment"
        return line
    try:
        line.model = payload_model(event.kind, event.payload)
    except ValidationError as error:
        line.problem = f"the payload does not fit {event.kind}: {_first_line(error)}"
    return line


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return storable_text(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:300])
    return storable_text(str(error)[:300])


def payload_model(kind: str, payload: dict[str, Any]) -> Payload | None:
    """The payload as its model, None for an unknown kind. Unknown fields are ignored. Raises ValidationError."""
    model = KINDS.get(kind)
    if model is None:
        return None
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors() if item["type"] == "extra_forbidden"]
        if not unknown or len(unknown) != error.error_count():
            raise
        return model.model_validate(_without(payload, unknown))


def _without(payload: dict[str, Any], paths: list[tuple[int | str, ...]]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(payload))
    for *parents, name in paths:
        holder: Any = copy
        for part in parents:
            holder = holder[part]
        del holder[name]
    return copy
