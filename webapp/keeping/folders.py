"""Folders below SPADEWORK_IMPORT_ROOT, and nothing outside it: the only place whose content the browser may look at."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from django.conf import settings

from webapp.runs.errors import ActRefused
from webapp.runs.models import Run

FOLDERS_SHOWN = 500
PATH_CHARS = 1_000


@dataclass(frozen=True, kw_only=True)
class Folder:
    """One folder that can be opened, or imported when it holds a run; ``run`` is the one it was imported as."""

    name: str
    path: str
    is_run: bool
    changed_at: datetime
    run: Run | None


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The folders in one folder. ``left_out`` entries have names that cannot be shown, are links, or are too many."""

    root: Path
    path: str
    parents: list[tuple[str, str]]  # name and path of the folders above, from the root down
    is_run: bool
    folders: list[Folder]
    left_out: int


def import_root() -> Path:
    """The folder whose run directories can be imported in the browser."""
    return Path(settings.SPADEWORK_IMPORT_ROOT)


def inside(path: str) -> Path:
    """The folder of that name below the root. Raises ActRefused when it leads out, through a link, or is no folder."""
    parts = PurePosixPath(path).parts
    if len(path) > PATH_CHARS or "\x00" in path or path.startswith("/") or ".." in parts:
        raise ActRefused("That path does not lie in the import folder; choose a folder from the list.")
    place = import_root()
    for part in parts:
        place = place / part
        try:
            mode = place.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ActRefused(f"There is no folder {path} in the import folder; it may have been moved.") from error
        except OSError as error:
            raise ActRefused(f"The folder {path} cannot be read: {error.strerror}.") from error
        if not stat.S_ISDIR(mode):
            what = "a link, which may lead out of the import folder" if stat.S_ISLNK(mode) else "no folder"
            raise ActRefused(f"{path}: {part} is {what}.")
    return place


def list_folder(*, path: str) -> Listing:
    """What can be chosen in a folder. Raises ActRefused."""
    place = inside(path)
    here = PurePosixPath(path)
    found: list[tuple[str, str, bool, datetime]] = []
    left_out = 0
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_symlink() or (entry.is_dir() and not _showable(entry.name)):
                    left_out += 1
                elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    changed = datetime.fromtimestamp(entry.stat(follow_symlinks=False).st_mtime, UTC)
                    found.append((entry.name, str(here / entry.name), _holds_run(Path(entry.path)), changed))
    except OSError as error:
        raise ActRefused(f"The folder {place} cannot be read: {error.strerror}.") from error
    found.sort()
    left_out += max(0, len(found) - FOLDERS_SHOWN)
    shown = found[:FOLDERS_SHOWN]
    runs = _imported([str((place / name).resolve()) for name, _, is_run, _ in shown if is_run])
    folders = [
        Folder(
            name=name, path=at, is_run=is_run, changed_at=changed, run=runs.get(str((place / name).resolve()))
        )
        for name, at, is_run, changed in shown
    ]  # fmt: skip
    parents = [(part, str(PurePosixPath(*here.parts[: number + 1]))) for number, part in enumerate(here.parts)]
    return Listing(
        root=import_root(), path=path, parents=parents, is_run=bool(here.parts) and _holds_run(place), folders=folders,
        left_out=left_out,
    )  # fmt: skip


def _holds_run(place: Path) -> bool:
    try:
        return stat.S_ISREG((place / "config.json").lstat().st_mode)
    except OSError:
        return False


def _showable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def _imported(places: list[str]) -> dict[str, Run]:
    runs = Run.objects.filter(imported_from__in=places, deleted_at=None).only("id", "name", "status", "imported_from")
    return {run.imported_from: run for run in runs}
