"""Adaptive difficulty: the window against the shared cases, the draws, and a run in which it moves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fakes import FakeEngines, fake_config, game
from trainer.adaptive_pool import AdaptivePool, DifficultyWindow
from trainer.checkpoint import Checkpoints
from trainer.config import PoolConfig
from trainer.errors import UserError
from trainer.eventlog import read_events
from trainer.fixed_pool import FrozenEnvironment, load_pool
from trainer.presets import load_preset, with_overrides
from trainer.run import attempt, create

CASES = json.loads((Path(__file__).parents[1] / "conformance" / "schedule.json").read_text())["sliding_window"]


@pytest.mark.parametrize("case", CASES)
def test_the_window_moves_as_the_shared_cases_say(case: dict[str, Any]) -> None:
    window, seen = DifficultyWindow(), []
    for difficulty, reward in case["updates"]:
        window.update(
            difficulty,
            reward,
            accuracy=case["tau_acc"],
            episodes=case["tau_num"],
            width=case["d_delta"],
            hardest=case["max_difficulty"],
        )
        seen.append([window.low, window.high])
    assert seen == case["expect_window"]


def frozen(name: str, difficulty: int, variant: int = 0) -> FrozenEnvironment:
    code = f"{name} {difficulty} {variant}"
    return FrozenEnvironment(f"{name}-{difficulty}-{variant}", "s", code, name=name, difficulty=difficulty)


def adaptive(*environments: FrozenEnvironment, **settings: Any) -> AdaptivePool:
    values = {
        "path": "here",
        "adaptive": True,
        "adaptive_episodes": 4,
        "adaptive_width": 2,
        "adaptive_accuracy": 0.75,
    } | settings
    return AdaptivePool(environments, source="here", config=PoolConfig(**values))


def pool() -> AdaptivePool:
    return adaptive(*[frozen(name, difficulty, v) for name in "abc" for difficulty in (0, 2, 5) for v in (0, 1)])


def test_a_set_holds_different_names_at_the_easiest_difficulty_first() -> None:
    mine = pool()
    for _ in range(20):
        drawn = mine.draw(2)
        assert len({e.name for e in drawn}) == 2 and {e.difficulty for e in drawn} == {0}
    assert sorted(e.name for e in mine.draw(9)) == ["a", "b", "c"]


def test_difficulties_that_are_not_there_are_skipped_and_the_last_one_is_the_end() -> None:
    mine = pool()
    mine.observe("a-0-0", [1.0, 1.0, 1.0, 0.0])  # three of four: moves to the second difficulty, 2
    assert (mine.windows["a"].low, mine.windows["a"].high) == (0, 1)
    mine.observe("a-0-1", [1.0] * 8)  # below the upper end: does not count
    assert mine.windows["a"].attempts == 0
    mine.observe("a-2-0", [1.0] * 4)
    assert (mine.windows["a"].low, mine.windows["a"].high) == (1, 2)  # never wider than two
    mine.observe("a-5-0", [1.0] * 4)
    assert (mine.windows["a"].low, mine.windows["a"].high) == (1, 2)  # nothing is harder
    drawn = Counter(e.difficulty for _ in range(60) for e in mine.draw(3) if e.name == "a")
    assert set(drawn) == {2, 5} and min(drawn.values()) > 15
    assert {e.difficulty for e in mine.draw(3) if e.name != "a"} == {0}


def test_what_a_fork_brought_along_or_the_gates_refused_since_moves_no_window() -> None:
    mine = pool()
    mine.rejected["a-0-0"] = "size"
    mine.observe("r0000-s00-a1", [1.0] * 8)
    mine.observe("a-0-0", [1.0] * 8)
    assert all((w.low, w.high, w.attempts) == (0, 0, 0) for w in mine.windows.values())


def test_too_few_wins_start_the_count_again() -> None:
    mine = pool()
    mine.observe("b-0-0", [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    window = mine.windows["b"]
    assert (window.high, window.attempts, window.successes) == (0, 3, 3)


def test_rejected_programs_leave_their_difficulty_to_the_others() -> None:
    mine = adaptive(frozen("a", 0), frozen("a", 1), frozen("b", 0))
    mine.reject({"a-0-0": "parse", "b-0-0": "parse"})
    assert [e.id for e in mine.draw(5)] == ["a-1-0"]


def test_windows_survive_a_checkpoint() -> None:
    one, other = pool(), pool()
    one.observe("a-0-0", [1.0] * 5)
    one.draw(2)
    other.load_state(json.loads(json.dumps(one.state())))
    assert other.windows == one.windows
    assert [[e.id for e in other.draw(2)] for _ in range(5)] == [[e.id for e in one.draw(2)] for _ in range(5)]


def test_lines_without_name_or_with_an_odd_difficulty_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"id": "x", "code": "c"}) + "\n")
    with pytest.raises(UserError, match=r'x in .* has no "name"'):
        load_pool(PoolConfig(path=str(file), adaptive=True))
    file.write_text(json.dumps({"id": "x", "code": "c", "name": "n", "difficulty": -1}) + "\n")
    with pytest.raises(UserError, match=r"line 1 of p\.jsonl: difficulty must be a whole number"):
        load_pool(PoolConfig(path=str(file), adaptive=True))
    with pytest.raises(UserError, match=r"pool\.adaptive is on but pool\.path"):
        with_overrides(load_preset("demo"), {"pool.adaptive": True})


def test_the_built_in_ladder_has_every_family_at_three_difficulties() -> None:
    ladder = load_pool(load_preset("demo-rlve").pool)
    assert isinstance(ladder, AdaptivePool)
    counts = Counter((e.name, e.difficulty) for e in ladder.environments.values())
    assert set(counts.values()) == {2} and len(counts) == 12 * 3
    assert len({e.code for e in ladder.environments.values()}) == 72


def test_a_run_moves_the_windows_by_what_was_won(tmp_path: Path) -> None:
    file = tmp_path / "ladder.jsonl"
    records = [
        {"id": f"{name}{d}", "name": name, "difficulty": d, "code": game(name=f"Hunt{name}{d}", word=name, turns=6 + d)}
        for name in ("ant", "bee", "cat")
        for d in (0, 1)
    ]
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    config = fake_config(
        pool__path=str(file), pool__adaptive=True, pool__adaptive_episodes=2, pool__adaptive_accuracy=0.01, designer__train=False,
        schedule__hinted_plays=0, schedule__regenerate_every=1, schedule__designer_delay=1, reward__variant="solve_rate",
        schedule__environments=3, schedule__plays=4, schedule__rollouts=3,
    )  # fmt: skip
    run = create(tmp_path / "run", config)
    assert attempt(run, FakeEngines()) == 0
    windows = {name: DifficultyWindow() for name in ("ant", "bee", "cat")}
    candidates: dict[str, str] = {}
    rewards: dict[str, list[float]] = {}
    for event in read_events(run, 1):
        payload = event["payload"]
        if event["kind"] == "environment":
            candidates[payload["environment"]] = payload["candidate"].removeprefix("pool/")
        elif event["kind"] == "episode":
            rewards.setdefault(payload["environment"], []).append((payload["play"], payload["reward"]))
    for key, played in rewards.items():
        name, difficulty = candidates[key][:3], int(candidates[key][3:])
        assert windows[name].low <= difficulty <= windows[name].high
        for _, reward in sorted(played):
            windows[name].update(difficulty, reward, accuracy=0.01, episodes=2, width=4, hardest=1)
    saved = Checkpoints(run, config.checkpoint).newest(print)
    assert saved is not None
    assert {n: DifficultyWindow(**w) for n, w in saved.state["pool"]["windows"].items()} == windows
    assert {w.high for w in windows.values()} == {1}, "the scripted player wins now and then"
