"""Pattern Recognition: continuing a series, and applying a rule that is only seen in examples."""

from __future__ import annotations

import random
from typing import Any

from trainer.starter.families.program import NUMBER_ASK, Program, Theme, assemble, boxed, near

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


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
    """A number comes in, a number goes out; every miss shows what would have been right."""

    name = "Rule"
    skills = ("Pattern Recognition", "Mathematical Reasoning")

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        kind = rng.choice(("plus", "minus"))
        amount = near(rng, theme, 1, 6)
        need = {"easy": 2, "medium": 3, "hard": 3}[level]
        turns = min(need + {"easy": 2, "medium": 2, "hard": 1}[level], max_turns)
        out = {"plus": f"value + {amount}", "minus": f"value - {amount}"}[kind]
        low, high = {"plus": (21, 35), "minus": (27, 41)}[kind]
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Find what the {theme.thing} does to the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}"],
            start=[
                f"self.values = [self.rng.randint({low}, {high}) for _ in range(self.max_turns)]",
                "self.found = 0",
            ],
            show=f"{theme.thing} takes {{self.value()}}, right {{self.found}} of {{self.need}}. {NUMBER_ASK}",
            extra=[
                "    def value(self):",
                "        return self.values[self.turn % self.max_turns]",
                "",
                "    def goal(self, value):",
                f"        return {out}",
                "",
            ],
            update=[
                "value = self.values[(self.turn - 1) % self.max_turns]",
                "self.found += move == self.goal(value)",
                'self.note = f"{value} gives {self.goal(value)}, sent {move}."',
                "won = self.found >= self.need",
            ],
            solution="[str(self.goal(value)) for value in self.values[:self.need]]",
        )
        told = {
            "plus": f"Add {WORDS[amount]} to it.",
            "minus": f"Take {WORDS[amount]} off it.",
        }[kind]
        rule = {"plus": str(amount), "minus": str(-amount)}[kind]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{told} Answer as \\boxed{{N}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        value = env.value()
        if rule or seen.get("history"):
            return boxed(env.goal(value))
        return boxed(value + rng.choice((-5, -3, -2, -1, 1, 2, 3, 5)))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(max(0, env.value() + rng.randint(-6, 6)))
