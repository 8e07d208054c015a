"""Which checkpoints are kept: the newest, every m-th, and the best."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainer.fakes import FakeEngines, FakeLearner, fake_config
from trainer.checkpoint import Checkpoints
from trainer.checkpoint_files import read_marker
from trainer.config import CheckpointConfig, RunConfig
from trainer.eventlog import read_events
from trainer.run import attempt, create
from trainer.rundir import RunDirectory
from trainer.state import TrainingState


def kept_after(root: Path, values: list[float | None], **settings: object) -> list[int]:
    """Save one checkpoint per value of the metric; numbers of those that are left."""
    run, config = RunDirectory(root), CheckpointConfig.model_validate(settings)
    checkpoints = Checkpoints(run, config)
    state = TrainingState.fresh(RunConfig(), None)
    for number, value in enumerate(values, start=1):
        state.next_rollout = number
        checkpoints.prepare(FakeLearner(), state.to_dict())
        checkpoints.commit(value)
    return sorted(int(p.name) for p in run.checkpoints.iterdir())


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"keep_last": 2, "keep_every": 0, "keep_best": 0}, [6, 7]),
        ({"keep_last": 1, "keep_every": 3, "keep_best": 0}, [3, 6, 7]),
        ({"keep_last": 1, "keep_every": 0, "keep_best": 1}, [4, 7]),  # 2 and 4 are equally good: the newer one
        ({"keep_last": 1, "keep_every": 0, "keep_best": 3}, [2, 3, 4, 7]),
        ({"keep_last": 1, "keep_every": 5, "keep_best": 1}, [4, 5, 7]),
    ],
)
def test_the_newest_every_mth_and_the_best_are_kept(tmp_path: Path, settings: dict[str, int], kept: list[int]) -> None:
    values = [0.1, 0.5, 0.4, 0.5, None, 0.2, 0.3]
    assert kept_after(tmp_path, values, **settings) == kept


def test_a_checkpoint_without_a_value_is_never_the_best(tmp_path: Path) -> None:
    assert kept_after(tmp_path, [None, -0.5, None], keep_last=1, keep_best=2) == [2, 3]


def test_values_of_another_metric_are_not_compared(tmp_path: Path) -> None:
    """A fork may choose by another metric than its source."""
    assert kept_after(tmp_path, [0.9], keep_last=1, best_metric="regret/mean") == [1]
    checkpoints = Checkpoints(RunDirectory(tmp_path), CheckpointConfig(keep_last=1, keep_best=1))
    state = TrainingState.fresh(RunConfig(), None)
    for number, value in ((2, 0.2), (3, 0.1)):
        state.next_rollout = number
        checkpoints.prepare(FakeLearner(), state.to_dict())
        checkpoints.commit(value)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["000002", "000003"]


def test_the_unhinted_win_rate_over_time_is_what_best_means(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config(checkpoint__keep_every=1, schedule__rollouts=3))
    assert attempt(run, FakeEngines()) == 0
    values = {e["rollout"]: e["payload"]["values"] for e in read_events(run, 1) if e["kind"] == "metrics"}
    rates = [values[r]["win_rate/unhinted"] for r in range(3)]
    second = 0.8 * rates[0] + 0.2 * rates[1]
    expected = [rates[0], second, 0.8 * second + 0.2 * rates[2]]
    assert [values[r]["win_rate/unhinted_ema"] for r in range(3)] == pytest.approx(expected, abs=1e-12)
    for number, value in enumerate(expected, start=1):
        told = read_marker(run.checkpoint(number))["best"]
        assert told == {"metric": "win_rate/unhinted_ema", "value": pytest.approx(value, abs=1e-12)}
    state = json.loads((run.checkpoint(3) / "state" / "state.json").read_text())
    assert state["win_rate_ema"] == pytest.approx(expected[2], abs=1e-12)
