"""Faults have no reward, the guilty are barred, and what ends a run says whose turn it is."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.checkpoint import damage
from trainer.config import RunConfig
from trainer.errors import InfrastructureError, UserError
from trainer.eventlog import read_events
from trainer.learn.engine import TrainRow
from trainer.run import Engines, attempt, create
from trainer.rundir import RunDirectory

ROOT = Path(__file__).parents[3]


class Ran:
    def __init__(self, root: Path, engines: Any, **overrides: Any) -> None:
        self.run = create(root, fake_config(**overrides))
        self.engines = engines
        self.code = attempt(self.run, engines)
        self.events = list(read_events(self.run, 1))

    def payloads(self, kind: str) -> list[dict[str, Any]]:
        return [e["payload"] for e in self.events if e["kind"] == kind]


def test_an_environment_that_hangs_is_barred_after_the_first_hang(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(hangs=0.4), sandbox__step_timeout_s=1.0, schedule__rollouts=3)
    assert ran.code == 0
    hung = {s["environment"] for s in ran.payloads("environment_state") if s["state"] == "barred"}
    first = {key for key in hung if key.startswith("r0000")}
    assert first, "the scripted designer wrote one that hangs"
    episodes = ran.payloads("episode")
    for key in first:
        mine = [e for e in episodes if e["environment"] == key]
        assert {e["status"] for e in mine} <= {"env_timeout", "won"} and "env_timeout" in {e["status"] for e in mine}
        assert all(e["reward"] is None for e in mine if e["status"] == "env_timeout")
        assert {e["offset"] for e in mine} == {0}, "barred from later rollouts"
        assert next(e["play"] for e in mine if e["status"] == "env_timeout") == 0, "its canary found it"
    rewards = {r["environment"]: r for r in ran.payloads("designer_reward")}
    for key in first:
        assert rewards[key]["raw"] == -0.5 and rewards[key]["faulty"] and rewards[key]["reward"] is not None
    assert {r["state"] for r in ran.payloads("regret") if r["environment"] in first} == {"faulty"}
    assert first.isdisjoint(m["environment"] for m in ran.payloads("memory_added"))


def test_an_environment_that_raises_is_barred_and_its_episodes_are_in_no_mean(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(raises=0.4), schedule__rollouts=2)
    barred = {s["environment"]: s["reason"] for s in ran.payloads("environment_state") if s["state"] == "barred"}
    assert barred and all("broken in play" in reason for reason in barred.values())
    unhinted = [e for e in ran.payloads("episode") if e["arm"] == "unhinted" and e["offset"] == 0]
    faulted = [e for e in unhinted if e["status"] == "env_error"]
    assert {e["environment"] for e in faulted} == set(barred) and all(
        e["fault"] and e["reward"] is None for e in faulted
    )
    rewards = [e["reward"] for e in unhinted if e["reward"] is not None]
    assert ran.payloads("metrics")[0]["values"]["win_rate/unhinted"] == pytest.approx(sum(rewards) / len(rewards))
    assert ran.payloads("rollout_started")[1]["environments"] == 4 - len(barred)


def test_a_sampler_error_is_a_status_and_the_rest_of_the_group_is_trained(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(moves=0.1), schedule__rollouts=2, schedule__plays=4)
    failed = [e for e in ran.payloads("episode") if e["status"] == "sampler_error"]
    assert failed and all(e["reward"] is None for e in failed)
    trained = {row.sample for batch in ran.engines.learner.batches for row in batch}
    assert trained and trained.isdisjoint(e["episode"] for e in failed)


def test_a_reply_without_end_of_turn_ends_the_episode_and_is_not_stepped(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(length=0.15), schedule__rollouts=2)
    cut = [e for e in ran.payloads("episode") if e["status"] == "length"]
    assert cut
    for episode in cut:
        assert episode["turns"][-1]["action"] is None and episode["turns"][-1]["reward"] is None
        assert episode["reward"] == 0.0


def test_a_full_context_ends_the_episode_with_reward_0(tmp_path: Path) -> None:
    # Observations of 3,000 bytes fill a context of 8,192 in the third turn.
    ran = Ran(tmp_path / "run", FakeEngines(wordy=1.0), model__context_tokens=8192, schedule__rollouts=1)
    full = [e for e in ran.payloads("episode") if e["status"] == "context_full"]
    assert full
    for episode in full:
        assert episode["reward"] == 0.0
        assert episode["total_tokens"] >= 8192 - 64, "played until at most 64 tokens were left"
    rows = {row.sample for batch in ran.engines.learner.batches for row in batch}
    assert {e["episode"] for e in full if e["arm"] == "unhinted"} <= rows


def test_no_environment_at_all_stops_with_what_to_do(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(syntax=1.0))
    assert ran.code == 4
    last = ran.payloads("run_state")[-1]
    assert last["state"] == "failed" and last["owner"] == "limit"
    assert "none of 12 design attempts passed" in last["reason"] and "designer.attempts" in last["reason"]
    assert len(ran.payloads("candidate")) == 12, "4 slots, 3 tries each, every candidate kept"


def test_fewer_environments_when_slots_fail(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(syntax=0.75), schedule__rollouts=2)
    assert ran.code == 0
    filled = {e["environment"] for e in ran.payloads("environment")}
    assert 0 < len(filled) < 4
    assert ran.payloads("metrics")[0]["values"]["gates/slots_filled"] == len(filled) / 4
    assert {e["environment"] for e in ran.payloads("episode")} == filled


def test_when_every_episode_fails_in_the_machinery_the_run_says_so(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(moves=1.0))
    assert ran.code == 3
    last = ran.payloads("run_state")[-1]
    assert last["owner"] == "infrastructure" and "failed: sampler_error: scripted failure" in last["reason"]
    assert not ran.engines.learner.batches


class NanEngines(FakeEngines):
    """The third update finds a loss that is not finite."""

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        engines = super().__call__(config, known)
        update = self.learner.update

        def failing(rows: Sequence[TrainRow], *, rollout: int) -> Mapping[str, float | None]:
            if rollout == 2:
                raise InfrastructureError("the loss of rollout 2 is not finite; the weights are unchanged")
            return update(rows, rollout=rollout)

        self.learner.update = failing  # type: ignore[method-assign]
        return engines


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", NanEngines())
    assert ran.code == 3
    assert "not finite" in ran.payloads("run_state")[-1]["reason"]
    newest = sorted(ran.run.checkpoints.iterdir())[-1]
    assert newest.name == "000002" and damage(newest) == ""


class NoMemoryEngines(FakeEngines):
    """An update finds no memory."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        engines = super().__call__(config, known)

        def failing(rows: Sequence[TrainRow], *, rollout: int) -> Mapping[str, float | None]:
            raise self.error

        self.learner.update = failing  # type: ignore[method-assign]
        return engines


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"
        ),
    ],
    ids=["python", "gpu", "cpu"],
)
def test_memory_that_runs_out_is_a_limit_and_names_the_settings_that_take_less(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    ran = Ran(tmp_path / "run", NoMemoryEngines(error), schedule__rollouts=1)
    assert ran.code == 4
    last = ran.payloads("run_state")[-1]
    assert (last["state"], last["owner"]) == ("failed", "limit")
    assert last["reason"].startswith(f"memory ran out ({type(error).__name__}")
    assert "optim.micro_batch_tokens" in last["reason"] and "engine.sampler_batch" in last["reason"]
    assert "Traceback" not in capsys.readouterr().err


class FullDiskEngines(FakeEngines):
    """The disk fills up while the weights of the third checkpoint are written."""

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        engines = super().__call__(config, known)
        save = self.learner.save_model

        def failing(directory: Path) -> None:
            save(directory)
            if self.learner.updates == 3:
                raise OSError(errno.ENOSPC, "No space left on device", str(directory / "model.safetensors"))

        self.learner.save_model = failing  # type: ignore[method-assign]
        return engines


def test_a_full_disk_during_a_save_is_a_limit_and_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FullDiskEngines())
    assert ran.code == 4
    last = ran.payloads("run_state")[-1]
    assert last["owner"] == "limit" and "checkpoint 000003" in last["reason"] and "free some space" in last["reason"]
    assert sorted(p.name for p in ran.run.checkpoints.iterdir()) == ["000001", "000002"]
    assert damage(ran.run.checkpoint(2)) == ""
    assert attempt(ran.run, FakeEngines()) == 0, "with space again the run goes on"


