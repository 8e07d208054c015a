"""Settings of runs as forms need them: presets, overrides by dotted name, problems by setting. The trainer's model decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trainer.config import RunConfig
from trainer.presets import load_preset, preset_names
from webapp.runs.errors import InvalidConfig, Problem
from webapp.runs.hardware import gpus
from webapp.runs.storable import storable_text


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """A preset and whether a run of it can start here; `why_not` is "" when it can."""

    name: str
    config: RunConfig
    why_not: str

    @property
    def description(self) -> str:
        """What the preset is for."""
        return self.config.description

    @property
    def available(self) -> bool:
        """True when a run of it can start here."""
        return not self.why_not


def presets() -> list[PresetChoice]:
    """All presets, the ones for everyday use first. Raises trainer.errors.UserError when a preset file is broken."""
    configs = [(name, load_preset(name)) for name in preset_names()]
    return [PresetChoice(name, config, why_not_startable(config)) for name, config in configs]


def why_not_startable(config: RunConfig) -> str:
    """Why a run of these settings cannot start on this machine, "" when it can."""
    if config.needs_gpu and not gpus():
        return "It needs a CUDA GPU and none was found on this machine; start it where there is one, or choose demo."
    return ""


def read_config(*, preset: str, overrides: Mapping[str, Any]) -> RunConfig:
    """The preset with settings replaced by dotted name. Raises InvalidConfig with one problem per wrong setting."""
    if preset not in preset_names():
        raise InvalidConfig([Problem("preset", f"there is no preset {preset!r}")])
    return apply_overrides(load_preset(preset), overrides)


def apply_overrides(config: RunConfig, overrides: Mapping[str, Any]) -> RunConfig:
    """The settings with some replaced, validated as a whole. Raises InvalidConfig with one problem per wrong setting."""
    values = config.model_dump(mode="json")
    unknown = [path for path, value in overrides.items() if not _replace(values, path, value)]
    if unknown:
        raise InvalidConfig([Problem(path, "there is no such setting") for path in unknown])
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> RunConfig:
    """Settings from plain values, with texts that can be stored as they are. Raises InvalidConfig."""
    unstorable = [
        Problem(path, "it holds a NUL or another character that no text may have") for path in _unstorable(values, "")
    ]
    if unstorable:
        raise InvalidConfig(unstorable)
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise InvalidConfig([_problem(item["loc"], item["msg"]) for item in error.errors()]) from error


def _replace(values: dict[str, Any], path: str, value: Any) -> bool:
    *sections, name = path.split(".")
    holder: Any = values
    for section in sections:
        holder = holder.get(section) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or name not in holder or isinstance(holder[name], dict):
        return False
    holder[name] = value
    return True


def _unstorable(value: Any, path: str) -> Iterator[str]:
    """Dotted names of the settings whose text Postgres does not take."""
    if isinstance(value, str) and storable_text(value) != value:
        yield path
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _unstorable(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _unstorable(inner, path)


def _problem(location: tuple[int | str, ...], message: str) -> Problem:
    path = ".".join(str(part) for part in location if not isinstance(part, int))
    return Problem(path, message.removeprefix("Value error, "))
