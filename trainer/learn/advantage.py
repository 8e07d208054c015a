"""Rewards of episodes and the advantages made of them (spec 6 and 8): pure functions of plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

_STD_EPSILON = 1e-8


def outcome_reward(step_rewards: Sequence[float], *, terminated: bool) -> float:
    """The last step's reward clamped to [-1, 1] if the episode terminated, else 0. Faulted episodes have none: do not ask."""
    if not terminated or not step_rewards:
        return 0.0
    return min(1.0, max(-1.0, float(step_rewards[-1])))


def group_advantages(rewards: Sequence[float], *, zero_spread: float = 1e-6) -> list[float]:
    """(r - group mean) / (population std + 1e-8); exactly 0 for all when the std is below `zero_spread`."""
    if not rewards:
        return []
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
    if std < zero_spread:
        return [0.0] * len(rewards)
    return [(r - mean) / (std + _STD_EPSILON) for r in rewards]


def ema_advantages(rewards: Sequence[float], *, baseline: float | None) -> list[float]:
    """r - baseline, the environment's EMA read before this rollout updates it; an environment without one has baseline 0."""
    level = 0.0 if baseline is None else baseline
    return [r - level for r in rewards]


def ema_update(baseline: float | None, *, value: float, decay: float) -> float:
    """decay · old + (1 - decay) · value; the first value is taken as it is."""
    return value if baseline is None else decay * baseline + (1.0 - decay) * value
