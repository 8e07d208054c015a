"""Pattern Recognition: continuing a series, and applying a rule that is only seen in examples."""

from __future__ import annotations

import random
from typing import Any

from trainer.starter.families.program import NUMBER_ASK, Program, Theme, assemble, boxed, near


class Series:
    """The next numbers of a series of which the last four are shown."""

    name = "Series"
    skills = ("Pattern Recognition",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("steady", "alternating", "cycle", "falling"))
        need = {"easy": 2, "medium": near(rng, theme, 2, 3), "hard": near(rng, theme, 3, 4)}[level]
        turns = min(need + {"easy": 2, "medium": 1, "hard": rng.randint(0, 1)}[level], max_turns)
        most = near(rng, theme, 3, 4)
        setup, term = {
            "steady": (f"steps = [self.rng.randint(2, {most})]", "self.items[-1] + steps[0]"),
            "alternating": (f"steps = self.rng.sample(range(1, {most}), 2)", "self.items[-1] + steps[i % 2]"),
            "falling": (f"steps = [self.rng.randint(2, {most})]", "self.items[-1] - steps[0]"),
            "cycle": ("steps = self.rng.sample(range(21, 40), 3)", "steps[i % 3]"),
        }[rule]
        first = "self.rng.randint(46, 54)" if rule == "falling" else "self.rng.randint(21, 29)"
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Continue the series of the {theme.thing} on the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}"],
            start=[
                setup,
                f"self.items = [{first if rule != 'cycle' else 'steps[2]'}]",
                "for i in range(self.need + 4):",
                f"    self.items.append({term})",
                "self.found = 0",
            ],
            show=(
                f"{theme.thing} shows {{self.items[self.found:self.found + 4]}}, right {{self.found}} of {{self.need}}. "
                f"{NUMBER_ASK}"
            ),
            update=[
                "if move == self.items[self.found + 4]:",
                "    self.found += 1",
                '    self.note = "Right."',
                "else:",
                '    self.note = "Wrong." if match else "Unclear."',
                "won = self.found >= self.need",
                "self.found = min(self.found, self.need)",
            ],
            solution="[str(item) for item in self.items[4:4 + self.need]]",
        )
        hint = {
            "steady": "Add the same step each time.",
            "alternating": "Two steps take turns: add the step before last.",
            "falling": "Take off the same step each time.",
            "cycle": "The numbers repeat: send the one three places back.",
        }[rule]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{hint} Answer as \\boxed{{N}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        return boxed(env.items[env.found + 4])

    def poor(self, env: Any, rng: random.Random) -> str:
        shown = env.items[env.found : env.found + 4]
        return boxed(max(0, shown[-1] + rng.choice((shown[1] - shown[0], -2, 1, 2, 3, shown[-1] - shown[0]))))


class Rule:
    """Some numbers go in and one comes out, always from the same place; every turn shows afterwards which it was."""

    name = "Rule"
    skills = ("Pattern Recognition", "Mathematical Reasoning")

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("first", "second", "last"))
        place = {"first": 0, "second": 1, "last": -1}[rule]
        size = near(rng, theme, 3, 4)
        need = {"easy": 2, "medium": rng.randint(2, 3), "hard": 3}[level]
        turns = min(need + {"easy": 1, "medium": rng.randint(0, 1), "hard": rng.randint(0, 1)}[level], max_turns)
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Find what the {theme.thing} takes from the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}", f"self.size = {size}"],
            start=[
                "self.rows = [self.rng.sample(range(21, 50), self.size) for _ in range(self.max_turns)]",
                "self.found = 0",
            ],
            show=f"{theme.thing} takes one of {{self.row()}}, right {{self.found}} of {{self.need}}. {NUMBER_ASK}",
            extra=[
                "    def row(self):",
                "        return self.rows[self.turn % self.max_turns]",
                "",
                "    def goal(self, row):",
                f"        return row[{place}]",
                "",
            ],
            update=[
                "row = self.rows[(self.turn - 1) % self.max_turns]",
                "self.found += move == self.goal(row)",
                'self.note = f"It took {self.goal(row)}."',
                "won = self.found >= self.need",
            ],
            solution="[str(self.goal(row)) for row in self.rows[:self.need]]",
        )
        hint = f"It takes the {rule} number each time. Answer as \\boxed{{N}}."
        return Program(self.name, f"{theme.thing}{self.name}Env", source, hint, rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        row = env.row()
        return boxed(env.goal(row) if rule or seen.get("history") else rng.choice((row[0], row[1], row[-1])))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice(env.row()))
