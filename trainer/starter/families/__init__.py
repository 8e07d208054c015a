"""Environment families the built-in model is taught: one module per skill or two, all drawn from a seeded generator."""

from __future__ import annotations

from trainer.starter.families.causal import Delay, Pairs, Switch
from trainer.starter.families.logical import Lock
from trainer.starter.families.mathematical import Gauge, Search
from trainer.starter.families.optimising import Best, Filter
from trainer.starter.families.pattern import Rule, Series
from trainer.starter.families.program import Family
from trainer.starter.families.spatial import Compass, Grid

FAMILIES: tuple[Family, ...] = (
    Search(), Gauge(), Lock(), Pairs(), Grid(), Compass(), Series(), Rule(), Best(), Filter(), Switch(), Delay(),
)  # fmt: skip
BY_NAME = {family.name: family for family in FAMILIES}


def families_of(skill: str) -> tuple[Family, ...]:
    """Families that train `skill`; all of them for a skill this generator does not know."""
    return tuple(family for family in FAMILIES if skill in family.skills) or FAMILIES
