"""How far reviewers agree beyond chance. Pure numbers; None where a statistic is not defined, never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

Labels = Mapping[Hashable, Hashable]  # rater → label of one item


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A statistic over ``items`` that ``raters`` people labelled; ``observed`` is the share of agreeing pairs of labels."""

    name: str
    value: float | None
    observed: float | None
    items: int
    raters: int


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen (1960): two raters, the same items in the same order.

    None without items, and when both used one and the same label throughout: chance alone then explains everything.
    Raises ValueError for different lengths.
    """
    items = len(first)
    if items != len(second):
        raise ValueError(f"{items} labels against {len(second)}")
    if not items:
        return None
    agreed = sum(a == b for a, b in zip(first, second, strict=True))
    counts, others = Counter(first), Counter(second)
    by_chance = sum(counts[label] * others[label] for label in counts)  # of items², kept whole so that 1 is exact
    if by_chance == items * items:
        return None
    expected = by_chance / (items * items)
    return (agreed / items - expected) / (1 - expected)


def fleiss_kappa(ratings: Sequence[Sequence[Hashable]]) -> float | None:
    """Fleiss (1971): each item labelled equally often, by whomever.

    None without items, with fewer than two labels an item, and when only one label was ever used. Raises ValueError for unequal numbers.
    """
    if not ratings:
        return None
    each = len(ratings[0])
    if any(len(labels) != each for labels in ratings):
        raise ValueError("every item needs the same number of labels")
    if each < 2:
        return None
    used = Counter(label for labels in ratings for label in labels)
    total = each * len(ratings)
    by_chance = sum(count * count for count in used.values())
    if by_chance == total * total:
        return None
    expected = by_chance / (total * total)
    return (_observed(ratings) - expected) / (1 - expected)


def agreement_of(items: Sequence[Labels]) -> Agreement:
    """Cohen's κ when the same two people labelled every item, Fleiss' κ otherwise."""
    raters = sorted({rater for labels in items for rater in labels}, key=str)
    ratings = [list(labels.values()) for labels in items]
    observed = _observed(ratings) if ratings and len(ratings[0]) > 1 else None
    if len(raters) == 2 and all(len(labels) == 2 for labels in items):
        first, second = raters
        value = cohen_kappa([labels[first] for labels in items], [labels[second] for labels in items])
        name = "Cohen's κ"
    else:
        value, name = fleiss_kappa(ratings), "Fleiss' κ"
    return Agreement(name=name, value=value, observed=observed, items=len(items), raters=len(raters))


def _observed(ratings: Sequence[Sequence[Hashable]]) -> float:
    """Mean over items of the share of pairs of labels that are the same."""
    shares = []
    for labels in ratings:
        each = len(labels)
        same = sum(count * (count - 1) for count in Counter(labels).values())
        shares.append(same / (each * (each - 1)))
    return sum(shares) / len(shares)
