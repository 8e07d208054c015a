"""A run's checkpoints as files: which are there, which is the best, and one as an archive that can be sent in any piece.

The archive is a plain tar whose bytes follow from the files alone, so a download that broke off goes on where it was.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from django.db.models import Max
from django.utils.text import slugify

from trainer.checkpoint_files import by_value, finished, read_marker
from trainer.rundir import RunDirectory
from webapp.runs.configuration import parse_config
from webapp.runs.errors import ActRefused, InvalidConfig
from webapp.runs.models import Checkpoint, Run

Part = Literal["model", "all"]
_MODEL = "model/"
_PIECE_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A whole checkpoint on the disk. ``model_bytes`` and ``all_bytes`` are None when its marker cannot be read."""

    name: str
    model_bytes: int | None
    all_bytes: int | None
    best_value: float | None  # of checkpoint.best_metric
    is_best: bool


def stored_checkpoints(*, run: Run) -> dict[str, StoredCheckpoint]:
    """The run's whole checkpoints that are there now, by name."""
    if not run.directory:
        return {}
    found = finished(RunDirectory(Path(run.directory)).checkpoints)
    values = {path.name: value for path, value in by_value(found, best_metric(run))}
    best = next(iter(values), None)  # the best comes first
    stored = {}
    for path in found:
        sizes = _sizes(path)
        stored[path.name] = StoredCheckpoint(
            name=path.name, best_value=values.get(path.name), is_best=path.name == best,
            model_bytes=None if sizes is None else sum(n for name, n in sizes.items() if name.startswith(_MODEL)),
            all_bytes=None if sizes is None else sum(sizes.values()),
        )  # fmt: skip
    return stored


def files_of_rows(
    *, run: Run, rows: Sequence[Checkpoint], stored: Mapping[str, StoredCheckpoint]
) -> dict[int, StoredCheckpoint]:
    """What lies on the disk for each row, by its id. Several attempts may have saved a name: the newest one's files are there."""
    found = Checkpoint.objects.filter(run=run, name__in=[row.name for row in rows])
    newest = {row["newest"] for row in found.order_by().values("name").annotate(newest=Max("pk"))}
    return {row.pk: stored[row.name] for row in rows if row.pk in newest and row.name in stored}


def best_metric(run: Run) -> str:
    """The metric by which the run's checkpoints are compared."""
    try:
        return parse_config(run.config).checkpoint.best_metric
    except InvalidConfig:  # of an imported run
        return ""


def resolve_name(*, run: Run, name: str) -> str:
    """A checkpoint as people name it (``best``, ``latest``, a number) as the name of its directory; anything else comes back as it is."""
    stored = stored_checkpoints(run=run)
    if name == "latest":
        return max(stored, default=name)
    if name == "best":
        return next((one.name for one in stored.values() if one.is_best), name)
    return name.zfill(6) if name.isdecimal() and len(name) < 6 else name


