"""What the designer is shown of earlier environments."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from trainer.config import MemoryConfig
from trainer.memory import Memory, MemoryRecord

CASES = json.loads((Path(__file__).parents[1] / "conformance" / "memory.json").read_text())


def record(name: str, *, skill: str = "math", share: float = 0.5, regret: float | None = 0.1) -> MemoryRecord:
    return MemoryRecord(name, skill, f"{name}Env", "class Env: ...", share, regret, 0)


def filled(config: MemoryConfig, records: list[MemoryRecord]) -> Memory:
    memory = Memory(config)
    for one in records:
        memory.add(one)
    return memory


def test_kept_records_and_pools_agree_with_the_shared_case() -> None:
    case = CASES["memory"]
    adds = [record(a["name"], skill=a["skill"], share=a["win_rate"], regret=a["regret"]) for a in case["adds"]]
    memory = filled(MemoryConfig(size=case["max_size"], snippet_chars=case["snippet_chars"]), adds)
    assert [r.environment for r in memory.records] == case["expect_kept"]
    for skill, names in case["seeds_by_skill"].items():
        assert sorted(r.environment for r in memory.example_pool(skill, count=2)) == sorted(names)
    for skill, names in case["negatives_by_skill"].items():
        assert [r.environment for r in memory.counter_pool(skill)] == names


def test_the_example_pool_is_the_top_by_regret_as_in_the_shared_case() -> None:
    case = CASES["memory_pool"]
    records = [record(r["name"], share=r["win_rate"], regret=r["regret"]) for r in case["records"]]
    memory = filled(MemoryConfig(), records)
    assert {r.environment for r in memory.example_pool("math", count=2)} == set(case["sample2_support"])
    assert {r.environment for r in memory.example_pool("math", count=4)} == set(case["sample4_support"])


def test_examples_are_drawn_from_the_same_skill_inside_the_band() -> None:
    records = [record("mine"), record("other", skill="logic"), record("easy", share=0.86), record("hard", share=0.14)]
    recall = filled(MemoryConfig(), records).recall("math", rng=random.Random(1))
    assert [r.environment for r in recall.examples] == ["mine"]
    assert recall.counter_examples == ()


def test_the_edges_of_the_band_are_inside_it_and_those_of_too_easy_and_too_hard_are_not() -> None:
    shares = (0.05, 0.1, 0.15, 0.85, 0.9, 0.95)
    memory = filled(MemoryConfig(), [record(f"{share}", share=share) for share in shares])
    assert sorted(r.environment for r in memory.example_pool("math", count=2)) == ["0.15", "0.85"]
    assert [r.environment for r in memory.counter_pool("math")] == ["0.05", "0.95"]


def test_counter_examples_say_what_was_wrong() -> None:
    memory = filled(MemoryConfig(counter_examples=2), [record("easy", share=0.95), record("hard", share=0.05)])
    recall = memory.recall("math", rng=random.Random(1))
    assert {(c.class_name, c.reason) for c in recall.shown_counter_examples()} == {
        ("easyEnv", "too easy"), ("hardEnv", "too hard"),
    }  # fmt: skip


def test_the_oldest_record_leaves_first_and_is_reported() -> None:
    memory = filled(MemoryConfig(size=2), [record("a"), record("b")])
    assert [r.environment for r in memory.add(record("c"))] == ["a"]
    assert [r.environment for r in memory.records] == ["b", "c"]


def test_a_record_without_regret_ranks_below_every_measured_one() -> None:
    memory = filled(MemoryConfig(), [record("none", regret=None), record("low", regret=-0.9)])
    assert [r.environment for r in memory.example_pool("math", count=1)] == ["low", "none"]


def test_a_removed_environment_is_never_shown_again() -> None:
    memory = filled(MemoryConfig(), [record("a"), record("b")])
    assert memory.remove("a") and not memory.remove("a")
    assert [r.environment for r in memory.recall("math", rng=random.Random(0)).examples] == ["b"]


def test_a_memory_that_is_switched_off_shows_nothing() -> None:
    memory = filled(MemoryConfig(enabled=False), [record("a")])
    assert memory.recall("math", rng=random.Random(0)).examples == ()


def test_snippets_are_cut_and_state_survives_json() -> None:
    memory = filled(MemoryConfig(snippet_chars=5), [record("a")])
    assert memory.records[0].snippet == "class"
    other = Memory(MemoryConfig())
    other.load_state(json.loads(json.dumps(memory.state())))
    assert other.records == memory.records


def test_two_examples_are_different_records() -> None:
    memory = filled(MemoryConfig(), [record("a"), record("b")])
    for seed in range(20):
        names = [r.environment for r in memory.recall("math", rng=random.Random(seed)).examples]
        assert sorted(names) == ["a", "b"]


def names(memory: Memory) -> list[str]:
    return [r.environment for r in memory.records]


def aged(*records: str) -> list[MemoryRecord]:
    """Records of the rollouts their keys name."""
    return [MemoryRecord(key, "math", "Env", "", 0.5, 0.1, int(key[1:5])) for key in records]


def test_a_purged_record_comes_back_to_its_old_place() -> None:
    keys = ["r0000-s00", "r0000-s99", "r0000-s100", "r0004-s00"]
    memory = filled(MemoryConfig(), aged(*keys))
    assert memory.purge("r0000-s99") and not memory.purge("r0000-s99")
    assert names(memory) == ["r0000-s00", "r0000-s100", "r0004-s00"]
    assert memory.restore("r0000-s99") == []
    assert names(memory) == keys
    with pytest.raises(ValueError, match="no purged memory record of r0000-s99"):
        memory.restore("r0000-s99")


def test_in_a_full_memory_a_restored_record_displaces_an_older_one_or_stays_out() -> None:
    memory = filled(MemoryConfig(size=2), aged("r0000-s00", "r0000-s01"))
    memory.purge("r0000-s01")
    memory.add(*aged("r0004-s00"))
    assert [r.environment for r in memory.restore("r0000-s01")] == ["r0000-s00"]
    assert names(memory) == ["r0000-s01", "r0004-s00"]
    memory.purge("r0000-s01")
    memory.add(*aged("r0004-s01"))
    with pytest.raises(ValueError, match="full of records newer than r0000-s01"):
        memory.restore("r0000-s01")
    assert names(memory) == ["r0004-s00", "r0004-s01"]


def test_a_purged_environment_that_is_quarantined_cannot_be_restored() -> None:
    memory = filled(MemoryConfig(), aged("r0000-s00"))
    memory.purge("r0000-s00")
    assert not memory.remove("r0000-s00")
    with pytest.raises(ValueError, match="no purged"):
        memory.restore("r0000-s00")


def test_purged_records_survive_json() -> None:
    memory = filled(MemoryConfig(), aged("r0000-s00", "r0000-s01"))
    memory.purge("r0000-s00")
    other = Memory(MemoryConfig())
    other.load_state(json.loads(json.dumps(memory.state())), json.loads(json.dumps(memory.purged_state())))
    other.restore("r0000-s00")
    assert names(other) == ["r0000-s00", "r0000-s01"]
