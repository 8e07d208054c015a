"""The archive of a pool: the same bytes whenever the same environments with the same records are exported.

An uncompressed tar: compressed bytes depend on the machine's zlib. No times, no owners, files in the order of their names.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from django.conf import settings

ROOT = "spade-pool"
CHECKSUMS = "checksums.sha256"


def archive_path(*, pool_id: int) -> Path:
    """Where the archive of a pool lies once it is built."""
    return Path(settings.SPADEWORK_HOME) / "pools" / f"{pool_id}.tar"


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Lines that ``sha256sum -c checksums.sha256`` takes, in the order of the names."""
    return "".join(f"{sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()


def write_archive(*, path: Path, files: Mapping[str, bytes]) -> tuple[int, str]:
    """Write ``files`` (name inside the pool → content) with their checksums; aside, then renamed. Returns bytes and SHA-256."""
    complete = {**files, CHECKSUMS: checksums(files)}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    with tarfile.open(aside, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(complete):
            entry = tarfile.TarInfo(f"{ROOT}/{name}")
            entry.size = len(complete[name])
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(complete[name]))
    digest = sha256()
    with aside.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    size = aside.stat().st_size
    aside.rename(path)
    return size, digest.hexdigest()
