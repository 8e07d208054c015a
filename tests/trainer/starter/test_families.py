"""The generator: seeded, correct through the sandbox's gates, and its strategies are worth knowing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from sandbox import Sandbox
from trainer.config import SKILLS
from trainer.hints import leak_of
from trainer.starter.families import FAMILIES, families_of
from trainer.starter.families.program import LEVELS, Program, Theme
from trainer.starter.play import load_own, play

THEME = Theme("Valve", "Tank", (5, 24, 40))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


def drawn(family, level: str, seed: int) -> Program:
    return family.draw(random.Random(seed), theme=THEME, level=level, max_turns=10)


def win_rate(family, *, hinted: bool, skill: float | None, programs: int = 40) -> float:
    rng = random.Random(5)
    won = []
    for number in range(programs):
        program = drawn(family, LEVELS[number % 3], number)
        environment = load_own(program)
        for seed in range(4):
            won.append(play(program, environment, hinted=hinted, seed=seed, rng=rng, max_turns=10, skill=skill).won)
    return sum(won) / len(won)


def test_every_skill_has_a_family_and_names_are_unique():
    assert all(any(skill in family.skills for family in FAMILIES) for skill in SKILLS)
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) >= 11
    assert families_of("a skill nobody defined") == FAMILIES


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_same_seed_draws_the_same_program_and_seeds_differ(family):
    assert drawn(family, "medium", 3) == drawn(family, "medium", 3)
    assert len({drawn(family, level, seed).source for level in LEVELS for seed in range(12)}) >= 8


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_programs_of_a_family_pass_all_gates(family, sandbox):
    for number, level in enumerate(LEVELS):
        report = sandbox.examine(drawn(family, level, 100 + number).source)
        failed = [(stage.stage, stage.message) for stage in report.stages if stage.outcome == "failed"]
        assert report.accepted, failed


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_strategy_beats_the_unhinted_player_and_both_beat_nonsense(family):
    unhinted = win_rate(family, hinted=False, skill=None)
    hinted = win_rate(family, hinted=True, skill=None)
    assert hinted >= unhinted + 0.15
    assert 0.1 <= unhinted <= 0.75
    assert win_rate(family, hinted=False, skill=0.0) < unhinted


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_hints_are_short_and_do_not_leak(family):
    for seed in range(12):
        program = drawn(family, LEVELS[seed % 3], seed)
        solutions = []
        for episode in range(8):
            env = load_own(program)(max_turns=10)
            env.reset(episode)
            solutions.append(env.solution())
        assert leak_of(program.hint, solutions) == ""
        assert len(re.findall(r"[.:;](?: |$)", program.hint)) <= 3
        assert not re.search(r"\d", program.hint)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_programs_respect_a_smaller_turn_budget(family):
    program = family.draw(random.Random(1), theme=THEME, level="easy", max_turns=8)
    env = load_own(program)(max_turns=25)
    assert env.max_turns <= 8
    env.reset(0)
    steps = [env.step("nonsense") for _ in range(env.max_turns)]
    assert [step[2] for step in steps] == [False] * (env.max_turns - 1) + [True]
    assert all(step[1] == 0.0 for step in steps)
