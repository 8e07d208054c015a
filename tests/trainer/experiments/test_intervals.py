"""Means and Student's t intervals against numbers worked out by hand."""

from __future__ import annotations

import pytest

from trainer.experiments.intervals import interval, t95


def test_three_values() -> None:
    # Mean 4, variance ((-2)^2 + 0 + 2^2) / 2 = 4; half width 4.303 * sqrt(4 / 3) = 4.9687.
    found = interval([2.0, 4.0, 6.0])
    assert found is not None
    assert (found.mean, found.n) == (4.0, 3)
    assert found.half == pytest.approx(4.9687, abs=1e-4)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one = interval([7.0])
    assert one is not None and (one.mean, one.half, one.n) == (7.0, None, 1)
    assert interval([]) is None


def test_quantiles_fall_with_the_degrees_of_freedom() -> None:
    assert (t95(1), t95(2), t95(30), t95(31)) == (12.706, 4.303, 2.042, 1.960)