def test_a_disk_that_takes_no_more_events_ends_the_run_with_whole_lines(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer.make_run", str(tmp_path / "run")],
        cwd=ROOT, capture_output=True, text=True, preexec_fn=small_files, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "no space left while writing" in done.stderr and "Traceback" not in done.stderr
    run = RunDirectory(tmp_path / "run")
    assert all(data.endswith(b"\n") for data in (p.read_bytes() for p in run.events(1).iterdir()))
    assert [e["seq"] for e in read_events(run, 1)] == list(range(1, sum(1 for _ in read_events(run, 1)) + 1))


def test_the_hinted_arm_can_be_switched_off_for_rewards_without_regret(tmp_path: Path) -> None:
    ran = Ran(
        tmp_path / "run", FakeEngines(), schedule__hinted_plays=0, reward__variant="solve_rate", schedule__rollouts=3
    )
    assert ran.code == 0
    assert {e["arm"] for e in ran.payloads("episode")} == {"unhinted"}
    assert not ran.payloads("hint") and {r["state"] for r in ran.payloads("regret")} == {"no_hint"}


def test_a_frozen_designer_is_scored_but_not_trained(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(), designer__train=False, schedule__rollouts=3)
    assert {r["reward"] for r in ran.payloads("designer_reward")} == {None}
    assert {row.role for batch in ran.engines.learner.batches for row in batch} == {"agent"}


def test_the_audit_gate_rejects_a_clear_no_and_counts_what_it_cannot_read(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(audit_no=0.3, audit_odd=0.4), gates__audit=True, schedule__rollouts=1)
    judged = {
        c["candidate"]: next((s for s in c["stages"] if s["stage"] == "audit"), None) for c in ran.payloads("candidate")
    }
    for candidate in ran.payloads("candidate"):
        stage = judged[candidate["candidate"]]
        if stage is not None:
            assert candidate["accepted"] == (stage["outcome"] != "failed")
    rejected = [c for c in ran.payloads("candidate") if c["failed_stage"] == "audit"]
    unreadable = [s for s in judged.values() if s and s["outcome"] == "unverifiable"]
    assert rejected and unreadable
    values = ran.payloads("metrics")[0]["values"]
    assert values["gates/rejected_audit"] == len(rejected)
    assert values["gates/audit_unreadable"] == len(unreadable)


@pytest.mark.parametrize("variant", ["regret", "learning_potential", "micro_lp", "solve_rate"])
def test_every_reward_variant_runs(tmp_path: Path, variant: str) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(no_hint=0.5), reward__variant=variant, schedule__rollouts=3)
    assert ran.code == 0
    assert {r["variant"] for r in ran.payloads("designer_reward")} == {variant}


