"""A run that is killed and resumed equals one that was not, bit for bit, wall-clock fields aside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer import soak
from tests.trainer.compare import assert_same_run
from tests.trainer.fakes import FakeEngines, fake_config
from trainer.eventlog import attempts, read_events
from trainer.run import attempt, create
from trainer.rundir import RunDirectory
from trainer.weights import STARTER_DIRECTORY

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> soak.Whole:
    return soak.run_in_peace(tmp_path_factory.mktemp("whole") / "run", rollouts=12)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_three_kills_at_random_instants_change_nothing_of_a_run_of_the_built_in_model(
    uninterrupted: soak.Whole, tmp_path: Path
) -> None:
    # With this seed one kill hits while the trainer starts, two while it works.
    assert soak.kill_runs(uninterrupted, tmp_path, kills=3, runs=1, seed=21) == 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_run_that_kills_must_not_change_changes_the_weights(uninterrupted: soak.Whole) -> None:
    end = RunDirectory(uninterrupted.directory).checkpoint(12) / "model" / "model.safetensors"
    assert end.read_bytes() != (STARTER_DIRECTORY / "model.safetensors").read_bytes()


def process(directory: Path, *arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer.make_run", str(directory), "--faults", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_kills_at_the_narrow_places_of_the_loop_change_nothing(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    assert process(tmp_path / "whole", "--rollouts", "8") == 0
    for number, instant in enumerate(
        [
            "2:episode:3",  # in the middle of play, right after a new set
            "4:rollout_finished:1",  # everything reported, the checkpoint prepared but not yet in place
            "5:checkpoint:1",  # the checkpoint is in place, its rollout over
        ]
    ):
        goes_on = ("--resume",) if number else ("--rollouts", "8")
        assert process(killed, *goes_on, "--kill", instant) == -signal.SIGKILL
    assert process(killed, "--resume") == 0
    assert attempts(RunDirectory(killed)) == [1, 2, 3, 4]
    assert_same_run(RunDirectory(tmp_path / "whole"), RunDirectory(killed))


def run_fakes(root: Path, *, resume: bool = False, **faults: float) -> FakeEngines:
    engines = FakeEngines(**faults)
    run = RunDirectory(root) if resume else create(root, fake_config())
    assert attempt(run, engines) == 0
    return engines


def test_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run_fakes(tmp_path / name, syntax=0.2, raises=0.2, no_hint=0.5)
    assert_same_run(RunDirectory(tmp_path / "a"), RunDirectory(tmp_path / "b"))


def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path: Path) -> None:
    run_fakes(tmp_path / "whole")
    run_fakes(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    weights = run.checkpoint(6) / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    run_fakes(tmp_path / "run", resume=True)
    events = list(read_events(run, 2))
    assert events[0]["payload"]["checkpoint"] == "000005"
    assert "000006 is damaged" in next(e for e in events if e["kind"] == "warning")["payload"]["message"]
    assert_same_run(RunDirectory(tmp_path / "whole"), run)


def test_when_all_checkpoints_are_damaged_nothing_is_begun_anew_or_removed(tmp_path: Path) -> None:
    run_fakes(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    kept = sorted(path.name for path in run.checkpoints.iterdir())
    for path in run.checkpoints.iterdir():
        (path / "state" / "state.json").unlink()
    assert attempt(run, FakeEngines()) == 2
    (failed,) = [e["payload"] for e in read_events(run, 2)]
    assert (failed["state"], failed["owner"]) == ("failed", "user")
    assert "no checkpoint of" in failed["reason"] and "checkpoint 000006 is damaged" in failed["reason"]
    assert f"Restore one from a copy, or remove {run.checkpoints} to begin again with rollout 0." in failed["reason"]
    assert sorted(path.name for path in run.checkpoints.iterdir()) == kept


def test_without_any_checkpoint_a_resume_starts_from_the_beginning(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config())
    run_fakes(tmp_path / "run", resume=True)
    assert next(read_events(run, 1))["payload"] | {"pid": 0} == next(read_events(run, 1))["payload"] | {
        "pid": 0, "checkpoint": None, "start_rollout": 0,
    }  # fmt: skip


def test_resuming_a_completed_run_does_nothing_and_says_completed(tmp_path: Path) -> None:
    run_fakes(tmp_path / "run")
    engines = run_fakes(tmp_path / "run", resume=True)
    assert engines.sampler.requests == 0
    assert [e["kind"] for e in read_events(RunDirectory(tmp_path / "run"), 2)][-1] == "run_state"


def test_a_torn_last_line_is_cut_when_the_run_goes_on(tmp_path: Path) -> None:
    run_fakes(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    last = sorted(run.events(1).iterdir())[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + b'{"seq": 999, "ti')
    run_fakes(tmp_path / "run", resume=True)
    assert last.read_bytes() == whole
    assert json.loads(whole.splitlines()[-1])["kind"] == "run_state"
