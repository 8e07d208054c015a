"""What services and searches of runs refuse. The text says what happened, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ActRefused(Exception):
    """The act is not valid in the run's present state."""


class RunNotFound(Exception):
    """No run has this id."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with settings; `path` is the dotted name of the setting, "" for the settings as a whole."""

    path: str
    message: str


class InvalidConfig(Exception):
    """Settings that the trainer's own validation refuses."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{item.path}: {item.message}" if item.path else item.message for item in problems))


class SearchRefused(Exception):
    """A search pattern that is wrong, or that takes too long."""
