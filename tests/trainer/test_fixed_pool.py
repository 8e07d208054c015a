"""Frozen environments: how a pool is read, in which order it is drawn, and how one is written."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.config import PoolConfig, RunConfig
from trainer.errors import UserError
from trainer.fixed_pool import FixedPool, FrozenEnvironment, load_pool
from trainer.presets import load_preset, with_overrides
from trainer.run import Engines
from trainer.write_pool import write_pool


class Untrained(FakeEngines):
    """Scripted engines of a model that has a directory."""

    def __init__(self, root: Path, **faults: float) -> None:
        super().__init__(**faults)
        self.directory = root / "model"
        self.directory.mkdir(exist_ok=True)
        (self.directory / "config.json").write_text("{}")

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        return replace(super().__call__(config, known), model_directory=self.directory)


def pool(size: int, seed: int = 42) -> FixedPool:
    return FixedPool([FrozenEnvironment(f"e{i:02d}", "s", f"code {i}") for i in range(size)], source="here", seed=seed)


def ids(drawn: list[FrozenEnvironment]) -> list[str]:
    return [environment.id for environment in drawn]


def test_a_pass_through_the_pool_follows_one_seeded_shuffle_of_the_sorted_ids() -> None:
    order = [f"e{i:02d}" for i in range(6)]
    random.Random(42).shuffle(order)
    mine = pool(6)
    assert ids(mine.draw(4)) + ids(mine.draw(2)) == order


def test_when_the_pool_runs_out_it_is_shuffled_again_and_no_set_holds_an_environment_twice() -> None:
    mine = pool(7)
    sets = [ids(mine.draw(5)) for _ in range(20)]
    assert all(len(set(drawn)) == 5 for drawn in sets)
    first_pass = sets[0] + sets[1][:2]
    assert sorted(first_pass) == [f"e{i:02d}" for i in range(7)]


def test_a_pool_smaller_than_a_set_is_drawn_as_a_whole() -> None:
    assert sorted(ids(pool(3).draw(9))) == ["e00", "e01", "e02"]


def test_rejected_environments_are_never_drawn() -> None:
    mine = pool(5)
    mine.reject({"e01": "parse", "e03": "contract"})
    assert {i for _ in range(6) for i in ids(mine.draw(2))} == {"e00", "e02", "e04"}


def test_draws_continue_from_a_saved_state() -> None:
    one, other = pool(7), pool(7)
    one.draw(5)
    saved = json.loads(json.dumps(one.state()))
    expected = [ids(one.draw(5)) for _ in range(6)]
    other.load_state(saved)
    assert [ids(other.draw(5)) for _ in range(6)] == expected


def test_a_pool_that_changed_since_the_checkpoint_is_refused() -> None:
    with pytest.raises(UserError, match="must not change"):
        pool(6).load_state(pool(7).state())


def lines(path: Path, *records: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_a_folder_is_read_file_by_file_and_missing_fields_are_filled(tmp_path: Path) -> None:
    lines(tmp_path / "p" / "b.jsonl", {"code": "B", "id": "bee", "hint": " ", "other": 1})
    lines(tmp_path / "p" / "a.jsonl", {"code": "A", "skill": "Logical Deduction", "hint": "think"}, "")
    found = load_pool(PoolConfig(path=str(tmp_path / "p")))
    assert found is not None
    assert list(found.environments.values()) == [
        FrozenEnvironment("a-00001", "Logical Deduction", "A", "think"),
        FrozenEnvironment("bee", "unknown", "B", None),
    ]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("{", "line 2 of p.jsonl is not JSON"),
        ([1], "line 2 of p.jsonl must hold one JSON object"),
        ({"id": "x"}, 'line 2 of p.jsonl has no program text under "code"'),
        ({"id": "one", "code": "c"}, "the id 'one' is there twice"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, record: Any, says: str) -> None:
    file = lines(tmp_path / "p.jsonl", {"id": "one", "code": "c"}, record)
    with pytest.raises(UserError, match=says):
        load_pool(PoolConfig(path=str(file)))


def test_missing_empty_and_unknown_pools_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trainer pool write"):
        load_pool(PoolConfig(path=str(tmp_path / "nowhere")))
    with pytest.raises(UserError, match="holds no environment"):
        load_pool(PoolConfig(path=str(lines(tmp_path / "p.jsonl", ""))))
    with pytest.raises(UserError, match="builtin:demo"):
        load_pool(PoolConfig(path="builtin:other"))
    assert load_pool(PoolConfig()) is None


def test_a_pool_and_a_trained_designer_contradict_each_other() -> None:
    with pytest.raises(UserError, match=r"pool\.path is set but designer\.train is on"):
        with_overrides(load_preset("demo"), {"pool.path": "builtin:demo"})


def test_writing_a_pool_goes_on_after_an_interruption_and_ends_with_the_same_file(tmp_path: Path) -> None:
    config = fake_config()
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    assert write_pool(whole, config, Untrained(tmp_path, syntax=0.3), environments=11).environments == 12
    records = [json.loads(line) for line in whole.read_text().splitlines()]
    assert [r["set"] for r in records] == [0] * 4 + [1] * 4 + [2] * 4
    assert [r["id"][:5] for r in records[::4]] == ["r0000", "r0002", "r0004"]
    assert all(r["hint"] and r["code"].startswith("import random") for r in records)
    # Two sets, and the third torn in its second line.
    text = whole.read_bytes()
    broken.write_bytes(b"".join(text.splitlines(keepends=True)[:9]) + b'{"id": "r0004-s')
    written = write_pool(broken, config, Untrained(tmp_path, syntax=0.3), environments=11)
    assert (written.environments, written.added) == (12, 4)
    assert broken.read_bytes() == text
    assert write_pool(broken, config, Untrained(tmp_path), environments=5).added == 0


def test_a_pool_of_other_settings_or_another_origin_is_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    write_pool(file, fake_config(), Untrained(tmp_path), environments=2)
    with pytest.raises(UserError, match="with other settings"):
        write_pool(file, fake_config(designer__temperature=0.9), Untrained(tmp_path), environments=8)
    write_pool(file, fake_config(optim__learning_rate=0.1), Untrained(tmp_path), environments=4)
    lines(file, {"id": "a", "code": "b"})
    with pytest.raises(UserError, match="no pool this command wrote"):
        write_pool(file, fake_config(), Untrained(tmp_path), environments=2)


@pytest.mark.parametrize("theirs", ["notes without a last newline", '{"id": "a", "code": "b"}', '{"text": "cut'])
def test_a_file_of_somebody_else_is_refused_and_stays_as_it_is(tmp_path: Path, theirs: str) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(theirs)
    with pytest.raises(UserError, match=r"no pool this command wrote.*give another file"):
        write_pool(file, fake_config(), Untrained(tmp_path), environments=2)
    assert file.read_text() == theirs


def test_a_first_line_that_was_torn_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_bytes(b'{"id": "r0000-s00", "skill": "Mathem')
    assert write_pool(file, fake_config(), Untrained(tmp_path), environments=2).environments == 4
    assert all(json.loads(line)["id"] for line in file.read_text().splitlines())
