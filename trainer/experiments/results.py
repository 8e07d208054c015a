"""Results as small JSON files, one per run, in a folder per model: results/<model>/<arm>-<seed>.json and untouched.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.errors import UserError

FORMAT = 1
UNTOUCHED = "untouched"
EXPLORATIONS = "explorations.jsonl"
_T = TypeVar("_T", bound="Stored")


class Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rate(Stored):
    """Win rate on one set: mean over environments, half its 95 % interval, and what it rests on."""

    win_rate: float | None
    half_interval: float | None
    environments: int
    plays: int
    faults: int
    by_family: dict[str, float]


class Untouched(Stored):
    """The model before any training. `sets`: fingerprints of the evaluation sets."""

    format: int = FORMAT
    model: str
    parameters: int | None = None  # weights that are the same tensor count once; None: stored before this was measured
    sets: dict[str, str]
    evaluation: str  # fingerprint of the settings it was played with
    probe: Rate
    heldout: Rate
    seconds: float


class Result(Stored):
    """One run that ended. `curve`: metric name -> one value per rollout, None where nothing was measured.

    `rollouts` are those done; a run whose designer wrote no sound program any more has fewer, and is scored as it was then.
    """

    format: int = FORMAT
    arm: str
    seed: int
    model: str
    settings: str
    commit: str
    cores: int
    rollouts: int
    episodes_unhinted: int = Field(ge=0)
    episodes_hinted: int = Field(ge=0)
    episodes_faulted: int = Field(ge=0)
    probe_before: float | None
    heldout_before: float | None
    probe: Rate
    heldout: Rate
    probe_curve: dict[str, float | None]  # rollouts done -> win rate on the probe set
    curve: dict[str, list[float | None]]
    train_seconds: float
    evaluate_seconds: float
    ended_early: str | None = None  # why the run has fewer rollouts than it was to have


class Exploration(Stored):
    """One run with other settings, judged by the probe set alone: how settings are chosen without looking at the held-out set."""

    model: str
    commit: str
    changed: dict[str, Any]  # dotted setting -> value, over the SPADE arm
    seed: int
    rollouts: int
    probe_before: float | None
    probe_curve: dict[str, float | None]
    train_seconds: float
    ended_early: str | None = None


def append_exploration(results: Path, exploration: Exploration) -> None:
    """One more line in the log of explorations."""
    results.mkdir(parents=True, exist_ok=True)
    with (results / EXPLORATIONS).open("a", encoding="ascii") as file:
        file.write(json.dumps(exploration.model_dump(mode="json")) + "\n")


def read_explorations(results: Path) -> list[Exploration]:
    """All explorations, oldest first. Raises `UserError` for a broken line."""
    path = results / EXPLORATIONS
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [Exploration.model_validate_json(line) for line in lines if line.strip()]
    except ValidationError as error:
        raise UserError(f"{path} holds a line that is no exploration of this version: {error}") from error


def result_path(results: Path, model: str, arm: str, seed: int) -> Path:
    return results / model / f"{arm}-{seed}.json"


def write(path: Path, stored: Stored) -> None:
    """Aside, then renamed: an interruption leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(_compact(stored.model_dump(mode="json")) + "\n", encoding="ascii")
    aside.rename(path)


def read_result(path: Path) -> Result:
    """Raises `UserError` when the file is not a result of this version."""
    return _read(path, Result)


def read_untouched(path: Path) -> Untouched:
    """Raises `UserError` when the file is not an evaluation of this version."""
    return _read(path, Untouched)


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise UserError(
            f"{path} is no stored {kind.__name__.lower()} of this version ({error}); remove it or restore it"
        ) from error


def _compact(values: Mapping[str, Any]) -> str:
    """One key a line, lists on one line: small, and readable in a diff."""
    lines = [f" {json.dumps(key)}: {_value(value)}" for key, value in values.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def _value(value: Any) -> str:
    if isinstance(value, dict) and any(isinstance(v, list) for v in value.values()):
        inner = [f"  {json.dumps(key)}: {json.dumps(v)}" for key, v in value.items()]
        return "{\n" + ",\n".join(inner) + "\n }"
    return json.dumps(value)
