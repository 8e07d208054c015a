"""Optimization: finding and using the best source, and taking only the right offers."""

from __future__ import annotations

import random
from typing import Any

from trainer.starter.families.program import NUMBER_ASK, WORD_PARSER, Program, Theme, assemble, boxed, near

COLOURS = ("red", "blue", "green", "white")


class Best:
    """Sources of unknown yield; the total must reach a goal that leaves little room for waste."""

    name = "Best"
    skills = ("Optimization",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        size = near(rng, theme, 3, 4)
        turns = min(size + {"easy": 3, "medium": 3, "hard": near(rng, theme, 3, 4)}[level], max_turns)
        slack = {"easy": near(rng, theme, 4, 7), "medium": near(rng, theme, 3, 5), "hard": near(rng, theme, 1, 3)}[
            level
        ]
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Draw enough from every {theme.thing} of the {theme.place}.",
            turns=turns,
            knobs=[f"self.size = {size}", f"self.slack = {slack}"],
            start=[
                "self.low = self.rng.randint(21, 29)",
                "self.gains = self.rng.sample(range(1, 10), self.size)",
                'self.seen = ["?"] * self.size',
                "self.total = 0",
                "self.goal = max(self.gains) * (self.max_turns - self.size) + sum(self.gains) - self.slack",
            ],
            show=f"{theme.thing} yields{{self.table()}}, total {{self.total}} of {{self.goal}}. {NUMBER_ASK}",
            extra=[
                "    def table(self):",
                '        return "".join(f" {self.low + i}:{gain}" for i, gain in enumerate(self.seen))',
                "",
            ],
            update=[
                "i = move - self.low",
                "if 0 <= i < self.size:",
                "    self.seen[i] = self.gains[i]",
                "    self.total += self.gains[i]",
                '    self.note = f"{move} gave {self.gains[i]}."',
                "else:",
                '    self.note = "Unclear."',
                "won = self.total >= self.goal",
            ],
            solution="[str(self.low + self.gains.index(max(self.gains)))] * self.max_turns",
        )
        hint = "Try each one with a question mark once, then always send the one with the largest yield. Answer as \\boxed{N}."
        return Program(self.name, f"{theme.thing}{self.name}Env", source, hint, "")

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        if "?" in env.seen:
            return boxed(env.low + env.seen.index("?"))
        return boxed(env.low + env.seen.index(max(env.seen)))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(env.low + rng.randrange(env.size))


class Filter:
    """Offers of three colours pass one by one; one colour is the only good one, or the only bad one."""

    name = "Filter"
    skills = ("Optimization", "Logical Deduction")

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("only", "never"))
        need = {"easy": 2, "medium": rng.randint(2, 3), "hard": 3}[level]
        slack = {"easy": 1, "medium": rng.randint(0, 1), "hard": 0}[level]
        turns = min((3 * need - 1 if rule == "only" else 2 * need - 1) + slack, max_turns)
        colours = rng.sample(COLOURS, 3)
        test = {"only": f'offer == "{colours[0]}"', "never": f'offer != "{colours[0]}"'}[rule]
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Take the right {theme.thing} for the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}"],
            start=[
                f'self.offers = ["{colours[0]}", "{colours[1]}", "{colours[2]}"] * self.max_turns',
                "self.offers = self.offers[:self.max_turns]",
                "self.rng.shuffle(self.offers)",
                "self.mark = self.rng.randint(21, 39)",
                "self.found = 0",
            ],
            show=(
                f"{theme.thing} {{self.mark}} offers {{self.offers[self.turn % self.max_turns]}}, kept {{self.found}} of {{self.need}}. "
                "Send \\\\boxed{{<choice>}}: take or skip."
            ),
            extra=["    def fits(self, offer):", f"        return {test}", ""],
            parser=WORD_PARSER,
            update=[
                "offer = self.offers[(self.turn - 1) % self.max_turns]",
                'if move == "take":',
                "    self.found = self.found + 1 if self.fits(offer) else 0",
                '    self.note = f"{offer} is good." if self.fits(offer) else f"{offer} is bad, all lost."',
                "else:",
                '    self.note = f"{move[:9]} {offer}."',
                "won = self.found >= self.need",
            ],
            solution='["take" if self.fits(offer) else "skip" for offer in self.offers]',
        )
        told = {"only": f"Only {colours[0]} is good.", "never": f"Only {colours[0]} is bad."}[rule]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{told} Answer as \\boxed{{choice}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        offer = env.offers[env.turn % env.max_turns]
        if rule:
            return boxed("take" if env.fits(offer) else "skip")
        tried = [past.before["offers"][past.before["turn"]] for past in seen.get("history", []) if past.move == "take"]
        if offer in tried:
            return boxed("take" if env.fits(offer) else "skip")
        return boxed("skip" if any(env.fits(other) for other in tried) and rng.random() < 0.6 else "take")

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice(("take", "skip")))
