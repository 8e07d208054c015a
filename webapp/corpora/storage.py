"""Where corpora lie, and the guard of every path and file name that people give.

``<home>/corpora/<id>/`` holds an upload, ``<home>/corpora/incoming/`` what is on its way. Other files of this machine are read only
below SPADEWORK_CORPORA_ROOT, links resolved.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from trainer.corpus import BUILTIN, SUFFIXES
from webapp.runs.errors import ActRefused

ENTRIES_SHOWN = 500
FILES_A_FOLDER = 100_000
INCOMING_KEPT_S = 24 * 3600.0
_NAME_CHARS = 80
_ARCHIVES = frozenset({".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".lz4", ".br"})
_DEVICE_NAMES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)


def uploads() -> Path:
    """The folder of uploaded corpora."""
    return Path(settings.SPADEWORK_HOME) / "corpora"


def incoming() -> Path:
    """The folder of files on their way; what lies there longer than a day is removed."""
    return uploads() / "incoming"


def folder_of(corpus_id: int) -> Path:
    """The folder of one uploaded corpus."""
    return uploads() / str(corpus_id)


def root() -> Path | None:
    """The folder of this machine people may choose from, links resolved; None when the settings name none."""
    text = settings.SPADEWORK_CORPORA_ROOT
    return Path(text).resolve() if text else None


def why_not_readable(name: str) -> str:
    """Why a file of that name is not taken, "" when it is."""
    suffix = Path(name.replace("\\", "/")).suffix.lower()
    if suffix in SUFFIXES:
        return ""
    if suffix in _ARCHIVES:
        return f"{name} is an archive, and archives are not unpacked here. Unpack it and upload the files in it."
    return f"{name} is not read: a corpus is {', '.join(sorted(SUFFIXES))}."


def safe_name(name: str, taken: set[str]) -> str:
    """A file name of ours for a file that somebody else named: no folders, no controls, not in ``taken``. The ending is kept."""
    path = Path(name.replace("\\", "/"))
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.name.removesuffix(path.suffix)).strip("-")[:_NAME_CHARS]
    if not stem or _DEVICE_NAMES.fullmatch(stem):
        stem = "file"
    candidate, number = f"{stem}{path.suffix.lower()}", 2
    while candidate in taken:
        candidate, number = f"{stem}-{number}{path.suffix.lower()}", number + 1
    taken.add(candidate)
    return candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something in the folder people choose from."""

    name: str
    relative: str
    is_folder: bool
    bytes: int


def inside_root(relative: str) -> Path:
    """The file or folder at ``relative`` below the root. Raises ActRefused when it is not there, or leads out of it."""
    base = root()
    if base is None:
        raise ActRefused("No folder is set to choose from. The admin of this machine can set SPADEWORK_CORPORA_ROOT.")
    try:
        path = (base / relative).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ActRefused(f"{relative!r} is not in {base}; choose from the list.") from error
    if not path.is_relative_to(base):
        raise ActRefused(f"{relative!r} leads out of {base}; only what lies in it can be chosen.")
    return path


def entries(folder: Path) -> list[Entry]:
    """What of a folder below the root can be chosen, folders first; hidden entries and links that lead out are left out."""
    base = root()
    found = []
    with os.scandir(folder) as listed:
        for item in listed:
            path = Path(item.path)
            if base is None or item.name.startswith(".") or not _leads_inside(path, base):
                continue
            relative = str(path.relative_to(base))
            if item.is_dir():
                found.append(Entry(name=item.name, relative=relative, is_folder=True, bytes=0))
            elif item.is_file() and path.suffix.lower() in SUFFIXES:
                found.append(Entry(name=item.name, relative=relative, is_folder=False, bytes=item.stat().st_size))
    return sorted(found, key=lambda entry: (not entry.is_folder, entry.name))[:ENTRIES_SHOWN]


def _leads_inside(path: Path, base: Path) -> bool:
    try:
        return path.resolve().is_relative_to(base)
    except (OSError, RuntimeError):  # a link that leads to itself
        return False


def files_in(path: Path) -> list[tuple[str, int]]:
    """Name and bytes of every file of a chosen corpus. Raises ActRefused when there are none, too many, or a link leads out of the root."""
    found = []
    for file in _readable(path):
        base = root()
        if base is not None and not _leads_inside(file, base):
            raise ActRefused(f"{file.name} is a link that leads out of {base}; remove it or choose another folder.")
        found.append((str(file.relative_to(path)) if path.is_dir() else file.name, file.stat().st_size))
        if len(found) > FILES_A_FOLDER:
            raise ActRefused(f"{path.name} holds more than {FILES_A_FOLDER:,} files; put them into fewer.")
    if not found:
        raise ActRefused(f"{path.name} holds no file that is read: {', '.join(sorted(SUFFIXES))}.")
    return found


def _readable(path: Path) -> Iterator[Path]:
    if path.is_file():
        if not why_not_readable(path.name):
            yield path
        return
    yield from sorted(file for file in path.rglob("*") if file.is_file() and file.suffix.lower() in SUFFIXES)


def why_not_allowed(source: str) -> str:
    """Why a run may not read that ``corpus.source``, "" when it may: with a root set, only it, uploads and what is built in."""
    base = root()
    if base is None or source in BUILTIN:
        return ""
    try:
        path = Path(source).expanduser().resolve()
    except (OSError, ValueError, RuntimeError):
        return f"{source!r} is no path"
    if path.is_relative_to(base) or path.is_relative_to(uploads().resolve()):
        return ""
    return f"{source} is outside {base}; choose a corpus of the list, or upload this one on the page Corpora"


def clear_incoming() -> int:
    """Remove what an interrupted process left on its way; how many files."""
    old = time.time() - INCOMING_KEPT_S
    folder, removed = incoming(), 0
    if not folder.is_dir():
        return 0
    for file in folder.iterdir():
        try:
            if file.stat().st_mtime < old:
                file.unlink()
                removed += 1
        except FileNotFoundError:
            continue  # another sweep was quicker
    return removed


def has_upload(corpus_id: int) -> bool:
    """Whether the files of an uploaded corpus are still there."""
    return folder_of(corpus_id).exists()


def remove_upload(corpus_id: int) -> None:
    """Remove the files of an uploaded corpus. Raises OSError when they cannot be."""
    if has_upload(corpus_id):
        shutil.rmtree(folder_of(corpus_id))
