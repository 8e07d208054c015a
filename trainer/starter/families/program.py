"""What all families share: the skeleton of an environment program, and the interface of a family.

Identifiers are canonical (`self.turn`, `self.low`, `self.goal` …) because a model of a million parameters cannot keep free names
consistent over forty lines (measured: 3 % running programs with free names, over 70 % with fixed ones). What varies is rules,
numbers, branches and the words taken from the document.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

LEVELS = ("easy", "medium", "hard")
NUMBER_PARSER = (
    '        match = re.search(r"boxed\\{(\\d\\d?)\\}", action)',
    "        move = int(match.group(1)) if match else -1",
)
WORD_PARSER = (
    '        match = re.search(r"boxed\\{(\\w+)\\}", action)',
    '        move = match.group(1) if match else ""',
)
NUMBER_ASK = "Send \\\\boxed{{N}}."


@dataclass(frozen=True, slots=True)
class Theme:
    """What the document lends: two of its words (capitalised) and its small numbers."""

    thing: str
    place: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """One drawn environment: its source, its hint, and the rule the informed player is told."""

    family: str
    class_name: str
    source: str
    hint: str
    rule: str


@dataclass(frozen=True, slots=True)
class Past:
    """One past turn as a player remembers it: the move, the note it earned, and the environment's attributes before it."""

    move: str
    note: str
    before: dict[str, Any]


class Family(Protocol):
    """One kind of environment."""

    @property
    def name(self) -> str:
        """The word before `Env` in class names."""

    @property
    def skills(self) -> tuple[str, ...]:
        """Skills the family trains."""

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        """A program of this family at `level`."""

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        """The strategic move in the current state of `env`.

        `rule` is the program's rule for an informed player and "" for one who must infer it; `seen` is the player's own memory;
        the driver keeps the list of `Past` turns under "history" in it.
        """

    def poor(self, env: Any, rng: random.Random) -> str:
        """A legal move without strategy."""


def assemble(
    *,
    family: str,
    theme: Theme,
    summary: str,
    turns: int,
    knobs: Sequence[str],
    start: Sequence[str],
    show: str,
    update: Sequence[str],
    solution: str,
    parser: Sequence[str] = NUMBER_PARSER,
    extra: Sequence[str] = (),
) -> str:
    """The program text (spec 3); `knobs`, `start` and `update` are lines without indentation, `show` is an f-string body."""
    body = "        "
    lines = [
        "import random",
        "import re",
        "",
        "",
        f"class {theme.thing}{family}Env:",
        f'    """{summary}"""',
        "",
        f"    def __init__(self, max_turns={turns}, **kwargs):",
        f"        self.max_turns = min(max_turns, {turns})",
        *(body + line for line in knobs),
        "",
        "    def reset(self, seed=None):",
        "        self.rng = random.Random(seed)",
        "        self.turn = 0",
        '        self.note = "Start."',
        *(body + line for line in start),
        "        return self.show(), {}",
        "",
        *extra,
        "    def show(self):",
        f'        return f"{{self.note}} {show}"',
        "",
        "    def step(self, action):",
        "        self.turn += 1",
        *parser,
        *(body + line for line in update),
        "        done = won or self.turn >= self.max_turns",
        "        return self.show(), float(won), done, False, {}",
        "",
        "    def close(self):",
        "        self.rng = None",
        "",
        "    def solution(self):",
        f"        return {solution}",
    ]
    return "\n".join(lines)


def boxed(value: object) -> str:
    """The action as the agent writes it."""
    return f"\\boxed{{{value}}}"


def near(rng: random.Random, theme: Theme, low: int, high: int) -> int:
    """A number in [low, high]: one of the document's where one fits (half of the time), else any."""
    fitting = [number for number in theme.numbers if low <= number <= high]
    return rng.choice(fitting) if fitting and rng.random() < 0.5 else rng.randint(low, high)
