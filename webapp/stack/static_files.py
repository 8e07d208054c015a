"""Whether the collected static files are still the present ones: collecting compresses each, which takes seconds."""

import hashlib
import importlib.metadata
from pathlib import Path

from webapp.stack.paths import REPOSITORY, Home

_PACKAGES_WITH_FILES = ("django", "django-htmx", "whitenoise")


def fingerprint(repository: Path = REPOSITORY) -> str:
    """Changes when one of our static files, the settings or a package that brings static files does."""
    digest = hashlib.sha256(str(repository).encode())
    files = [repository / "requirements" / "base.txt", *(repository / "webapp" / "settings").glob("*.py")]
    for directory in (repository / "static", *(repository / "webapp").glob("*/static")):
        files += [path for path in directory.rglob("*") if path.is_file()]
    for path in sorted(files):
        status = path.stat()
        digest.update(f"{path.relative_to(repository)} {status.st_size} {status.st_mtime_ns}\n".encode())
    for package in _PACKAGES_WITH_FILES:
        digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
    return digest.hexdigest()


def are_collected(home: Home) -> bool:
    """Whether the last complete collection was of the present files."""
    stamp = _stamp(home)
    return stamp.exists() and stamp.read_text() == fingerprint() and (home.root / "static").is_dir()


def mark_collected(home: Home) -> None:
    """Remember that the present files have been collected."""
    part = _stamp(home).with_suffix(".part")
    part.write_text(fingerprint())
    part.rename(_stamp(home))


def _stamp(home: Home) -> Path:
    return home.root / "static.collected"
