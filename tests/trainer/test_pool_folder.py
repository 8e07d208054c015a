"""An exported pool folder is read as a pool: programs and hints by file name, and nothing that was altered or leads elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from trainer.config import PoolConfig
from trainer.errors import UserError
from trainer.fixed_pool import load_pool, read_environments

CODE = "class TankEnv:\r\n    pass  # é\n"


def entry(name: str = "game_00000_maths_ab.py", **fields: Any) -> dict[str, Any]:
    digest = sha256(CODE.encode()).hexdigest()
    return {"file_name": name, "sha256": digest, "skill": "Maths", "hint_status": "ok", **fields}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """``folder(entry(), …)``: a pool with these lines in its manifest; programs and hints of what they name."""

    def make(*entries: Any) -> Path:
        for name in ("games", "hints"):
            (tmp_path / name).mkdir(exist_ok=True)
        for one in entries:
            if isinstance(one, dict) and "/" not in one.get("file_name", "/"):
                (tmp_path / "games" / one["file_name"]).write_bytes(CODE.encode())
                if one.get("hint_status") == "ok":
                    (tmp_path / "hints" / f"{one['file_name'][:-3]}_hint.txt").write_text("Look left.")
        lines = [one if isinstance(one, str) else json.dumps(one) for one in entries]
        (tmp_path / "manifest.jsonl").write_text("\n".join(lines) + "\n")
        return tmp_path

    return make


def test_programs_and_hints_are_read_by_file_name(folder: Callable[..., Path]) -> None:
    path = folder(entry(), entry("game_00001_maths_cd.py", hint_status="failed", skill=None))
    first, second = read_environments(path, "pool")
    assert (first.id, first.skill, first.code, first.hint) == ("game_00000_maths_ab", "Maths", CODE, "Look left.")
    assert (second.id, second.skill, second.hint) == ("game_00001_maths_cd", "unknown", None)
    pool = load_pool(PoolConfig(path=str(path)))
    assert pool is not None and sorted(pool.environments) == [first.id, second.id]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{broken", "line 1 of manifest.jsonl is not JSON"), ("[1]", "no \"file_name\""), (entry("../secret.py"), "no \"file_name\""),
        (entry("/etc/passwd"), "no \"file_name\""), (entry(sha256="0" * 64), "not the program the manifest was written for"),
    ],
)  # fmt: skip
def test_what_is_damaged_or_leads_elsewhere_is_refused(folder: Callable[..., Path], line: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        read_environments(folder(line), "pool")


def test_missing_files_links_and_repeated_names_are_refused(folder: Callable[..., Path]) -> None:
    path = folder(entry())
    hint = path / "hints" / "game_00000_maths_ab_hint.txt"
    hint.unlink()
    with pytest.raises(UserError, match=r"cannot read game_00000_maths_ab_hint\.txt"):
        read_environments(path, "pool")
    hint.symlink_to("/etc/hostname")
    with pytest.raises(UserError, match="is a link"):
        read_environments(path, "pool")
    hint.unlink()
    with pytest.raises(UserError, match="is there twice"):
        read_environments(folder(entry(), entry()), "pool")
