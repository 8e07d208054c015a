"""Presets: settings as data. One TOML file each, holding what differs from the defaults of `trainer.config`; torch-free."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from trainer.config import PRESET_DIRECTORY, RunConfig
from trainer.errors import UserError

_BASE = "base"  # a preset may name another one it starts from


def preset_names() -> list[str]:
    """Names of all presets, the ones for everyday use first."""
    names = sorted(p.stem for p in PRESET_DIRECTORY.glob("*.toml"))
    first = [n for n in ("demo", "tiny") if n in names]
    return first + [n for n in names if n not in first]


def load_preset(name: str) -> RunConfig:
    """The settings of a preset. Raises `UserError` for an unknown name or a file that does not validate."""
    return validated({**_preset_values(name, ()), "preset": name}, where=f"preset {name}")


def with_overrides(config: RunConfig, overrides: Mapping[str, Any]) -> RunConfig:
    """The settings with dotted paths replaced, validated as a whole. Raises `UserError` naming an unknown path or bad value."""
    values = config.model_dump(mode="json")
    for path, value in overrides.items():
        *sections, field = path.split(".")
        target: Any = values
        for section in sections:
            target = target.get(section) if isinstance(target, dict) else None
        if not isinstance(target, dict) or field not in target or isinstance(target[field], dict):
            raise UserError(f"there is no setting {path!r}; `python -m trainer show-config demo` lists them all")
        target[field] = value
    return validated(values, where="the settings")


def validated(values: Mapping[str, Any], *, where: str) -> RunConfig:
    """A `RunConfig` from plain values; `UserError` with one line per problem otherwise."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise UserError(
            f"{where}: " + "; ".join(_problem(e["loc"], e["msg"], e["type"]) for e in error.errors())
        ) from error


def _problem(place: Sequence[int | str], message: str, kind: str) -> str:
    """One problem in our words: which setting, and what is wrong with it; contradictions name their settings themselves."""
    name = ".".join(str(part) for part in place)
    if kind == "extra_forbidden":
        return f"there is no setting {name!r}; `python -m trainer show-config demo` lists them all"
    said = message.removeprefix("Value error, ").replace("Input should", "it should")
    return f"{name}: {said}" if name else said


def _preset_values(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    path = PRESET_DIRECTORY / f"{name}.toml"
    if name not in preset_names():
        raise UserError(f"there is no preset {name!r}; choose one of {', '.join(preset_names())}")
    if name in seen:
        raise UserError(f"preset {name} starts from itself: {' -> '.join([*seen, name])}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"preset {name}: {path} is not valid TOML: {error}") from error
    base = values.pop(_BASE, None)
    return _merged(_preset_values(str(base), (*seen, name)), values) if base else values


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
