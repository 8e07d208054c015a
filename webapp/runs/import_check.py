"""Whether a run directory made elsewhere can be taken in: its files, settings and event log. Writes nothing, asks no database."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trainer.config import FORMAT_VERSION, RunConfig
from trainer.events import RunStarted
from trainer.rundir import RunDirectory
from webapp.runs.configuration import parse_config
from webapp.runs.errors import ActRefused, InvalidConfig
from webapp.runs.eventlog import Batch, Line, Position, read_batch
from webapp.runs.storable import storable

CONFIG_BYTES = 4 * 1024**2
DAMAGE_SHOWN = 5
_INT4 = 2**31 - 1


@dataclass(kw_only=True)
class Checked:
    """A directory that can be taken in. ``damage`` says what of its log cannot be read; ``torn_bytes`` lie behind a last whole line."""

    root: Path
    config: RunConfig
    began: datetime | None = None  # time of the log's first event: tells one run from another
    attempts: int = 0
    events: int = 0
    torn_bytes: int = 0
    damage: list[str] = field(default_factory=list)

    @property
    def damage_text(self) -> str:
        """The first few kinds of damage in one line."""
        shown = "; ".join(self.damage[:DAMAGE_SHOWN])
        more = len(self.damage) - DAMAGE_SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown


def check_directory(directory: Path) -> Checked:
    """Read all of it once. Raises ActRefused, whose text says what is wrong, where, and what to do."""
    try:
        root = directory.resolve(strict=True)
        refuse_strange_files(root)
        checked = Checked(root=root, config=_read_config(root))
        refuse_if_in_use(root)
        _check_log(checked)
    except OSError as error:
        raise ActRefused(
            f"{error.filename or directory} cannot be read: {error.strerror or error}; give this user access to it"
        ) from error
    if not checked.events:
        raise ActRefused(
            f"{root} holds no events: nothing was recorded there, or attempts/ was not copied along with config.json"
        )
    return checked


def refuse_strange_files(root: Path) -> None:
    """Raise ActRefused when anything below ``root`` is neither a plain file nor a folder: pages would read through a link."""
    if not root.is_dir():
        raise ActRefused(f"{root} is not a directory; name the directory that holds config.json")
    for folder, folders, files in os.walk(root, onerror=_raise):
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise ActRefused(
                    f"{path} is a symbolic link, and a link may lead out of the run; copy the run with its links resolved "
                    f"(cp -rL) and import the copy"
                )
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ActRefused(f"{path} is neither a file nor a folder; remove it and import again")


def refuse_if_in_use(root: Path) -> None:
    """Raise ActRefused while a trainer on this machine holds the run's lock."""
    lock = RunDirectory(root).lock
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ActRefused(
            f"a trainer is at work in {root}; import it when it has ended, or stop it first (it ends on SIGTERM)"
        ) from None
    finally:
        os.close(descriptor)


def _raise(error: OSError) -> None:
    raise error


def _read_config(root: Path) -> RunConfig:
    path = RunDirectory(root).config
    try:
        if path.stat().st_size > CONFIG_BYTES:
            raise ActRefused(f"{path} has {path.stat().st_size} bytes; settings are far smaller, so this is none")
        frozen = json.loads(path.read_text(encoding="utf-8"))
        version, values = frozen["format_version"], frozen["config"]
    except FileNotFoundError as error:
        raise ActRefused(
            f"{root} is no run directory: it has no config.json; name the directory that holds it"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ActRefused(f"{root} is no run directory: its config.json cannot be understood ({error})") from error
    if version != FORMAT_VERSION:
        raise ActRefused(
            f"{root} was made in format {version!r:.40} and this Spadework reads format {FORMAT_VERSION}; import it with the "
            "version that made it"
        )
    if not isinstance(values, dict):
        raise ActRefused(f"{root} is no run directory: the settings in its config.json are no object")
    try:
        return parse_config(storable(values))
    except InvalidConfig as error:
        raise ActRefused(f"the settings of {root} do not fit this version of Spadework: {error}") from error


def _check_log(checked: Checked) -> None:
    run = RunDirectory(checked.root)
    for number in _numbers(run):
        folder, position, last_seq = run.events(number), Position(), 0
        while True:
            batch = read_batch(folder, position)
            for line in batch.lines:
                _check_line(checked, number, line, last_seq)
                last_seq = line.seq or last_seq
            _note_damage(checked, number, batch)
            checked.events += len(batch.lines)
            if batch.position == position or not batch.full:
                position = batch.position
                break
            position = batch.position
        checked.attempts += 1
        if position.file:
            checked.torn_bytes += (folder / position.file).stat().st_size - position.offset


def _numbers(run: RunDirectory) -> list[int]:
    if not run.attempts.is_dir():
        return []
    names = [path.name for path in run.attempts.iterdir() if path.name.isascii() and path.name.isdigit()]
    for name in names:
        if name != str(int(name)) or not 0 < int(name) <= _INT4:
            raise ActRefused(f"{run.attempts / name} is not called as an attempt is (1, 2, …); remove or rename it")
    return sorted(int(name) for name in names)


def _check_line(checked: Checked, number: int, line: Line, last_seq: int) -> None:
    if line.seq == 1:
        model: Any = line.model
        if not isinstance(model, RunStarted):
            raise ActRefused(
                f"attempt {number} of {checked.root} does not begin with run_started but with {line.kind!r:.60}: "
                "this is no event log of the trainer"
            )
        if model.attempt != number:
            raise ActRefused(
                f"the log in {checked.root}/attempts/{number} says that it is of attempt {model.attempt}: folders were mixed up"
            )
        checked.began = checked.began or line.at
    if line.problem:
        checked.damage.append(f"attempt {number}, after event {last_seq}: {line.problem}")


def _note_damage(checked: Checked, number: int, batch: Batch) -> None:
    for first, last in batch.gaps:
        missing = f"event {first} is" if first == last else f"events {first} to {last} are"
        checked.damage.append(f"attempt {number}: {missing} missing")
    if batch.repeated:
        checked.damage.append(f"attempt {number}: {batch.repeated} events come a second time")
