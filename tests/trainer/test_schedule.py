"""Skills in rotation, designs when they come due, and seeds that never change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.seeds import episode_seed, stable_seed
from trainer.skills import active_skills, slot_skill
from trainer.state import DesignSample
from trainer.update import due_samples

CASES = json.loads((Path(__file__).parents[1] / "conformance" / "schedule.json").read_text())


@pytest.mark.parametrize("case", CASES["skill_rotation"])
def test_active_skills_agree_with_the_shared_cases(case: dict[str, Any]) -> None:
    got = active_skills(case["skills"], active=case["active"], rollout=case["rollout"], interval=case["interval"])
    assert got == case["expect"]


@pytest.mark.parametrize("case", CASES["designer_schedule"])
def test_designs_are_trained_when_the_shared_cases_say(case: dict[str, Any]) -> None:
    waiting: list[DesignSample] = []
    trained = []
    for rollout in range(case["rollouts"]):
        if rollout % case["regenerate_every"] == 0:
            waiting.append(DesignSample(f"r{rollout}", "s", rollout, (), (), ()))
        due = due_samples(waiting, rollout, delay=case["delay"], last=rollout == case["rollouts"] - 1)
        waiting = [s for s in waiting if s not in due]
        trained.append([s.rollout for s in due])
    assert trained == case["expect_trained_at"]
    assert not waiting


def test_slots_take_the_active_skills_in_turn() -> None:
    assert [slot_skill(["a", "b", "c"], slot) for slot in range(5)] == ["a", "b", "c", "a", "b"]


def test_seeds_are_the_same_in_another_process_with_another_hash_seed() -> None:
    code = "from trainer.seeds import episode_seed; print(episode_seed(7, 'r0004-s03', 1, 5))"
    root = Path(__file__).parents[2]
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert seen == {str(episode_seed(7, "r0004-s03", 1, 5))}


def test_seeds_have_63_bits_and_depend_on_every_part() -> None:
    seeds = {episode_seed(r, e, o, p) for r in (0, 1) for e in ("a", "b") for o in (0, 1) for p in (0, 1)}
    assert len(seeds) == 16
    assert all(0 <= s < 2**63 for s in seeds)
    assert max(seeds) > 2**60


def test_parts_are_told_apart() -> None:
    assert stable_seed("a", 12) != stable_seed("a1", 2) != stable_seed("a", "12")
