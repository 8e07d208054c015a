"""The archive of a pool: the same bytes whenever the same environments with the same records are exported.

An uncompressed tar: compressed bytes depend on the machine's zlib. No times, no owners, files in the order of their names.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from django.conf import settings

FILES_BETWEEN_LOOKS = 200  # two looks at whether the build is still wanted
ROOT = "spade-pool"
CHECKSUMS = "checksums.sha256"


def archive_path(*, pool_id: int) -> Path:
    """Where the archive of a pool lies once it is built."""
    return Path(settings.SPADEWORK_HOME) / "pools" / f"{pool_id}.tar"


def part_path(*, pool_id: int, lease: UUID) -> Path:
    """Where whoever holds the lease writes the archive before it is renamed: never a file that another worker writes too."""
    return archive_path(pool_id=pool_id).with_name(f"{pool_id}.{lease}.part")


def remove_parts(*, pool_id: int) -> None:
    """Remove what workers that died or lost their lease have begun."""
    for part in archive_path(pool_id=pool_id).parent.glob(f"{pool_id}.*.part"):
        part.unlink(missing_ok=True)


def remove_archive(*, pool_id: int) -> None:
    """Remove the archive and whatever was begun of it."""
    archive_path(pool_id=pool_id).unlink(missing_ok=True)
    remove_parts(pool_id=pool_id)


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Lines that ``sha256sum -c checksums.sha256`` takes, in the order of the names."""
    return "".join(f"{sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()


def write_archive(
    *, path: Path, files: Mapping[str, bytes], alive: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Write ``files`` (name inside the pool → content) with their checksums. Returns bytes and SHA-256.

    ``alive`` is called now and then; what it raises ends the writing.
    """
    complete = {**files, CHECKSUMS: checksums(files)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for number, name in enumerate(sorted(complete)):
            if number % FILES_BETWEEN_LOOKS == 0:
                alive()
            entry = tarfile.TarInfo(f"{ROOT}/{name}")
            entry.size = len(complete[name])
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(complete[name]))
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return path.stat().st_size, digest.hexdigest()
