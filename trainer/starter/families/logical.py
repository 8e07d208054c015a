"""Logical Deduction: elimination under an order that may be known."""

from __future__ import annotations

import random
from typing import Any

from trainer.starter.families.program import NUMBER_ASK, Program, Theme, assemble, boxed, near


class Lock:
    """Several locks, each opened by one number of a shown interval; numbers that failed are listed."""

    name = "Lock"
    skills = ("Logical Deduction",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("any", "rising", "falling"))
        size = near(rng, theme, 4, 6)
        need = 2 if size > 5 or level == "easy" else rng.randint(2, 3)
        expected = need * (size + 1) / 2 if rule == "any" else size
        turns = round(expected + {"easy": 1.6, "medium": 0.9, "hard": 0.2}[level])
        turns = max(need, min(turns, max_turns))
        codes = {
            "any": "[self.rng.randint(self.low, self.high) for _ in range(self.need)]",
            "rising": "sorted(self.rng.sample(range(self.low, self.high + 1), self.need))",
            "falling": "sorted(self.rng.sample(range(self.low, self.high + 1), self.need))[::-1]",
        }[rule]
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Open every {theme.thing} of the {theme.place}.",
            turns=turns,
            knobs=[f"self.size = {size}", f"self.need = {need}"],
            start=[
                "self.low = self.rng.randint(21, 29)",
                "self.high = self.low + self.size - 1",
                f"self.codes = {codes}",
                "self.found = 0",
                'self.last = "none"',
                "self.tried = []",
            ],
            show=(
                f"{theme.thing} {{self.found}} of {{self.need}} open by {{self.last}}, from {{self.low}} to {{self.high}}, "
                f"tried {{self.tried}}. {NUMBER_ASK}"
            ),
            update=[
                "if move == self.codes[self.found % self.need]:",
                "    self.found += 1",
                "    self.last = move",
                "    self.tried = []",
                '    self.note = "Open."',
                "elif self.low <= move <= self.high:",
                "    self.tried.append(move)",
                '    self.note = "Shut."',
                "else:",
                '    self.note = "Unclear."',
                "won = self.found >= self.need",
            ],
            solution="[str(code) for code in self.codes]",
        )
        order = {
            "any": "Never repeat a number that was tried.",
            "rising": "Each number is above the one before: start low and go up one by one.",
            "falling": "Each number is below the one before: start high and go down one by one.",
        }[rule]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{order} Answer as \\boxed{{N}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        left = [number for number in range(env.low, env.high + 1) if number not in env.tried]
        if rule == "rising" and env.last != "none":
            left = [number for number in left if number > env.last] or left
        if rule == "falling" and env.last != "none":
            left = [number for number in left if number < env.last] or left
        if not left:
            return self.poor(env, rng)
        return boxed({"rising": left[0], "falling": left[-1]}.get(rule, rng.choice(left)))

    def poor(self, env: Any, rng: random.Random) -> str:
        if env.tried and rng.random() < 0.6:
            return boxed(rng.choice(env.tried))
        return boxed(rng.randint(env.low, env.high))
