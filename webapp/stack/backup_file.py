"""The backup file: a tar with the database, files, and last a manifest with the checksum of each.

database.dump                what pg_dump --format=custom wrote
home/<path>                  files of the data directory
manifest.json                what is in it, see `Manifest`; a file without one was cut short
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from webapp.stack.errors import StackError

FORMAT = 1
DUMP = "database.dump"
HOME = "home"
MANIFEST = "manifest.json"
_PIECE_BYTES = 1 << 20
_MANIFEST_BYTES = 1 << 30
_ZIP_LEVEL = 3


@dataclass(kw_only=True)
class Entry:
    """One file: its name in the tar, how many of its bytes count (the rest is padding), the SHA-256 of all of them."""

    name: str
    bytes: int
    sha256: str


@dataclass(kw_only=True)
class Manifest:
    """What a backup holds. `schema` lists the database's migrations; `outside` the runs whose directories are not in it."""

    made_at: str
    home: str
    checkpoints: str
    postgres: int
    schema: list[list[str]]
    format: int = FORMAT
    outside: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    files: list[Entry] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        """What the files take when they are unpacked."""
        return sum(entry.bytes for entry in self.files)


class Writer:
    """Adds files to a backup that is being written."""

    def __init__(self, archive: tarfile.TarFile, manifest: Manifest) -> None:
        self._archive = archive
        self.manifest = manifest

    def add(self, path: Path, name: str) -> None:
        """Add a file as it is now: one that grows is cut at its present length, one that shrinks counts as far as it goes.

        A file that is gone (an old checkpoint) is noted as left out.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            self.manifest.left_out.append(name)
            return
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = status.st_size, int(status.st_mtime), status.st_mode & 0o700
            reader = _Exactly(file, status.st_size)
            self._archive.addfile(info, cast(BinaryIO, reader))
        self.manifest.files.append(Entry(name=name, bytes=reader.real, sha256=reader.digest.hexdigest()))

    def finish(self) -> None:
        """Add the manifest."""
        data = json.dumps(asdict(self.manifest), ensure_ascii=True).encode("ascii")
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode = len(data), 0o600
        info.pax_headers = {"SPADEWORK.sha256": hashlib.sha256(data).hexdigest()}
        self._archive.addfile(info, io.BytesIO(data))


class _Exactly:
    """Reads exactly as many bytes as a tar member has and hashes them; counts those that were really there."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size
        self.real, self.digest = 0, hashlib.sha256()

    def read(self, wanted: int) -> bytes:
        wanted = min(wanted, self._left)
        data = self._file.read(wanted)
        self._left -= wanted
        self.real += len(data)
        data = data.ljust(wanted, b"\0")
        self.digest.update(data)
        return data


@contextmanager
def writing(target: Path, manifest: Manifest) -> Iterator[Writer]:
    """A backup that appears as `target` when all of it is on the disk, and not at all when the block fails."""
    aside = target.with_name(f"{target.name}.part")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            is_zipped = target.name.endswith((".gz", ".tgz"))
            mode: Any = "w:gz" if is_zipped else "w"
            options: dict[str, Any] = {"compresslevel": _ZIP_LEVEL} if is_zipped else {}
            with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT, **options) as archive:
                writer = Writer(archive, manifest)
                yield writer
                writer.finish()
            file.flush()
            os.fsync(file.fileno())
        aside.rename(target)
    finally:
        aside.unlink(missing_ok=True)


def unpack(source: Path, target: Path | None) -> Manifest:
    """Read a backup from end to end, check every file against the manifest, and unpack it below `target` (None: only check).

    Raises:
        StackError: it is no backup, was cut short, was changed, or was made by a newer version.
    """
    found: dict[str, str] = {}
    manifest: Manifest | None = None
    try:
        with tarfile.open(source, mode="r|*") as archive:
            for member in archive:
                if not member.isreg() or manifest is not None:
                    raise StackError(f"{source} holds {member.name!r}, which no backup holds: it was changed")
                if member.name == MANIFEST:
                    manifest = _read_manifest(source, archive, member)
                    continue
                place = None if target is None else target / _inside(source, member.name)
                if member.name in found:
                    raise StackError(f"{source} holds {member.name!r} twice: it was changed")
                found[member.name] = _take(archive, member, place)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise StackError(f"{error.filename or source}: {error.strerror}") from error
        raise StackError(f"{source} is no backup, or was cut short ({error}): take another copy of it") from error
    if manifest is None:
        raise StackError(f"{source} has no manifest: it is no backup, or was cut short; take another copy of it")
    _compare(source, manifest, found, target)
    return manifest


def _read_manifest(source: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Manifest:
    if member.size > _MANIFEST_BYTES:
        raise StackError(f"the manifest of {source} has {member.size} bytes: it is no backup")
    file = archive.extractfile(member)
    data = file.read() if file is not None else b""
    if hashlib.sha256(data).hexdigest() != member.pax_headers.get("SPADEWORK.sha256"):
        raise StackError(
            f"the manifest of {source} does not have its checksum: the file is damaged; take another copy of it"
        )
    try:
        values = json.loads(data)
        if values["format"] != FORMAT:
            raise StackError(
                f"{source} has format {values['format']!r:.40} and this version reads {FORMAT}: use a newer Spadework"
            )
        return Manifest(**{**values, "files": [Entry(**entry) for entry in values["files"]]})
    except (ValueError, KeyError, TypeError) as error:
        raise StackError(
            f"the manifest of {source} cannot be understood ({error}): it is no backup of Spadework"
        ) from error


def _inside(source: Path, name: str) -> PurePosixPath:
    """The member's name as a path that stays below where it is unpacked."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or path.parts[:1] not in ((DUMP,), (HOME,)):
        raise StackError(f"{source} holds {name!r}, which leads out of the data directory: it was changed")
    return path


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path | None) -> str:
    """Read a member, into `place` if one is given; its SHA-256."""
    digest = hashlib.sha256()
    file = archive.extractfile(member)
    assert file is not None, "members are regular files"
    with ExitStack() as cleanup:
        output: BinaryIO | None = None
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 | (member.mode & 0o100))
            output = cleanup.enter_context(os.fdopen(descriptor, "wb"))
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            if output is not None:
                output.write(piece)
    if place is not None:
        os.utime(place, (member.mtime, member.mtime))
    return digest.hexdigest()


def _compare(source: Path, manifest: Manifest, found: dict[str, str], target: Path | None) -> None:
    """Every file of the manifest is there with its checksum, and nothing else; what padded a member is cut off."""
    wrong = [entry.name for entry in manifest.files if found.get(entry.name) != entry.sha256]
    extra = sorted(set(found) - {entry.name for entry in manifest.files})
    if wrong or extra or DUMP not in found:
        name = (wrong or extra or [DUMP])[0]
        raise StackError(f"{source} is damaged: {name} is not what the manifest says; take another copy of it")
    if target is None:
        return
    for entry in manifest.files:
        place = target / PurePosixPath(entry.name)
        status = place.stat()
        if status.st_size > entry.bytes:
            os.truncate(place, entry.bytes)
            os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
