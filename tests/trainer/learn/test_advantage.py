from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.learn.advantage import ema_advantages, ema_update, group_advantages, outcome_reward

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "conformance" / "agent_advantage.json").read_text()
)


@pytest.mark.parametrize("case", CASES["outcome_reward"])
def test_outcome_reward_conforms(case: dict[str, Any]) -> None:
    assert outcome_reward(case["step_rewards"], terminated=case["terminated"]) == pytest.approx(
        case["expect"], abs=1e-9
    )


@pytest.mark.parametrize("case", CASES["group_zscore"])
def test_group_advantages_conform(case: dict[str, Any]) -> None:
    assert group_advantages(case["rewards"]) == pytest.approx(case["expect"], abs=1e-9)


@pytest.mark.parametrize("case", CASES["ema_baseline"])
def test_ema_baseline_conforms(case: dict[str, Any]) -> None:
    baseline, seen = None, []
    for mean in case["means"]:
        baseline = ema_update(baseline, value=mean, decay=case["decay"])
        seen.append(baseline)
    assert seen == pytest.approx(case["expect"], abs=1e-9)


def test_a_spread_below_the_threshold_gives_exactly_zero() -> None:
    assert group_advantages([0.1 + 0.2, 0.3, 0.3]) == [0.0, 0.0, 0.0]
    assert group_advantages([0.5, 0.5 + 1e-5]) != [0.0, 0.0]
    assert group_advantages([0.5, 0.6], zero_spread=0.1) == [0.0, 0.0]
    assert group_advantages([0.7]) == [0.0]
    assert group_advantages([]) == []


def test_an_environment_without_a_baseline_is_measured_against_zero() -> None:
    assert ema_advantages([1.0, 0.25], baseline=None) == [1.0, 0.25]
    assert ema_advantages([1.0, 0.25], baseline=0.5) == [0.5, -0.25]
