"""The checked-in manifest of other people's front-end files (static/vendor/manifest.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

VENDOR_FOLDER = Path("static") / "vendor"


@dataclass(frozen=True, kw_only=True)
class VendoredPackage:
    """One package: where it lies, what it is, and the SHA-256 of each of its files."""

    name: str
    version: str
    licence: str
    source: str
    folder: str
    files: dict[str, str]
    licence_text: str


@cache
def licences() -> tuple[VendoredPackage, ...]:
    """Every vendored package of the manifest, in its order."""
    folder = settings.BASE_DIR / VENDOR_FOLDER
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return tuple(
        VendoredPackage(**entry, licence_text=(folder / entry["folder"] / "LICENSE").read_text(encoding="utf-8"))
        for entry in manifest["packages"]
    )
