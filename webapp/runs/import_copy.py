"""A copy of a run directory made elsewhere, among our own run directories. Copying again brings what is new."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from django.db.models import TextChoices

from webapp.runs.errors import ActRefused

_WEIGHTS = ("checkpoints", "start")  # folders at the top of a run directory
_LEFT_OUT = ("trainer.lock",)
_COPY_BYTES = 1 << 20


class Copying(TextChoices):
    """What of a run directory is copied into our own."""

    NOTHING = "nothing", "nothing: it stays where it is"
    RECORDS = "records", "everything but the checkpoints"
    EVERYTHING = "everything", "everything, checkpoints too"


def copy_directory(
    *,
    source: Path,
    target: Path,
    copying: Copying,
    leave_out: Callable[[Path, os.stat_result], bool] = lambda _path, _state: False,
) -> int:
    """Make ``target`` hold what ``source`` holds now, save files that are to be left out; bytes that were copied.

    Each file is written aside and renamed, so a copy that was cut short is completed by the next one. Checkpoints that the
    source has given up are given up. Raises ActRefused when the disk is too small, OSError.
    """
    wanted = [
        path
        for path in _files(source, Path(), copying)
        if _differs(source / path, target / path) and not leave_out(path, (source / path).lstat())
    ]
    needed = sum((source / path).lstat().st_size for path in wanted)
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    free = shutil.disk_usage(target).free
    if needed > free:
        raise ActRefused(
            f"copying {source} needs {needed:,} bytes and {free:,} are free on the disk of {target.parent}: make room, or "
            "leave the run where it is"
        )
    for path in wanted:
        _copy_file(source / path, target / path)
    if copying == Copying.EVERYTHING:
        _give_up_checkpoints(source / "checkpoints", target / "checkpoints")
    return needed


def _files(root: Path, inside: Path, copying: Copying) -> Iterator[Path]:
    """Plain files below ``root``, as paths relative to it. Links were refused before; one that appeared since is not followed."""
    with os.scandir(root / inside) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = inside / entry.name
            if inside == Path("attempts") and not entry.name.isdecimal():
                continue  # somebody's own copy of an attempt: nothing reads it, and retention would not find its texts
            if entry.is_dir(follow_symlinks=False):
                if copying == Copying.EVERYTHING or inside.parts or entry.name not in _WEIGHTS:
                    yield from _files(root, path, copying)
            elif entry.is_file(follow_symlinks=False) and (inside.parts or entry.name not in _LEFT_OUT):
                yield path


def _differs(source: Path, target: Path) -> bool:
    try:
        there = target.lstat()
    except FileNotFoundError:
        return True
    here = source.lstat()
    return (here.st_size, here.st_mtime_ns) != (there.st_size, there.st_mtime_ns)


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = target.with_name(f".{target.name}.part")
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as reader:
        status = os.fstat(reader.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ActRefused(f"{source} became something else than a file while it was copied; import it again")
        with aside.open("wb") as writer:
            shutil.copyfileobj(reader, writer, _COPY_BYTES)
    os.utime(aside, ns=(status.st_atime_ns, status.st_mtime_ns))
    aside.rename(target)


def _give_up_checkpoints(source: Path, target: Path) -> None:
    if not target.is_dir():
        return
    for path in target.iterdir():
        if path.is_dir() and not (source / path.name).is_dir():
            shutil.rmtree(path)
