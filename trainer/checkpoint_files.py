"""Checkpoint directories as files: which are finished, whether one is whole, how the marker is written. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CHECKPOINT_FORMAT = 1
MARKER = "COMPLETE"


def finished(directory: Path) -> list[Path]:
    """Checkpoints of a run's `checkpoints/` that carry the marker, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.name.isdigit() and (p / MARKER).is_file())


def damage(directory: Path) -> str:
    """What is wrong with a finished checkpoint, "" when every file has the recorded size and checksum."""
    try:
        marker = read_marker(directory)
        if marker["format"] != CHECKPOINT_FORMAT:
            return f"format {marker['format']}, this version reads {CHECKPOINT_FORMAT}"
        for name, expected in marker["files"].items():
            path = directory / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["bytes"] or _digest(path) != expected["sha256"]:
                return f"{name} does not have the recorded content"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its {MARKER} marker is unreadable ({error})"
    return ""


def digests_and_sync(directory: Path) -> dict[str, dict[str, Any]]:
    """Force every file under the directory to the disk; size and SHA-256 by relative name."""
    files = {p.relative_to(directory).as_posix(): _digest_and_sync(p) for p in _files(directory)}
    for folder in (*(p for p in directory.rglob("*") if p.is_dir()), directory):
        sync_directory(folder)
    return files


def write_marker(directory: Path, marker: Mapping[str, Any]) -> int:
    """Mark a checkpoint as finished, its last step; returns the marker's size in bytes."""
    text = json.dumps(marker, indent=1).encode()
    with (directory / f"{MARKER}.part").open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    (directory / f"{MARKER}.part").rename(directory / MARKER)
    sync_directory(directory)
    return len(text)


def read_marker(directory: Path) -> dict[str, Any]:
    """The marker's content. Raises OSError, ValueError."""
    marker: dict[str, Any] = json.loads((directory / MARKER).read_bytes())
    return marker


def by_value(checkpoints: Iterable[Path], metric: str) -> list[tuple[Path, float]]:
    """Checkpoints with a value of the metric, the best first; of equal ones the newer one. Another metric's values do not count.

    One whose marker cannot be read has no value.
    """
    valued = []
    for directory in checkpoints:
        try:
            told = read_marker(directory).get("best") or {}
            if told.get("metric") == metric and told.get("value") is not None:
                valued.append((float(told["value"]), directory.name, directory))
        except (OSError, ValueError, TypeError, AttributeError):
            continue
    return [(directory, value) for value, _, directory in sorted(valued, reverse=True)]


def sync_directory(path: Path) -> None:
    """Force the directory's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_and_sync(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}
