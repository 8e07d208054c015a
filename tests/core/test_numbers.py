"""Numbers and times as text; the same table is checked against static/js/format.js in the browser test."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from webapp.core.templatetags.numbers import count, duration, interval, num, pct, size
from webapp.core.templatetags.ui import relative

NUM_CASES = [
    (0.41372, "0.414"), (0.0625, "0.0625"), (2.125, "2.13"), (312.5, "313"), (0.5, "0.500"),
    (9.996, "10.0"), (99.96, "100"), (999.4, "999"), (999.6, "1.00k"), (2104.0, "2.10k"),
    (12345.0, "12.3k"), (999_499.0, "999k"), (999_960.0, "1.00M"), (12345678.0, "12.3M"), (3.2e12, "3.20T"), (-3.5, "−3.50"), (-0.0, "0"),
    (0.0, "0"), (0.0123456, "0.0123"), (0.001, "0.00100"), (0.00041, "4.10e−4"), (1.0, "1.00"),
]  # fmt: skip
INTERVAL_CASES = [
    (0.4213, 0.0512, "0.42 ± 0.05"), (0.2137, 0.0143, "0.214 ± 0.014"), (-0.2137, 0.041, "−0.21 ± 0.04"), (12.34, 2.5, "12 ± 3"),
    (123.4, 25.0, "123 ± 25"), (0.001, 0.04, "0.00 ± 0.04"), (-0.001, 0.04, "0.00 ± 0.04"), (0.5, 0.0, "0.500"), (0.5, 0.2, "0.5 ± 0.2"),
]  # fmt: skip
DURATION_CASES = [
    (0, "0 s"),
    (0.042, "42 ms"),
    (7.5, "7.5 s"),
    (0.0125, "13 ms"),
    (60.5, "1 min 1 s"),
    (59.4, "59 s"),
    (75, "1 min 15 s"),
    (7380, "2 h 3 min"),
    (187200, "2 d 4 h"),
    (-1, "–"),
]
RELATIVE_CASES = [
    (0.4, "now"), (3, "3 s ago"), (59.9, "59 s ago"), (60, "1 min ago"), (3599, "59 min ago"), (7200, "2 h ago"), (172799, "47 h ago"),
    (172800, "2 d ago"), (-5, "in 5 s"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUM_CASES)
def test_a_number_is_written_with_three_significant_digits(value: float, text: str) -> None:
    assert num(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        ("12", "–"),
        (True, "–"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (7, "7"),
        (999, "999"),
        (1000, "1.00k"),
        (-12, "−12"),
        (10**400, "∞"),
    ],
)
def test_no_value_and_values_that_are_no_finite_number_are_told_apart(value: object, text: str) -> None:
    assert num(value) == text


@pytest.mark.parametrize(("value", "half", "text"), INTERVAL_CASES)
def test_an_interval_has_the_digits_its_width_allows(value: float, half: float, text: str) -> None:
    assert interval(value, half) == text


def test_an_interval_without_a_width_or_value_shows_what_there_is() -> None:
    assert interval(0.4213, None) == "0.421"
    assert interval(None, 0.1) == "–"
    assert interval(math.nan, 0.1) == "NaN"
    assert interval(0.5, math.nan) == "0.500"


def test_counts_are_exact_and_shares_are_per_cent() -> None:
    assert (count(41200), count(-1234567), count(7), count(None), count(2.0)) == (
        "41\u202f200",
        "−1\u202f234\u202f567",
        "7",
        "–",
        "2",
    )
    assert (pct(0.125), pct(1), pct(0), pct(None), pct(-0.5), pct(1 / 3)) == (
        "12.5\u202f%",
        "100\u202f%",
        "0\u202f%",
        "–",
        "−50\u202f%",
        "33.3\u202f%",
    )
    assert (size(512), size(2202009), size(None), size(1024**3 * 1000)) == ("512 B", "2.10 MiB", "–", "1000 GiB")


@pytest.mark.parametrize(("seconds", "text"), DURATION_CASES)
def test_durations_use_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("age_s", "text"), RELATIVE_CASES)
def test_an_instant_is_told_by_its_distance(age_s: float, text: str) -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert relative(moment=now - timedelta(seconds=age_s), now=now) == text


def test_an_instant_long_ago_is_a_date() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert relative(moment=now - timedelta(days=20), now=now) == "2026-11-09"