def _sizes(directory: Path) -> dict[str, int] | None:
    try:
        return {str(name): int(facts["bytes"]) for name, facts in read_marker(directory)["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(slots=True)
class _Segment:
    """A stretch of the archive: bytes of ours, or a file that is open."""

    start: int
    size: int
    data: bytes = b""
    file: IO[bytes] | None = None


class CheckpointArchive:
    """A checkpoint as a tar, every file open: it can be sent although the trainer removes the checkpoint meanwhile."""

    def __init__(self, segments: Sequence[_Segment], *, etag: str, file_name: str) -> None:
        self._segments = list(segments)
        self.etag = etag
        self.file_name = file_name
        self.size = self._segments[-1].start + self._segments[-1].size

    def pieces(self, start: int, end: int) -> ArchivePieces:
        """Bytes ``start`` to ``end`` (not included), as a body that closes the files at its end."""
        return ArchivePieces(self, start, end)

    def read(self, position: int, size: int) -> bytes:
        """At most ``size`` bytes at ``position``, at least one. Raises OSError when a file became shorter."""
        segment = next(one for one in self._segments if one.start <= position < one.start + one.size)
        offset = position - segment.start
        wanted = min(size, segment.size - offset)
        if segment.file is None:
            return segment.data[offset : offset + wanted]
        found = os.pread(segment.file.fileno(), wanted, offset)
        if not found:
            raise OSError(f"{self.file_name}: a file became shorter while it was sent")
        return found

    def close(self) -> None:
        """Close every file."""
        for segment in self._segments:
            if segment.file is not None:
                segment.file.close()


class ArchivePieces:
    """The body of an answer, read as it is sent."""

    def __init__(self, archive: CheckpointArchive, start: int, end: int) -> None:
        self._archive, self._start, self._end = archive, start, end

    def __iter__(self) -> Iterator[bytes]:
        position = self._start
        while position < self._end:
            piece = self._archive.read(position, min(_PIECE_BYTES, self._end - position))
            position += len(piece)
            yield piece

    def close(self) -> None:
        """Called by Django when the answer is over, however it ended."""
        self._archive.close()


def open_archive(*, run: Run, name: str, part: Part) -> CheckpointArchive:
    """The checkpoint's model directory, or all of it with the optimiser and the state of the loop. Raises ActRefused."""
    directory = RunDirectory(Path(run.directory)).checkpoints / name
    if not run.directory or not name.isdecimal() or not (directory / "COMPLETE").is_file():
        raise ActRefused(f"Checkpoint {name} of {run} is not on the disk (any more); choose another one.")
    try:
        files: Mapping[str, Any] = read_marker(directory)["files"]
        wanted = {file: facts for file, facts in sorted(files.items()) if part == "all" or file.startswith(_MODEL)}
        top = f"{slugify(run.slug or '')[:80] or 'run'}-{name}" + ("" if part == "model" else "-checkpoint")
        lines = [f"{file} {facts['bytes']} {facts['sha256']}\n" for file, facts in wanted.items()]
        digest = sha256("".join([f"{top}\n", *lines]).encode())  # all that the archive's bytes follow from
        segments = _segments(directory, wanted, top=top, part=part)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ActRefused(f"Checkpoint {name} of {run} is damaged: {error}. Choose another one.") from error
    return CheckpointArchive(segments, etag=f'"{digest.hexdigest()[:40]}"', file_name=f"{top}.tar")


def _segments(directory: Path, files: Mapping[str, Any], *, top: str, part: Part) -> list[_Segment]:
    segments: list[_Segment] = []
    position = 0

    def add(size: int, *, data: bytes = b"", file: IO[bytes] | None = None) -> None:
        nonlocal position
        segments.append(_Segment(position, size, data, file))
        position += size

    try:
        for name, facts in files.items():
            size = int(facts["bytes"])
            entry = tarfile.TarInfo(f"{top}/{name.removeprefix(_MODEL) if part == 'model' else name}")
            entry.size, entry.mode = size, 0o644
            header = entry.tobuf(tarfile.PAX_FORMAT)
            add(len(header), data=header)
            if size:
                add(size, file=_open_inside(directory, name, size))
            if padding := -size % tarfile.BLOCKSIZE:
                add(padding, data=bytes(padding))
        end = 2 * tarfile.BLOCKSIZE
        add(end + -(position + end) % tarfile.RECORDSIZE, data=bytes(end + -(position + end) % tarfile.RECORDSIZE))
    except BaseException:
        for segment in segments:
            if segment.file is not None:
                segment.file.close()
        raise
    return segments


def _open_inside(directory: Path, name: str, size: int) -> IO[bytes]:
    """A plain file of the checkpoint; a run directory that was imported may name anything. Raises ValueError, OSError."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or (directory / name).resolve() != directory.resolve() / name:
        raise ValueError(f"{name!r} is no file of it")
    descriptor = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != size:
        os.close(descriptor)
        raise ValueError(f"{name} does not have the recorded size")
    return os.fdopen(descriptor, "rb", buffering=0)
