"""Taking the texts of episodes out of event logs. Every event stays, with its number, outcome, rewards and counts: what is read
from such a log is the same run without what was said in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trainer.rundir import RunDirectory
from webapp.runs.import_check import refuse_if_in_use

_EPISODE = b'"episode"'
_TEXTS = ("observation", "reply", "action")


def event_files(root: Path) -> Iterator[Path]:
    """Event files of every attempt that are plain files below ``root``."""
    attempts = RunDirectory(root).attempts
    if attempts.is_dir() and not attempts.is_symlink():
        for path in sorted(attempts.glob("[0-9]*/events/[0-9]*.jsonl")):
            if path.parent.parent.name.isdecimal() and path.is_file() and path.resolve().is_relative_to(root.resolve()):
                yield path


#: Whether an episode keeps its texts: the number of its attempt, and the payload of its event.
Keeps = Callable[[int, dict[str, Any]], bool]


def strip_texts(*, root: Path, keeps: Keeps) -> int:
    """Take out what was said in episodes, save those that keep it; bytes freed.

    A file is written aside and renamed. Raises ActRefused while a trainer is at work there, OSError.
    """
    refuse_if_in_use(root)
    return sum(_strip_file(path, partial(keeps, int(path.parent.parent.name))) for path in event_files(root))


def _strip_file(path: Path, keeps: Callable[[dict[str, Any]], bool]) -> int:
    before = path.stat()
    aside = path.with_name(f".{path.name}.part")
    has_changed = False
    with path.open("rb") as reader, aside.open("wb") as writer:
        for raw in reader:
            stripped = _strip_line(raw, keeps)
            has_changed = has_changed or stripped != raw
            writer.write(stripped)
    if not has_changed:
        aside.unlink()
        return 0
    aside.chmod(before.st_mode & 0o777)
    freed = before.st_size - aside.stat().st_size
    aside.replace(path)
    return freed


def _strip_line(raw: bytes, keeps: Callable[[dict[str, Any]], bool]) -> bytes:
    """The line without texts; one that is no whole event is left as it is."""
    if _EPISODE not in raw or not raw.endswith(b"\n"):
        return raw
    try:
        event = json.loads(raw)
        payload = event["payload"]
        if event["kind"] != "episode" or keeps(payload):
            return raw
        payload["turns"] = [_strip_turn(turn) for turn in payload["turns"]]
        payload["final_observation"] = ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return raw
    return json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"


def _strip_turn(turn: dict[str, Any]) -> dict[str, Any]:
    """Rewards and counts without the texts; that the environment was not stepped (no action) is still to be seen."""
    return {name: "" if name in _TEXTS and value is not None else value for name, value in turn.items()}
