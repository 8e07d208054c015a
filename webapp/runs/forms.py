"""The start form, generated from the trainer's settings model: sections, types, ranges, units and help come from its schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.http import QueryDict

from trainer.config import RunConfig
from webapp.runs.errors import Problem
from webapp.runs.suggestions import Suggestion, suggestions_for

#: Settings that describe the settings; they come with the preset and are not asked for.
NOT_ASKED = frozenset({"format_version", "preset", "description", "needs_gpu"})
#: Sections most people change; the others are folded.
FIRST_SECTIONS = ("run", "schedule")
_TITLES = {"run": "Run", "optim": "Optimiser", "gates": "Gates", "corpus": "Corpus", "model": "Model"}
_TOO_LARGE_TO_SAY = 1e15  # the seed's upper limit tells nobody anything
_PATH = re.compile(r"\b[a-z0-9_]+(?:\.[a-z0-9_]+)+\b|\b[a-z_]+\b")


@dataclass(frozen=True, kw_only=True)
class SettingSpec:
    """One setting as the schema describes it. ``kind``: int, float, bool, choice, list or text."""

    path: str
    name: str
    kind: str
    help: str
    unit: str
    limits: str
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The setting's own name, with spaces; the unit stands beside the control."""
        words = self.name.removesuffix("_s").removesuffix("_bytes") if self.unit in ("s", "bytes") else self.name
        return words.replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class SectionSpec:
    """A group of settings."""

    key: str
    title: str
    settings: tuple[SettingSpec, ...]


@cache
def sections() -> tuple[SectionSpec, ...]:
    """Every setting that is asked for, grouped as in the model; the ungrouped ones first under "Run"."""
    schema = RunConfig.model_json_schema()
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    loose: list[SettingSpec] = []
    groups: list[SectionSpec] = []
    for name, node in schema["properties"].items():
        if name in NOT_ASKED:
            continue
        reference = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", ()) if "$ref" in part), "")
        if not reference:
            loose.append(_setting(name, name, node))
            continue
        inner = definitions[reference.rsplit("/", 1)[-1]]["properties"]
        settings = tuple(_setting(f"{name}.{key}", key, child) for key, child in inner.items())
        groups.append(SectionSpec(key=name, title=_TITLES.get(name, name.capitalize()), settings=settings))
    groups.sort(key=lambda group: group.key not in FIRST_SECTIONS)
    return (SectionSpec(key="run", title=_TITLES["run"], settings=tuple(loose)), *groups)


def specs() -> Iterator[SettingSpec]:
    """Every setting that is asked for."""
    for section in sections():
        yield from section.settings


def _setting(path: str, name: str, node: Mapping[str, Any]) -> SettingSpec:
    choices = tuple(str(choice) for choice in node.get("enum", [node["const"]] if "const" in node else ()))
    kinds = {"integer": "int", "number": "float", "boolean": "bool", "array": "list"}
    kind = "choice" if choices else kinds.get(str(node.get("type")), "text")
    return SettingSpec(
        path=path, name=name, kind=kind, help=str(node.get("description", "")), unit=str(node.get("unit", "")),
        limits=_limits(node), choices=choices,
    )  # fmt: skip


def _limits(node: Mapping[str, Any]) -> str:
    low, above = node.get("minimum"), node.get("exclusiveMinimum")
    high, below = node.get("maximum"), node.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{_plain(low)} to {_plain(high)}"
    bounds = (("≥", low), (">", above), ("≤", high), ("<", below))
    return ", ".join(
        f"{sign} {_plain(value)}" for sign, value in bounds if value is not None and abs(value) < _TOO_LARGE_TO_SAY
    )


