"""A run that goes on from a checkpoint of another one: what is refused at once, how its directory is made, and the real thing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.runs.supervising import is_under_way, queued, supervise, when
from trainer.config import RunConfig
from trainer.presets import load_preset, with_overrides
from webapp.accounts.models import AuditEntry, User
from webapp.runs import services
from webapp.runs.configuration import apply_overrides, parse_config
from webapp.runs.errors import ActRefused
from webapp.runs.models import Attempt, Checkpoint, MetricPoint, Run
from webapp.runs.services_fork import checkpoints_on_disk, fork_run
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.supervisor import Supervisor

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path


@pytest.fixture
def source(operator: User) -> Run:
    """A completed run of three rollouts, with checkpoints after each; the scripted trainer writes no events about them."""
    run = supervise(queued(operator))
    for number in (1, 2, 3):
        name = f"{number:06d}"
        Checkpoint.objects.get_or_create(
            run=run, attempt=1, name=name,
            defaults={"rollout": number - 1, "next_rollout": number, "bytes": 1, "elapsed_s": 0.1, "at": timezone.now()},
        )  # fmt: skip
        (Path(run.directory) / "checkpoints" / name / "COMPLETE").touch()
    return run


@pytest.fixture
def forked(source: Run, operator: User) -> Callable[..., Run]:
    """``forked("000002", rollouts=5)``: a queued fork of the source."""

    def make(checkpoint: str, **script: Any) -> Run:
        rollouts = {"schedule": {**source.config["schedule"], "rollouts": 9}}
        config = parse_config({**source.config, **rollouts, "description": json.dumps({"rollouts": 5, **script})})
        run = fork_run(actor=operator, run_id=source.pk, checkpoint=checkpoint, config=config)
        return services.start_run(actor=operator, run_id=run.pk)

    return make


def test_a_fork_is_made_and_then_goes_on_from_the_checkpoint(forked: Callable[..., Run], source: Run) -> None:
    run = supervise(forked("000002"))
    assert (run.status, run.parent, run.fork_checkpoint) == ("completed", source, "000002"), run.failure_message
    attempt = Attempt.objects.get(run=run)
    assert (attempt.number, attempt.start_rollout, attempt.exit_code) == (1, 2, 0)
    assert run.rollouts_done == 5
    assert AuditEntry.objects.get(action="run.forked").detail == {"parent": source.slug, "checkpoint": "000002"}


def test_a_fork_that_the_trainer_refuses_fails_with_its_words_and_is_made_again_on_resume(
    forked: Callable[..., Run], operator: User
) -> None:
    run = supervise(forked("000002", fork_say="trainer: user: checkpoint 000002 is damaged"))
    assert (run.status, run.failure_owner) == ("failed", "user")
    assert run.failure_message == "trainer: user: checkpoint 000002 is damaged"
    Run.objects.filter(pk=run.pk).update(config={**run.config, "description": json.dumps({"rollouts": 5})})
    run.refresh_from_db()
    services.resume_run(actor=operator, run_id=run.pk)
    assert supervise(run).status == "completed"


def test_the_making_of_a_fork_is_stopped_like_a_run(forked: Callable[..., Run], operator: User) -> None:
    run = forked("000002", fork_s=60)
    is_made = Attempt.objects.filter(run=run, pid__isnull=False).exists
    run = supervise(run, when(is_made, lambda: services.stop_run(actor=operator, run_id=run.pk)))
    assert run.status == "stopped"
    assert not Path(run.directory).exists()
    assert is_under_way(run)() is False


def test_a_checkpoint_that_is_not_there_is_refused_at_once(source: Run, operator: User) -> None:
    config = parse_config(source.config)
    with pytest.raises(ActRefused, match="has no checkpoint 000009"):
        fork_run(actor=operator, run_id=source.pk, checkpoint="000009", config=config)
    with pytest.raises(ActRefused, match="has no checkpoint"):
        fork_run(actor=operator, run_id=source.pk, checkpoint="../../etc", config=config)
    shutil.rmtree(Path(source.directory) / "checkpoints" / "000002")
    assert checkpoints_on_disk(run=source) == {"000001", "000003"}
    with pytest.raises(ActRefused, match="no longer on the disk"):
        fork_run(actor=operator, run_id=source.pk, checkpoint="000002", config=config)
    assert not Run.objects.filter(parent=source).exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"schedule.rollouts": 2}, "leaves nothing to do"), ({"model.path": "another"}, "does not go with a checkpoint")],
)  # fmt: skip
def test_settings_that_make_the_checkpoint_meaningless_are_refused_at_once(
    changes: dict[str, Any], words: str, source: Run, operator: User
) -> None:
    config = apply_overrides(parse_config(source.config), changes)
    with pytest.raises(ActRefused, match=words):
        fork_run(actor=operator, run_id=source.pk, checkpoint="000002", config=config)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_run_is_forked_with_another_learning_rate(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    small = {"schedule.rollouts": 2, "schedule.environments": 2, "schedule.active_skills": 2, "designer.attempts": 5}
    config = with_overrides(load_preset("tiny"), small)
    source = _train(services.create_run(actor=operator, config=config), operator)
    assert source.status == "completed", source.failure_message
    name = Checkpoint.objects.filter(run=source).latest("next_rollout").name
    changed: RunConfig = with_overrides(config, {"schedule.rollouts": 3, "optim.learning_rate": 1e-5})
    run = _train(fork_run(actor=operator, run_id=source.pk, checkpoint=name, config=changed), operator)
    assert run.status == "completed", run.failure_message
    assert (run.rollouts_done, run.gap) == (3, False)
    assert set(MetricPoint.objects.filter(run=run).values_list("rollout", flat=True)) == {2}
    assert not run.events.exclude(problem="").exists()


def _train(run: Run, operator: User) -> Run:
    services.start_run(actor=operator, run_id=run.pk)
    claim = claim_next(gpu_set="here:all")
    assert claim is not None
    Supervisor(claim).supervise()
    run.refresh_from_db()
    return run
