"""Prompt sets: what the policy is told in each role. `full` for capable models, `compact` for the built-in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict


class Message(TypedDict):
    """One chat message, in the form every Hugging Face chat template takes."""

    role: str  # "system", "user" or "assistant"
    content: str


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A corpus document as the designer sees it: already cut to the word limit."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownExample:
    """A memory record shown as an example to differ from."""

    class_name: str
    skill: str
    success_share: float
    regret: float | None
    snippet: str


@dataclass(frozen=True, slots=True)
class ShownCounterExample:
    """A memory record named as too easy or too hard."""

    class_name: str
    reason: str  # "too easy" or "too hard"


class PromptSet(Protocol):
    """The four places where the loop speaks to the policy."""

    def design(
        self,
        *,
        skill: str,
        document: ShownDocument | None,
        examples: Sequence[ShownExample],
        counter_examples: Sequence[ShownCounterExample],
        max_turns: int,
    ) -> list[Message]:
        """Messages that ask the designer for one environment."""

    def hint(self, *, code: str) -> list[Message]:
        """Messages that ask for the hint of an environment whose source is shown."""

    def play(self, *, observation: str) -> list[Message]:
        """Messages that open an episode; `observation` already carries the hint in the hinted arm."""

    def inject_hint(self, *, observation: str, hint: str) -> str:
        """First observation of a hinted episode: the observation, a blank line, the word HINT and the text (spec 5)."""