def _plain(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else f"{int(value)}"


def setting_text(value: Any) -> str:
    """A setting's value as its control holds it."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def setting_value(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of dumped settings; None where there is none."""
    value: Any = config
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


@dataclass(slots=True, kw_only=True)
class BoundSetting:
    """A setting with what the control holds, what it started from and what is wrong with it."""

    spec: SettingSpec
    text: str
    base: str
    errors: list[str] = field(default_factory=list)
    suggestions: list[Suggestion] = field(default_factory=list)

    @property
    def is_suggested(self) -> bool:
        """True when the control holds one of the suggested values."""
        return any(one.value == self.text for one in self.suggestions)

    @property
    def is_changed(self) -> bool:
        """True when the control says something else than what it started from."""
        return not _same(self.spec.kind, self.text, self.base)

    @property
    def html_id(self) -> str:
        """Id of the control."""
        return "set-" + self.spec.path.replace(".", "-")


@dataclass(slots=True, kw_only=True)
class BoundSection:
    """A section of bound settings."""

    spec: SectionSpec
    settings: list[BoundSetting]

    @property
    def is_open(self) -> bool:
        """Shown unfolded: the first sections, and any with an error or a change."""
        return self.spec.key in FIRST_SECTIONS or any(one.errors or one.is_changed for one in self.settings)

    @property
    def changed(self) -> int:
        """How many settings differ from what they started from."""
        return sum(setting.is_changed for setting in self.settings)


def _same(kind: str, text: str, base: str) -> bool:
    if kind in ("int", "float"):
        try:
            return math.isclose(float(text), float(base), rel_tol=1e-12, abs_tol=0.0)
        except ValueError:
            return text.strip() == base
    if kind == "list":
        return _lines(text) == _lines(base)
    return text.strip() == base.strip()


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


class SettingsForm:
    """What was typed, against the settings it started from."""

    def __init__(
        self, base: RunConfig, data: QueryDict | None = None, prefill: Mapping[str, str] | None = None
    ) -> None:
        values = base.model_dump(mode="json")
        self.general: list[str] = []
        self.sections = [
            BoundSection(spec=section, settings=[_bind(spec, values, data, prefill or {}) for spec in section.settings])
            for section in sections()
        ]

    def settings(self) -> Iterator[BoundSetting]:
        """All bound settings."""
        for section in self.sections:
            yield from section.settings

    def overrides(self) -> dict[str, Any]:
        """What was changed, as ``webapp.runs.configuration`` takes it; numbers stay text for the trainer's own validation."""
        return {one.spec.path: _value(one) for one in self.settings() if one.is_changed}

    def add_problems(self, problems: Sequence[Problem]) -> None:
        """Put each problem at its setting; one that names several settings goes to each of them and to the top."""
        by_path = {one.spec.path: one for one in self.settings()}
        for problem in problems:
            if problem.path in by_path:
                by_path[problem.path].errors.append(_kinder(problem.message, by_path[problem.path]))
                continue
            self.general.append(f"{problem.path}: {problem.message}" if problem.path else problem.message)
            for path in dict.fromkeys(_PATH.findall(problem.message)):
                if path in by_path:
                    by_path[path].errors.append(problem.message)

    @property
    def error_count(self) -> int:
        """How many settings have a problem."""
        return sum(bool(one.errors) for one in self.settings())

    @property
    def changed(self) -> int:
        """How many settings differ from what they started from."""
        return sum(section.changed for section in self.sections)

    @property
    def changes(self) -> list[BoundSetting]:
        """The settings that differ from what they started from."""
        return [one for one in self.settings() if one.is_changed]


def _bind(
    spec: SettingSpec, values: Mapping[str, Any], data: QueryDict | None, prefill: Mapping[str, str]
) -> BoundSetting:
    base = setting_text(setting_value(values, spec.path))
    suggestions = suggestions_for(spec.path)
    if data is None:
        return BoundSetting(spec=spec, text=prefill.get(spec.path, base), base=base, suggestions=suggestions)
    if suggestions:
        typed = data.get(spec.path, base) or ""
        # What was typed comes first: a browser without scripts sends the list's choice along unchanged.
        chosen = typed if typed.strip() != base else data.get(f"{spec.path}:chosen") or typed
        return BoundSetting(spec=spec, text=chosen, base=base, suggestions=suggestions)
    if spec.kind == "bool":
        return BoundSetting(spec=spec, text="true" if spec.path in data else "false", base=base)
    return BoundSetting(spec=spec, text=data.get(spec.path, base) or "", base=base)


def _value(one: BoundSetting) -> Any:
    if one.spec.kind == "bool":
        return one.text == "true"
    if one.spec.kind == "list":
        return _lines(one.text)
    return one.text.strip()


def _kinder(message: str, one: BoundSetting) -> str:
    """The validator's sentence, with what was typed and what is allowed."""
    allowed = f"; allowed: {one.spec.limits}" if one.spec.limits and one.spec.limits not in message else ""
    unit = f" {one.spec.unit}" if one.spec.unit and allowed else ""
    return f"{message}{allowed}{unit}"
