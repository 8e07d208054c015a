"""Agreement beyond chance, worked out by hand or taken from the papers' own examples."""

from __future__ import annotations

import pytest

from webapp.review.agreement import agreement_of, cohen_kappa, fleiss_kappa

# Fleiss' worked example: ten items, fourteen raters, five labels; the table counts raters per label. κ is 0.210.
FLEISS = (
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
)  # fmt: skip


def test_cohens_kappa_of_seventy_percent_agreement_where_chance_gives_fifty() -> None:
    # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: observed 0.7, expected 0.5·0.6 + 0.5·0.4 = 0.5, κ = 0.2 / 0.5.
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [("aabb", "aabb", 1.0), ("ab", "ba", -1.0), ("aabb", "abab", 0.0), ("aa", "bb", 0.0)],
)
def test_cohens_kappa_at_its_marks(first: str, second: str, value: float) -> None:
    assert cohen_kappa(first, second) == pytest.approx(value)


@pytest.mark.parametrize("labels", ["", "a", "aaaa"])
def test_cohens_kappa_is_undefined_without_items_and_where_only_one_label_was_used(labels: str) -> None:
    assert cohen_kappa(labels, labels) is None


def test_cohens_kappa_wants_the_same_items() -> None:
    with pytest.raises(ValueError, match="2 labels against 1"):
        cohen_kappa("ab", "a")


def test_fleiss_own_example() -> None:
    ratings = [[label for label, count in enumerate(row) for _ in range(count)] for row in FLEISS]
    assert fleiss_kappa(ratings) == pytest.approx(0.2099, abs=5e-5)


def test_fleiss_of_two_split_items() -> None:
    # aab and abb: each item has one agreeing pair of three; both labels half of the time: (1/3 − 1/2) / (1/2).
    assert fleiss_kappa(["aab", "abb"]) == pytest.approx(-1 / 3)


@pytest.mark.parametrize("ratings", [[], ["a", "b"], ["aaa", "aaa"]])
def test_fleiss_is_undefined_without_items_with_single_labels_and_with_one_label_throughout(ratings: list[str]) -> None:
    assert fleiss_kappa(ratings) is None


def test_fleiss_wants_equally_many_labels() -> None:
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa(["ab", "abc"])


def test_two_people_are_compared_by_cohen_and_more_by_fleiss() -> None:
    two = agreement_of([{"ana": "x", "ben": "x"}, {"ben": "y", "ana": "x"}])
    # Ana said x, x; Ben x, y: observed 1/2, expected 1·1/2; κ = 0.
    assert (two.name, two.value, two.observed, two.items, two.raters) == ("Cohen's κ", 0.0, 0.5, 2, 2)
    three = agreement_of([{"ana": "x", "ben": "x"}, {"ben": "y", "cem": "y"}])
    assert (three.name, three.value, three.observed, three.raters) == ("Fleiss' κ", 1.0, 1.0, 3)


def test_nothing_done_yet_has_no_agreement_rather_than_none_at_all() -> None:
    nothing = agreement_of([])
    assert (nothing.value, nothing.observed, nothing.items) == (None, None, 0)
