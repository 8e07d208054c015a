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
    """Hidden marks; the gauge tells how far the last number is off, not on which side."""

    name = "Gauge"
    skills = ("Mathematical Reasoning",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("above", "below", "both"))
        need = {"easy": 2, "medium": rng.randint(2, 3), "hard": 3}[level]
        slack = {"easy": 1, "medium": rng.randint(0, 1), "hard": 0}[level]
        turns = min(need + slack + (need - 1 if rule == "both" else 0), max_turns)
        start = near(rng, theme, *{"above": (21, 24), "below": (41, 44), "both": (31, 34)}[rule])
        far = rng.randint(4, 6)
        shift = {"above": f"self.rng.randint(2, {far})", "below": f"-self.rng.randint(2, {far})",
                 "both": f"self.rng.choice([-1, 1]) * self.rng.randint(2, {far})"}[rule]  # fmt: skip
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Set the {theme.thing} to each mark of the {theme.place}.",
            turns=turns,
            knobs=[f"self.start = {start}", f"self.need = {need}"],
            start=[
                "self.spot = self.start + self.rng.randint(0, 6)",
                "self.found = 0",
                "self.goals = [self.spot]",
                "for _ in range(self.need):",
                f"    self.goals.append(self.goals[-1] + {shift})",
                "self.goals.pop(0)",
            ],
            show=f"{theme.thing} at {{self.spot}} is off by {{self.gap()}}, found {{self.found}} of {{self.need}}. {NUMBER_ASK}",
            extra=[
                "    def gap(self):",
                "        return abs(self.goals[self.found % self.need] - self.spot)",
                "",
            ],
            update=[
                "if move == self.goals[self.found % self.need]:",
                "    self.found += 1",
                '    self.note = "Hit."',
                "else:",
                '    self.note = "Miss." if match else "Unclear."',
                "self.spot = move if match else self.spot",
                "won = self.found >= self.need",
            ],
            solution="[str(goal) for goal in self.goals]",
        )
        side = {
            "above": "Every mark lies above: add the miss to the number shown.",
            "below": "Every mark lies below: take the miss off the number shown.",
            "both": "Add the miss or take it off; when that doubles the miss, go to the other side.",
        }[rule]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{side} Answer as \\boxed{{N}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        gap = env.gap()
        side = {"above": 1, "below": -1}.get(rule)
        if side:
            return boxed(max(0, env.spot + side * gap))
        marks = {env.spot - gap, env.spot + gap}
        for past in seen.get("history", []):
            if past.before["found"] == env.found:
                spot = past.before["spot"]
                off = abs(env.goals[env.found % env.need] - spot)
                marks &= {spot - off, spot + off}
        return boxed(max(0, rng.choice(sorted(marks))))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(max(0, env.spot + rng.choice((-1, 1)) * rng.randint(2, 6)))
