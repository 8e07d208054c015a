"""Recorded play of our own generator's programs: what the built-in model learns its agent role from.

Only programs written by `trainer/starter/families` run here, in this process: they are our code, drawn from a seed, not model output.
Programs written by a model run in the sandbox and nowhere else.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from trainer.starter.families import BY_NAME
from trainer.starter.families.program import Past, Program

UNHINTED_SKILL = ((0.2, 0.35), (0.6, 0.35), (0.9, 0.3))
"""(chance of a strategic move, share of episodes): the unhinted player is mediocre on purpose, yet now and then strategic throughout."""
HINTED_SKILL = 0.97


@dataclass(frozen=True, slots=True)
class Play:
    """One recorded episode: observation before each reply, the replies, and whether it was won."""

    observations: tuple[str, ...]
    replies: tuple[str, ...]
    won: bool


def load_own(program: Program) -> type[Any]:
    """The environment class of a program of our own generator."""
    namespace: dict[str, Any] = {"__name__": "starter_environment"}
    exec(compile(program.source, program.class_name, "exec"), namespace)  # noqa: S102 - our own seeded generator's code
    loaded: type[Any] = namespace[program.class_name]
    return loaded


def play(
    program: Program,
    environment: type[Any],
    *,
    hinted: bool,
    seed: int,
    rng: random.Random,
    max_turns: int,
    skill: float | None = None,
) -> Play:
    """One episode by the family's scripted player; `skill` is the chance of a strategic move (drawn when None)."""
    family = BY_NAME[program.family]
    env = environment(max_turns=max_turns)
    observation, _ = env.reset(seed)
    if skill is None:
        levels, shares = zip(*UNHINTED_SKILL, strict=True)
        skill = HINTED_SKILL if hinted else rng.choices(levels, weights=shares)[0]
    observations: list[str] = []
    replies: list[str] = []
    seen: dict[str, Any] = {"history": []}
    done = won = False
    while not done and len(replies) < max_turns:
        before = {name: list(value) if isinstance(value, list) else value for name, value in vars(env).items()}
        strategic = rng.random() < skill
        reply = (
            family.good(env, rng, rule=program.rule if hinted else "", seen=seen)
            if strategic
            else family.poor(env, rng)
        )
        observations.append(observation)
        replies.append(reply)
        observation, reward, done, _, _ = env.step(reply)
        won = done and reward > 0
        seen["history"].append(Past(re.sub(r"\\boxed\{(.*)\}", r"\1", reply), env.note, before))
    return Play(tuple(observations), tuple(replies), won)
