"""The supervisor with the real trainer: built-in model, real sandbox, smallest preset."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from trainer.presets import load_preset, with_overrides
from webapp.environments.models import Candidate, Environment, RegretPoint
from webapp.episodes.models import Episode
from webapp.runs import services
from webapp.runs.models import Attempt, Checkpoint, Event, MetricPoint, Run
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.supervisor import Supervisor

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = {"schedule.rollouts": 3, "schedule.environments": 2, "schedule.active_skills": 2, "designer.attempts": 5}


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SPADEWORK_HOME = tmp_path
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def supervise(run: Run, killer: Any = None) -> Run:
    claim = claim_next(gpu_set="here:all")
    assert claim is not None
    Supervisor(claim, shutting_down=killer or (lambda: False)).supervise()
    run.refresh_from_db()
    return run


def test_a_real_run_is_killed_resumed_and_completed_and_all_of_it_is_here(operator: Any) -> None:
    run = services.create_run(actor=operator, config=with_overrides(load_preset("tiny"), SMALL))
    services.start_run(actor=operator, run_id=run.pk)
    killed = False

    def kill_after_the_first_checkpoint() -> bool:
        nonlocal killed
        if not killed and Checkpoint.objects.filter(run=run).exists():
            killed = True
            pid = Attempt.objects.get(run=run).pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        return False

    run = supervise(run, kill_after_the_first_checkpoint)
    assert (run.status, killed) == ("failed", True), run.failure_message
    assert "SIGKILL" in run.failure_message
    services.resume_run(actor=operator, run_id=run.pk)
    run = supervise(run)
    assert run.status == "completed", run.failure_message
    assert (run.attempt, run.rollouts_done, run.gap) == (2, 3, False)
    misfits = Event.objects.filter(run=run).exclude(problem="").values_list("kind", "problem")
    assert list(misfits) == []
    shown = {"run": run, "superseded": False}
    assert set(MetricPoint.objects.filter(**shown).values_list("rollout", flat=True)) == {0, 1, 2}
    environments = Environment.objects.filter(**shown)
    assert environments.exists()
    assert all(environment.candidate is not None for environment in environments)
    assert Candidate.objects.filter(**shown, accepted=True).count() == environments.count()
    assert Episode.objects.filter(**shown, environment=None).count() == 0
    assert Episode.objects.filter(**shown, arm="hinted").exists()
    assert RegretPoint.objects.filter(**shown).exists()
    on_disk = sum(1 for path in Path(run.directory).glob("attempts/*/events/*.jsonl") for _ in path.open("rb"))
    assert Event.objects.filter(run=run, attempt__isnull=False).count() == on_disk
