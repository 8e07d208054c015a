"""The evaluation sets: stored, whole, harder than what is taught, and sound."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from sandbox import Sandbox
from trainer.experiments.programs import UNSEEN, harder, with_knob, with_turns
from trainer.experiments.sets import MAX_TURNS, family_of, load_set
from trainer.starter.families import FAMILIES
from trainer.starter.families.program import Theme

KNOWN = {family.name for family in FAMILIES}
# Knob -> largest value the known families draw.
LARGEST_TAUGHT = {
    "Search": ("width", 15), "Gauge": ("need", 3), "Lock": ("size", 6), "Pairs": ("size", 5), "Grid": ("reach", 6), "Compass": ("need", 5),
    "Series": ("need", 4), "Rule": ("need", 3), "Best": ("size", 4), "Filter": ("need", 3), "Switch": ("size", 6), "Delay": ("need", 4),
}  # fmt: skip


def test_the_probe_set_holds_four_programs_of_every_known_family() -> None:
    counts = Counter(family_of(e.id) for e in load_set("probe").environments)
    assert set(LARGEST_TAUGHT) == set(counts) and set(counts.values()) == {4}


def test_the_held_out_set_holds_harder_programs_and_families_nobody_was_trained_on() -> None:
    counts = Counter(family_of(e.id) for e in load_set("heldout").environments)
    assert set(counts) == set(LARGEST_TAUGHT) | {"Drift", "Relay", "Wells", "Return"}
    assert not {unseen.name for unseen in UNSEEN} & KNOWN
    assert {counts[name] for name in LARGEST_TAUGHT} == {3} and {counts[unseen.name] for unseen in UNSEEN} == {6}


def test_every_harder_program_has_a_knob_outside_the_taught_range() -> None:
    for environment in load_set("heldout").environments:
        knob, largest = LARGEST_TAUGHT.get(family_of(environment.id), ("", 0))
        if knob:
            found = re.search(rf"self\.{knob} = (\d+)$", environment.code, re.MULTILINE)
            assert found and int(found.group(1)) > largest, environment.id


def test_known_families_stay_within_the_taught_range() -> None:
    """Otherwise the held-out programs would not be harder than what is taught."""
    theme = Theme("Valve", "Tank", (5, 24, 40))
    for family in FAMILIES:
        if family.name not in LARGEST_TAUGHT:
            continue
        knob, largest = LARGEST_TAUGHT[family.name]
        for seed in range(30):
            source = family.draw(random.Random(seed), theme=theme, level="hard", max_turns=12).source
            values = [int(v) for v in re.findall(rf"self\.{knob} = (\d+)$", source, re.MULTILINE)]
            assert values and max(values) <= largest, (family.name, values)


def test_no_program_stands_in_both_sets_and_none_twice() -> None:
    codes = [e.code for name in ("probe", "heldout") for e in load_set(name).environments]
    assert len(set(codes)) == len(codes) == 48 + 60


def test_one_program_of_each_family_passes_all_gates_and_fits_the_turn_budget() -> None:
    first = {family_of(e.id): e for e in reversed(load_set("heldout").environments)}
    with Sandbox() as sandbox:
        for name, environment in first.items():
            report = sandbox.examine(environment.code)
            assert report.accepted, (name, [(s.stage, s.message) for s in report.stages if s.outcome == "failed"])
            assert "solvable" in {s.stage for s in report.stages if s.outcome == "passed"}, name
            turns = re.search(r"min\(max_turns, (\d+)\)", environment.code)
            assert turns and int(turns.group(1)) <= MAX_TURNS, name


def test_a_set_of_other_programs_has_another_fingerprint() -> None:
    probe, heldout = load_set("probe"), load_set("heldout")
    assert probe.fingerprint == load_set("probe").fingerprint != heldout.fingerprint


def test_knobs_are_set_exactly_once() -> None:
    source = "    def __init__(self, max_turns=4, **kwargs):\n        self.max_turns = min(max_turns, 4)\n        self.need = 2\n"
    assert "self.need = 12\n" in with_knob(source, "need", 12)
    assert with_turns(source, 9).count("9") == 2
    with pytest.raises(ValueError, match="0 times"):
        with_knob(source, "width", 3)
    with pytest.raises(KeyError):
        harder("Unknown", source, random.Random(0))
