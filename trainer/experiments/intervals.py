"""Means with 95 % intervals. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond 30 the normal one is used.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
    2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL95 = 1.960


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over `n` values and half the width of its 95 % interval (None for a single value)."""

    mean: float
    half: float | None
    n: int


def t95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t. `freedom` at least 1."""
    return _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95


def interval(values: Sequence[float]) -> Interval | None:
    """Mean and Student's t interval of independent values; None for no values."""
    n = len(values)
    if not n:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Interval(mean, t95(n - 1) * math.sqrt(variance / n), n)
