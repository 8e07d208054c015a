"""What other features offer for a setting of the start form, and what they refuse. The form itself comes from the trainer's model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.runs.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A value of a setting, in people's words."""

    value: str
    label: str


_SOURCES: dict[str, Callable[[], Sequence[Suggestion]]] = {}
_GUARDS: dict[str, Callable[[str], str]] = {}


def suggest(path: str, source: Callable[[], Sequence[Suggestion]]) -> None:
    """Have the form offer what ``source`` returns for the setting at ``path``."""
    _SOURCES[path] = source


def guard(path: str, why_not: Callable[[str], str]) -> None:
    """Have new runs refused when ``why_not`` says something about the text of the setting at ``path``."""
    _GUARDS[path] = why_not


def suggestions_for(path: str) -> list[Suggestion]:
    """What the form offers for a setting; nothing for most."""
    source = _SOURCES.get(path)
    return list(source()) if source else []


def refused(values: dict[str, Any], inherited: dict[str, Any] | None = None) -> list[Problem]:
    """What guards say against the settings of a new run; what it has from the run it was made from is let through."""
    problems = []
    for path, why_not in _GUARDS.items():
        value = _at(values, path)
        if inherited is not None and _at(inherited, path) == value:
            continue
        if problem := why_not(str(value)):
            problems.append(Problem(path, problem))
    return problems


def _at(values: dict[str, Any], path: str) -> Any:
    value: Any = values
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
