"""Programs of the evaluation sets: known families with knobs beyond what the built-in model was taught, and families it never saw.

Nothing here enters pre-training or a run. The new families speak the same words as the known ones ("from 21 to 30", "is closer"),
because a model of a million parameters cannot act on words it has never met; what they ask for is new.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from trainer.starter.families.program import NUMBER_ASK, WORD_PARSER, Theme, assemble
from trainer.starter.families.spatial import WAY_ASK


@dataclass(frozen=True, slots=True)
class Unseen:
    """A family the built-in model was never taught."""

    name: str
    skill: str
    draw: Callable[[random.Random, Theme], str]


def with_knob(source: str, name: str, value: int) -> str:
    """The program with `self.<name> = <number>` set to another number. Raises `ValueError` unless there is exactly one such line."""
    return _replaced(source, rf"(        self\.{name} = )\d+$", rf"\g<1>{value}", times=1)


def with_turns(source: str, turns: int) -> str:
    """The program with another turn budget."""
    source = _replaced(source, r"(def __init__\(self, max_turns=)\d+", rf"\g<1>{turns}", times=1)
    return _replaced(source, r"(self\.max_turns = min\(max_turns, )\d+", rf"\g<1>{turns}", times=1)


def _replaced(source: str, pattern: str, by: str, *, times: int) -> str:
    changed, count = re.subn(pattern, by, source, flags=re.MULTILINE)
    if count != times:
        raise ValueError(f"{pattern} stands {count} times in the program, not {times}")
    return changed


def harder(family: str, source: str, rng: random.Random) -> str:
    """A program of a known family with knobs outside the range the families draw from. Raises `KeyError` for another family."""
    return _HARDER[family](source, rng)


def _search(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(source, "width", rng.randint(17, 24)), 6)  # taught: 7 to 15


def _gauge(source: str, rng: random.Random) -> str:
    return with_turns(
        with_knob(with_knob(source, "size", 6), "need", 4), rng.randint(4, 5)
    )  # taught: need 2, 3; size 3 to 5


def _lock(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(with_knob(source, "size", rng.randint(7, 8)), "need", 2), 10)  # taught: 4 to 6


def _pairs(source: str, rng: random.Random) -> str:
    lamps = _replaced(source, r'list\("[a-f]+"\)', 'list("abcdef")', times=1)
    return with_turns(with_knob(with_knob(lamps, "size", 6), "need", 3), rng.randint(8, 10))  # taught: 3 to 5


def _grid(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(source, "reach", 7), rng.randint(9, 10))  # taught: 3 to 6


def _compass(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(source, "need", 6), rng.randint(7, 8))  # taught: 2 to 5


def _series(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(source, "need", 5), rng.randint(6, 7))  # taught: 2 to 4


def _rule(source: str, rng: random.Random) -> str:
    return with_turns(
        with_knob(with_knob(source, "size", 5), "need", 4), rng.randint(4, 5)
    )  # taught: need 2, 3; size 3, 4


def _best(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(with_knob(source, "size", 5), "slack", rng.randint(3, 6)), 9)  # taught: 3, 4


def _filter(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(source, "need", 4), 10 if "offer ==" in source else rng.randint(7, 8))  # taught: 2, 3


def _switch(source: str, rng: random.Random) -> str:
    return with_turns(with_knob(with_knob(source, "size", 7), "on", rng.randint(4, 5)), 10)  # taught: 4 to 6


def _delay(source: str, rng: random.Random) -> str:
    larger = _replaced(
        source, r"(self\.gap = 2 \* self\.rng\.randint\()3, \d+", rf"\g<1>8, {rng.randint(11, 14)}", times=1
    )
    return with_turns(with_knob(larger, "need", 5), 7)  # taught: need 3, 4 and up to 9


_HARDER: dict[str, Callable[[str, random.Random], str]] = {
    "Search": _search, "Gauge": _gauge, "Lock": _lock, "Pairs": _pairs, "Grid": _grid, "Compass": _compass, "Series": _series,
    "Rule": _rule, "Best": _best, "Filter": _filter, "Switch": _switch, "Delay": _delay,
}  # fmt: skip


def _drift(rng: random.Random, theme: Theme) -> str:
    """A hidden number that moves by one after every miss; the shown interval grows on both sides with it."""
    return assemble(
        family="Drift",
        theme=theme,
        summary=f"Find the hidden {theme.thing}; it moves one step after every miss.",
        turns=rng.randint(7, 8),
        knobs=[f"self.start = {rng.randint(21, 25)}", f"self.width = {rng.randint(7, 10)}"],
        start=[
            "self.low = self.start + self.rng.randint(0, 5)",
            "self.high = self.low + self.width",
            "self.goal = self.rng.randint(self.low, self.high)",
        ],
        show=f"{theme.thing} lies from {{self.low}} to {{self.high}}. {NUMBER_ASK}",
        update=[
            "won = move == self.goal",
            "if self.low <= move < self.goal:",
            "    self.low = move + 1",
            '    self.note = "Too low."',
            "elif self.goal < move <= self.high:",
            "    self.high = move - 1",
            '    self.note = "Too high."',
            "else:",
            '    self.note = "Found." if won else "Outside."',
            "if not won:",
            "    self.goal += self.rng.choice([-1, 1])",
            "    self.low -= 1",
            "    self.high += 1",
        ],
        solution="[str(self.goal)]",
    )


def _relay(rng: random.Random, theme: Theme) -> str:
    """Two hidden numbers, one after the other, each in an interval of its own."""
    width = rng.randint(5, 7)
    return assemble(
        family="Relay",
        theme=theme,
        summary=f"Find every {theme.thing} of the {theme.place}, one after the other.",
        turns=rng.randint(7, 8),
        knobs=[f"self.width = {width}", "self.need = 2"],
        start=[
            "self.marks = [self.rng.randint(21, 32) for _ in range(self.need)]",
            "self.goals = [mark + self.rng.randint(0, self.width) for mark in self.marks]",
            "self.found = 0",
            "self.low = self.marks[0]",
            "self.high = self.low + self.width",
        ],
        show=f"{theme.thing} lies from {{self.low}} to {{self.high}}, found {{self.found}} of {{self.need}}. {NUMBER_ASK}",
        update=[
            "goal = self.goals[self.found % self.need]",
            "if move == goal:",
            "    self.found += 1",
            "    self.low = self.marks[self.found % self.need]",
            "    self.high = self.low + self.width",
            '    self.note = "Found."',
            "elif self.low <= move < goal:",
            "    self.low = move + 1",
            '    self.note = "Too low."',
            "elif goal < move <= self.high:",
            "    self.high = move - 1",
            '    self.note = "Too high."',
            "else:",
            '    self.note = "Outside."',
            "won = self.found >= self.need",
        ],
        solution="[str(goal) for goal in self.goals]",
    )


def _wells(rng: random.Random, theme: Theme) -> str:
    """Sources whose yield falls with every draw: the best one changes, and what is on the board is what the next draw gives."""
    return assemble(
        family="Wells",
        theme=theme,
        summary=f"Draw enough from the {theme.thing} of the {theme.place}; every draw leaves less.",
        turns=rng.randint(6, 7),
        knobs=[
            f"self.size = {rng.randint(3, 4)}",
            f"self.wear = {rng.randint(2, 3)}",
            f"self.slack = {rng.randint(2, 4)}",
        ],
        start=[
            "self.low = self.rng.randint(21, 29)",
            "self.gains = self.rng.sample(range(3, 12), self.size)",
            'self.seen = ["?"] * self.size',
            "self.total = 0",
            "self.goal = sum(gain for _, gain in self.plan()) - self.slack",
        ],
        show=f"{theme.thing} yields{{self.table()}}, total {{self.total}} of {{self.goal}}. {NUMBER_ASK}",
        extra=[
            "    def plan(self):",
            "        left, moves = list(self.gains), []",
            "        for _ in range(self.max_turns):",
            "            i = left.index(max(left))",
            "            moves.append((i, left[i]))",
            "            left[i] = max(0, left[i] - self.wear)",
            "        return moves",
            "",
            "    def table(self):",
            '        return "".join(f" {self.low + i}:{gain}" for i, gain in enumerate(self.seen))',
            "",
        ],
        update=[
            "i = move - self.low",
            "if 0 <= i < self.size:",
            "    self.total += self.gains[i]",
            '    self.note = f"{move} gave {self.gains[i]}."',
            "    self.gains[i] = max(0, self.gains[i] - self.wear)",
            "    self.seen[i] = self.gains[i]",
            "else:",
            '    self.note = "Unclear."',
            "won = self.total >= self.goal",
        ],
        solution="[str(self.low + i) for i, _ in self.plan()]",
    )


def _return(rng: random.Random, theme: Theme) -> str:
    """Walk to a hidden cell and back to where the walk began."""
    reach = rng.randint(3, 4)
    return assemble(
        family="Return",
        theme=theme,
        summary=f"Walk to the hidden {theme.thing} near the {theme.place} and back again.",
        turns=min(10, 2 * reach + rng.randint(2, 3)),
        knobs=[f"self.reach = {reach}"],
        start=[
            "self.x = self.rng.randint(21, 39)",
            "self.y = self.rng.randint(21, 39)",
            "across = self.rng.randint(1, self.reach - 1)",
            "self.home_x, self.home_y = self.x, self.y",
            "self.goal_x = self.x + self.rng.choice([-1, 1]) * across",
            "self.goal_y = self.y + self.rng.choice([-1, 1]) * (self.reach - across)",
            "self.found = 0",
        ],
        show=f"At {{self.x}} {{self.y}} the {theme.thing} is {{self.gap(self.x, self.y)}} away. {WAY_ASK}",
        extra=[
            "    def gap(self, x, y):",
            "        return abs(self.goal_x - x) + abs(self.goal_y - y)",
            "",
        ],
        parser=WORD_PARSER,
        update=[
            'ways = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}',
            "x, y = ways.get(move, (0, 0))",
            "if self.gap(self.x + x, self.y + y) < self.gap(self.x, self.y):",
            "    self.x += x",
            "    self.y += y",
            '    self.note = f"{move} is closer."',
            "else:",
            '    self.note = f"{move[:9]} is blocked."',
            "if self.gap(self.x, self.y) == 0:",
            "    self.found += 1",
            "    self.goal_x, self.goal_y = self.home_x, self.home_y",
            "won = self.found >= 2",
        ],
        solution=(
            '["east" if self.goal_x > self.x else "west"] * abs(self.goal_x - self.x)'
            ' + ["north" if self.goal_y > self.y else "south"] * abs(self.goal_y - self.y)'
            ' + ["west" if self.goal_x > self.x else "east"] * abs(self.goal_x - self.x)'
            ' + ["south" if self.goal_y > self.y else "north"] * abs(self.goal_y - self.y)'
        ),
    )


UNSEEN = (
    Unseen("Drift", "Mathematical Reasoning", _drift),
    Unseen("Relay", "Logical Deduction", _relay),
    Unseen("Wells", "Optimization", _wells),
    Unseen("Return", "Spatial Reasoning", _return),
)