def test_the_ema_baseline_is_kept_per_environment(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(), advantage__baseline="ema", schedule__rollouts=2)
    rewards = {e["episode"]: e["reward"] for e in ran.payloads("episode")}
    first = [row for row in ran.engines.learner.batches[0] if row.role == "agent"]
    assert all(row.advantage == rewards[row.sample] for row in first), "the baseline is 0 before its first update"


def test_the_compact_filter_keeps_truncated_episodes_without_gradient(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "run", FakeEngines(), loss__compact_filter=True, schedule__rollouts=2)
    ended = {e["episode"]: e["status"] for e in ran.payloads("episode")}
    rows = [row for batch in ran.engines.learner.batches for row in batch if row.role == "agent"]
    assert any(not any(row.mask) for row in rows)
    for row in rows:
        assert any(row.mask) == (ended[row.sample] in ("won", "lost"))


def test_a_run_directory_in_use_is_refused_with_the_holder(tmp_path: Path) -> None:
    import fcntl

    run = create(tmp_path / "run", fake_config())
    with run.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4242\n")
        file.flush()
        with pytest.raises(UserError, match="in use by another trainer \\(pid 4242\\)"):
            attempt(run, FakeEngines())


def test_a_directory_with_another_run_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "run", fake_config())
    with pytest.raises(UserError, match="already holds a run"):
        create(tmp_path / "run", fake_config())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        create(tmp_path / "other", fake_config())
