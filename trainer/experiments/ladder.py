"""The pool of the RLVE-like baseline: environments people wrote, each at three difficulties. Stored as `trainer/pools/ladder.jsonl`."""

from __future__ import annotations

import json
import random

from sandbox import Sandbox
from trainer.errors import InfrastructureError
from trainer.fixed_pool import BUILTIN_POOLS
from trainer.prompts.compact import theme_numbers, theme_words
from trainer.starter.data import documents
from trainer.starter.families import FAMILIES
from trainer.starter.families.program import LEVELS, Family, Program, Theme

VARIANTS = 2
MAX_TURNS = 10
_TRIES = 20


def write_ladder() -> int:
    """Draw the pool from its seed, through the gates, and store it; returns the number of environments."""
    lines: list[dict[str, str | int]] = []
    with Sandbox() as sandbox:
        for family in FAMILIES:
            for difficulty, level in enumerate(LEVELS):
                for variant in range(VARIANTS):
                    label = f"{family.name}-{difficulty}-{variant}"
                    program = _sound(family, level, label, sandbox)
                    line: dict[str, str | int] = {"id": label, "name": family.name, "difficulty": difficulty}
                    line |= {"skill": family.skills[variant % len(family.skills)], "hint": program.hint}
                    lines.append(line | {"code": program.source})
    path = BUILTIN_POOLS["builtin:ladder"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
    return len(lines)


def _sound(family: Family, level: str, label: str, sandbox: Sandbox) -> Program:
    usable = [document for document in documents(held_out=False) if len(theme_words(document)) >= 2]
    for attempt in range(_TRIES):
        rng = random.Random(f"ladder/{label}/{attempt}")  # noqa: S311 - a seeded stream, not a secret
        document = rng.choice(usable)
        thing, place = rng.sample(theme_words(document), 2)
        theme = Theme(thing, place, tuple(int(number) for number in theme_numbers(document)))
        program = family.draw(rng, theme=theme, level=level, max_turns=MAX_TURNS)
        if sandbox.examine(program.source).accepted:
            return program
    raise InfrastructureError(f"none of {_TRIES} programs for {label} passes the gates")
