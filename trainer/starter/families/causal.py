"""Causal Inference: which cause has which effect."""

from __future__ import annotations

import random
from typing import Any

from trainer.starter.families.program import NUMBER_ASK, Program, Theme, assemble, boxed, near


class Pairs:
    """Each number lights one lamp; lamps are asked for in turn and what was seen stays on the board."""

    name = "Pairs"
    skills = ("Causal Inference", "Logical Deduction")

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        rule = rng.choice(("any", "ordered"))
        size = near(rng, theme, 3, 5)
        need = {"easy": 2, "medium": rng.randint(2, 3), "hard": 3}[level]
        expected = (size + 1) / 2 + (need - 1) * (1 + size / 5) if rule == "any" else need + 1
        turns = max(need, min(round(expected + {"easy": 1.5, "medium": 0.7, "hard": 0.2}[level]), max_turns))
        lamps = "abcdef"[:size]
        shuffle = "self.rng.shuffle(self.lamps)"
        if rule == "ordered":
            shuffle = "self.lamps = self.lamps[self.cut:] + self.lamps[:self.cut]"
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Learn which {theme.thing} lights which lamp of the {theme.place}.",
            turns=turns,
            knobs=[f"self.need = {need}", f"self.size = {size}"],
            start=[
                "self.low = self.rng.randint(21, 29)",
                f'self.lamps = list("{lamps}")',
                *(["self.cut = self.rng.randint(1, self.size - 1)"] if rule == "ordered" else []),
                shuffle,
                'self.seen = ["?"] * self.size',
                "self.goals = [self.rng.choice(self.lamps) for _ in range(self.need)]",
                "self.found = 0",
            ],
            show=(
                f"{theme.thing} board{{self.table()}}, lamp {{self.goals[self.found % self.need]}} is next, "
                f"lit {{self.found}} of {{self.need}}. {NUMBER_ASK}"
            ),
            extra=[
                "    def table(self):",
                '        return "".join(f" {self.low + i}:{lamp}" for i, lamp in enumerate(self.seen))',
                "",
            ],
            update=[
                "i = move - self.low",
                "if 0 <= i < self.size:",
                "    self.seen[i] = self.lamps[i]",
                "    self.found += self.lamps[i] == self.goals[self.found % self.need]",
                '    self.note = f"{move} lights {self.lamps[i]}."',
                "else:",
                '    self.note = "Unclear."',
                "won = self.found >= self.need",
            ],
            solution="[str(self.low + self.lamps.index(lamp)) for lamp in self.goals]",
        )
        order = {
            "any": "Look on the board for the lamp; when it is not there, try a number with a question mark.",
            "ordered": "Lamps follow the alphabet round the board: after one try, count on from it to the lamp.",
        }[rule]
        return Program(self.name, f"{theme.thing}{self.name}Env", source, f"{order} Answer as \\boxed{{N}}.", rule)

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        want = env.goals[env.found % env.need]
        known = [i for i, lamp in enumerate(env.seen) if lamp != "?"]
        if want in env.seen or (rule == "ordered" and known):
            return boxed(env.low + env.lamps.index(want))
        return boxed(env.low + rng.choice([i for i in range(env.size) if i not in known]))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(env.low + rng.randrange(env.size))


class Switch:
    """A row of switches; a level tells how many stand right, so each one can be tested on its own."""

    name = "Switch"
    skills = ("Causal Inference",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        size = min(near(rng, theme, 4, 6), max_turns - 3)
        on = rng.randint(2, size - 1)
        slack = {"easy": 2, "medium": 1, "hard": 0}[level]
        turns = min(size + size - on + slack, max_turns)
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Bring the {theme.thing} of the {theme.place} to full level.",
            turns=turns,
            knobs=[f"self.size = {size}", f"self.on = {on}"],
            start=[
                "self.low = self.rng.randint(21, 29)",
                "self.goals = [i < self.on for i in range(self.size)]",
                "self.rng.shuffle(self.goals)",
                "self.state = [False] * self.size",
            ],
            show=f"{theme.thing} {{self.low}} to {{self.low + self.size - 1}}, level {{self.level()}} of {{self.size}}. {NUMBER_ASK}",
            extra=[
                "    def level(self):",
                "        return sum(a == b for a, b in zip(self.state, self.goals))",
                "",
            ],
            update=[
                "i = move - self.low",
                "if 0 <= i < self.size:",
                "    self.state[i] = not self.state[i]",
                '    self.note = f"{move} better." if self.state[i] == self.goals[i] else f"{move} worse."',
                "else:",
                '    self.note = "Unclear."',
                "won = self.state == self.goals",
            ],
            solution="[str(self.low + i) for i in range(self.size) if self.goals[i]]",
        )
        hint = "Test one by one from the first: when it is worse send it again, when it is better go to the next. Answer as \\boxed{N}."
        return Program(self.name, f"{theme.thing}{self.name}Env", source, hint, "")

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        history = seen.get("history", [])
        if env.note.endswith("worse."):
            return boxed(history[-1].move)
        tested = {past.move for past in history}
        left = [number for number in range(env.low, env.low + env.size) if str(number) not in tested]
        return boxed(left[0] if left else rng.randrange(env.low, env.low + env.size))

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.randrange(env.low, env.low + env.size))


class Delay:
    """What is sent arrives a turn later and may count double; the level has to hold."""

    name = "Delay"
    skills = ("Causal Inference",)

    def draw(self, rng: random.Random, *, theme: Theme, level: str, max_turns: int) -> Program:
        gain = rng.randint(1, 2)
        need = {"easy": 3, "medium": 3, "hard": 4}[level]
        turns = min(need + {"easy": 3, "medium": 2, "hard": 1}[level], max_turns)
        most = near(rng, theme, 6, 9)
        source = assemble(
            family=self.name,
            theme=theme,
            summary=f"Fill the {theme.thing} of the {theme.place} exactly and keep it so.",
            turns=turns,
            knobs=[f"self.need = {need}", f"self.gain = {gain}"],
            start=[
                f"self.gap = 2 * self.rng.randint(3, {most})",
                "self.coming = 0",
                "self.found = 0",
            ],
            show=f"{theme.thing} is {{self.gap}} short, steady {{self.found}} of {{self.need}}. {NUMBER_ASK}",
            update=[
                "self.gap -= self.coming",
                "self.coming = self.gain * move if match else -1",
                "self.found = self.found + 1 if self.gap == 0 else 0",
                'self.note = f"Sent {move}." if match else "Unclear."',
                "won = self.found >= self.need",
            ],
            solution='[str(self.gap // self.gain)] + ["0"] * self.need',
        )
        told = {1: "Send what is short just one time", 2: "It counts double: send half of what is short just one time"}[
            gain
        ]
        hint = f"{told}, then send zero while it arrives. Answer as \\boxed{{N}}."
        return Program(self.name, f"{theme.thing}{self.name}Env", source, hint, str(gain))

    def good(self, env: Any, rng: random.Random, *, rule: str, seen: dict[str, Any]) -> str:
        if env.coming or env.gap <= 0:
            return boxed(0)
        watched = any(past.before["gap"] != env.gap for past in seen.get("history", []))
        gain = env.gain if rule or watched else rng.choice((1, 2))
        return boxed(env.gap // gain)

    def poor(self, env: Any, rng: random.Random) -> str:
        return boxed(rng.choice((max(0, env.gap), max(0, env.gap) // 2, rng.randint(1, 9))))
