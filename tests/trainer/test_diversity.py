"""Vendi score against cases worked out by hand."""

from __future__ import annotations

import math

import pytest

from trainer.diversity import grams, kernel, vendi_score, vendi_share


def test_equal_programs_count_as_one() -> None:
    programs = ["a = b + 1\n"] * 5
    assert kernel(programs) == [[1.0] * 5] * 5
    assert vendi_score(kernel(programs)) == pytest.approx(1, abs=1e-9)
    assert vendi_share(programs) == pytest.approx(0.2, abs=1e-9)


def test_programs_that_share_nothing_count_each() -> None:
    programs = ["a = 1", "b + 2", "c - 3", "d * 4"]
    assert vendi_score(kernel(programs)) == pytest.approx(4, abs=1e-9)
    assert vendi_share(programs) == pytest.approx(1, abs=1e-9)


def test_two_equal_ones_and_a_different_one() -> None:
    # Eigenvalues of K/3 are 2/3, 1/3 and 0: exp(-(2/3 ln 2/3 + 1/3 ln 1/3)) = 3 / 2^(2/3) = 1.88988.
    assert vendi_score(kernel(["a = 1", "b + 2", "a = 1"])) == pytest.approx(3 / 2 ** (2 / 3), abs=1e-9)


def test_half_similar_programs() -> None:
    # "p q r s" has the runs pqr, qrs; "p q r t" has pqr, qrt: cosine 1 / sqrt(2 * 2) = 1/2. Eigenvalues of K/2: 3/4 and 1/4.
    assert kernel(["p q r s", "p q r t"]) == [[1.0, 0.5], [0.5, 1.0]]
    expected = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert vendi_score(kernel(["p q r s", "p q r t"])) == pytest.approx(expected, abs=1e-9)


def test_white_space_does_not_count_and_numbers_do() -> None:
    assert grams("x=  10\n\n") == grams("x = 10") == {("x", "=", "10")}
    assert grams("x = 10") != grams("x = 11")
    assert grams("") == {()}


def test_one_program_has_no_diversity_to_speak_of() -> None:
    assert vendi_share(["a = 1"]) is None and vendi_share([]) is None and vendi_score([]) == 0.0
