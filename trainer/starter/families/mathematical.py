"""Mathematical Reasoning: halving an interval, and reading a distance."""

from __future__ import annotations

import math
import random
from typing import Any

from trainer.starter.families.program import NUMBER_ASK, Program, Theme, assemble, boxed, near


class Search:
    """A hidden number in a shown interval that shrinks with every guess."""

    name = "Search"
    skills = ("Mathematical Reasoning",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("any", "any", "upper", "lower"))
        start = near(rng, theme, 21, 25)
        width = near(rng, theme, 7, 15)
        count = (width + 1) if rule == "any" else width // 2 + 1
        turns = math.ceil(math.log2(count + 1)) + {"easy": 1, "medium": 0, "hard": 0 if width % 2 else -1}[level]
        turns = max(2, min(turns, max_turns))
        middle = "(self.low + self.high) // 2"
        low, high = {"any": ("self.low", "self.high"), "upper": (middle, "self.high"), "lower": ("self.low", middle)}[
            rule
        ]
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Find the hidden {theme.thing} by its {theme.place}.",
            turns=turns,
            knobs=[f"self.start = {start}", f"self.width = {width}"],
            start=[
                "self.low = self.start + self.rng.randint(0, 5)",
                "self.high = self.low + self.width",
                f"self.goal = self.rng.randint({low}, {high})",
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
            ],
            solution="[str(self.goal)]",
        )
        where = {
            "any": "",
            "upper": "It hides in the upper half of the first interval. ",
            "lower": "It hides in the lower half of the first interval. ",
        }
        hint = f"{where[rule]}Always send the middle of what is left. Answer as \\boxed{{N}}."
        return Program(self.name, f"{theme.thing}{self.name}Env", source, hint, rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        low, high = seen.setdefault("first", (env.low, env.high))
        middle = (low + high) // 2
        low = max(env.low, middle if rule == "upper" else low)
        high = min(env.high, middle if rule == "lower" else high)
        return boxed((low + high) // 2)

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice((env.low, min(env.low + 1, env.high), env.high, rng.randint(env.low, env.high))))


class Gauge:
    """Several readings, one of them true; its size tells which, and every turn shows afterwards which it was."""

    name = "Gauge"
    skills = ("Mathematical Reasoning",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("max", "min"))
        size = near(rng, theme, 3, 5)
        need = {"easy": 2, "medium": 3, "hard": 3}[level]
        turns = min(need + {"easy": rng.randint(0, 1), "medium": rng.randint(0, 1), "hard": 0}[level], max_turns)
        gap = rng.randint(2, 3)
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Tell the true reading of the {theme.thing} in the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}", f"self.size = {size}"],
            start=[
                f"self.rows = [self.rng.sample(range(21, 49, {gap}), self.size) for _ in range(self.max_turns)]",
                "self.found = 0",
            ],
            show=f"{theme.thing} reads {{self.row()}}, right {{self.found}} of {{self.need}}. {NUMBER_ASK}",
            extra=[
                "    def row(self):",
                "        return self.rows[self.turn % self.max_turns]",
                "",
                "    def goal(self, row):",
                f"        return {rule}(row)",
                "",
            ],
            update=[
                "row = self.rows[(self.turn - 1) % self.max_turns]",
                "self.found += move == self.goal(row)",
                'self.note = f"{self.goal(row)} was true."',
                "won = self.found >= self.need",
            ],
            solution="[str(self.goal(row)) for row in self.rows[:self.need]]",
        )
        told = {"max": "Send the largest number.", "min": "Send the smallest number."}[rule]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{told} Answer as \\boxed{{N}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        row = env.row()
        return boxed(env.goal(row) if rule or seen.get("history") else rng.choice((min(row), max(row))))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice(env.row()))
