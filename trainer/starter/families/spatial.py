"""Spatial Reasoning: a target felt by distance, and a signal that has to be turned before it is followed."""

from __future__ import annotations

import random
from typing import Any

from trainer.starter.families.program import WORD_PARSER, Program, Theme, assemble, boxed, near

WAYS = ("north", "east", "south", "west")
WAY_ASK = "Send \\\\boxed{{<way>}}: north, east, south or west."


class Grid:
    """Walk to a hidden cell; a step that does not come closer is refused."""

    name = "Grid"
    skills = ("Spatial Reasoning",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        reach = min(near(rng, theme, 3, 6), max_turns - 3)
        slack = {"easy": 4, "medium": 3, "hard": 2}[level]
        turns = min(reach + slack, max_turns)
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Walk to the hidden {theme.thing} near the {theme.place}.",
            turns=turns,
            knobs=[f"self.reach = {reach}"],
            start=[
                "self.x = self.rng.randint(21, 39)",
                "self.y = self.rng.randint(21, 39)",
                "across = self.rng.randint(1, self.reach - 1)",
                "self.goal_x = self.x + self.rng.choice([-1, 1]) * across",
                "self.goal_y = self.y + self.rng.choice([-1, 1]) * (self.reach - across)",
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
                "won = self.gap(self.x, self.y) == 0",
            ],
            solution=(
                '["east" if self.goal_x > self.x else "west"] * abs(self.goal_x - self.x)'
                ' + ["north" if self.goal_y > self.y else "south"] * abs(self.goal_y - self.y)'
            ),
        )
        hint = (
            "Repeat a way while it is closer; when it is blocked, turn and never take it again. Answer as \\boxed{way}."
        )
        return Program(self.name, f"{theme.thing}{self.name}Env", source, hint, "")

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        history = seen.get("history", [])
        last = history[-1].move if history else ""
        if env.note.endswith("closer."):
            return boxed(last)
        blocked = {past.move for past in history if past.note.endswith("blocked.")}
        # Turn right first: the opposite way only helps when a way was refused before it ever came closer.
        turned = [WAYS[(WAYS.index(last) + turn) % 4] for turn in (1, 2, 3)] if last in WAYS else list(WAYS)
        return boxed(next((way for way in turned if way not in blocked), rng.choice(WAYS)))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice(WAYS))


class Compass:
    """A signal names a way; the way to take is the signal turned by a hidden amount."""

    name = "Compass"
    skills = ("Spatial Reasoning",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        shift = rng.randint(1, 3)
        need = {"easy": near(rng, theme, 2, 3), "medium": near(rng, theme, 3, 4), "hard": near(rng, theme, 4, 5)}[level]
        turns = min(need + {"easy": 2, "medium": 1, "hard": 1}[level], max_turns)
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Follow the {theme.thing} past the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}", f"self.shift = {shift}"],
            start=[
                'self.ways = ["north", "east", "south", "west"]',
                "self.signals = [self.rng.choice(self.ways) for _ in range(self.need)]",
                "self.mark = self.rng.randint(21, 39)",
                "self.found = 0",
            ],
            show=(
                f"{theme.thing} {{self.mark}} signals {{self.signals[self.found % self.need]}}, "
                f"passed {{self.found}} of {{self.need}}. {WAY_ASK}"
            ),
            extra=[
                "    def goal(self, signal):",
                "        return self.ways[(self.ways.index(signal) + self.shift) % 4]",
                "",
            ],
            parser=WORD_PARSER,
            update=[
                "if move == self.goal(self.signals[self.found % self.need]):",
                "    self.found += 1",
                '    self.note = f"{move} is right."',
                "else:",
                '    self.note = f"{move[:9]} is wrong."',
                "won = self.found >= self.need",
            ],
            solution="[self.goal(signal) for signal in self.signals]",
        )
        turn = {1: "Turn right from the signal.", 2: "Go against the signal.", 3: "Turn left from the signal."}[shift]
        return Program(
            self.name, f"{theme.thing}{self.name}Env", source, f"{turn} Answer as \\boxed{{way}}.", str(shift)
        )

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        wrong: set[int] = set()
        known = int(rule) if rule else 0
        for past in seen.get("history", []):
            if past.move in WAYS:
                shift = (WAYS.index(past.move) - WAYS.index(env.signals[past.before["found"]])) % 4
                known = shift if past.note.endswith("right.") else known
                wrong.add(shift)
        shift = known or rng.choice([option for option in (1, 2, 3) if option not in wrong] or [1, 2, 3])
        return boxed(WAYS[(WAYS.index(env.signals[env.found % env.need]) + shift) % 4])

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice(WAYS))
