"""Reading a SPADE pool folder, as the Pools page exports it: `manifest.jsonl`, `games/*.py`, `hints/*_hint.txt`."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from trainer.errors import UserError

MANIFEST = "manifest.jsonl"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")


def is_pool_folder(path: Path) -> bool:
    """Whether the folder has a manifest and programs beside it."""
    return (path / MANIFEST).is_file() and (path / "games").is_dir()


def read_pool_folder(path: Path, name: str) -> list[dict[str, Any]]:
    """One record an entry, with `id`, `skill`, `code` and `hint` (None: it has none); the id is the program's file name without ending.

    Raises `UserError` naming the entry whose program is missing, altered or named in a way that leads elsewhere.
    """
    records = []
    for number, line in enumerate(_text(path / MANIFEST, name).splitlines(), start=1):
        where = f"pool.path: {name}: line {number} of {MANIFEST}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        file_name = entry.get("file_name") if isinstance(entry, dict) else None
        if not isinstance(file_name, str) or not _NAME.fullmatch(file_name):
            raise UserError(f'{where} has no "file_name" of a program in games/')
        stem = file_name.removesuffix(".py")
        code = _text(path / "games" / file_name, name)
        if entry.get("sha256") not in (None, hashlib.sha256(code.encode()).hexdigest()):
            raise UserError(
                f"{where}: games/{file_name} is not the program the manifest was written for; unpack the pool again"
            )
        hint = path / "hints" / f"{stem}_hint.txt"
        has_hint = entry.get("hint_status") == "ok" or ("hint_status" not in entry and hint.is_file())
        records.append(
            {"id": stem, "skill": entry.get("skill"), "code": code, "hint": _text(hint, name) if has_hint else None}
        )
    return records


def _text(file: Path, name: str) -> str:
    try:
        if file.is_symlink():
            raise UserError(f"pool.path: {name}: {file.name} is a link; a pool holds its own files")
        return file.read_bytes().decode()
    except OSError as error:
        raise UserError(f"pool.path: {name}: cannot read {file.name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"pool.path: {name}: {file.name} is not UTF-8 text") from error
