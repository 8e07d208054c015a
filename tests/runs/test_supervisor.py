"""One attempt from claim to end, with a scripted trainer process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.runs.supervising import FAKE, QUICK, SET, is_under_way, queued, supervise, trainer_of, when
from webapp.accounts.models import User
from webapp.episodes.models import Episode
from webapp.runs import services
from webapp.runs.models import Attempt, Command, Run
from webapp.runs.supervision import lease as leases
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.proctree import is_alive
from webapp.runs.supervision.supervisor import Supervisor

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own_home")]


def test_a_run_goes_from_queued_to_completed(operator: User) -> None:
    run = supervise(queued(operator), sample_s=0.05)
    assert (run.status, run.rollouts_done, run.lease) == ("completed", 3, None)
    assert run.finished_at is not None
    path = list(run.transitions.order_by("id").values_list("source", "target"))
    assert path == [
        ("draft", "queued"), ("queued", "starting"), ("starting", "running"), ("running", "completed"),
    ]  # fmt: skip
    attempt = Attempt.objects.get(run=run)
    assert (attempt.number, attempt.exit_code, attempt.reported_state) == (1, 0, "completed")
    assert Episode.objects.filter(run=run).count() == 12
    assert not is_alive(trainer_of(run))
    assert "fake trainer at work" in (Path(run.directory) / "log.txt").read_text()
    # What it took of the machine; a look at the very moment in which a process starts or ends may find nothing to measure.
    assert {sample.attempt for sample in run.samples.all()} == {1}
    assert run.samples.filter(processes__gte=1, memory_bytes__gt=0).exists()


def test_the_trainer_sees_no_secrets(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    run = supervise(queued(operator))
    seen = set(Attempt.objects.get(run=run).engine["environment"])
    assert {"PATH", "OMP_NUM_THREADS"} <= seen
    assert not {"DATABASE_URL", "REDIS_URL", "SPADEWORK_SECRET_KEY_FILE", "SPADEWORK_HOME", "HF_TOKEN"} & seen
    assert not any(name.startswith("DJANGO") for name in seen)


def test_pause_and_unpause(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=0.1)

    def is_paused() -> bool:
        return Run.objects.get(pk=run.pk).status == "paused"

    def goes_on() -> bool:
        return run.transitions.filter(source="paused", target="running").exists()

    steps = [
        when(is_under_way(run), lambda: services.pause_run(actor=operator, run_id=run.pk)),
        when(is_paused, lambda: services.unpause_run(actor=operator, run_id=run.pk)),
        when(goes_on, lambda: services.stop_run(actor=operator, run_id=run.pk)),
    ]
    run = supervise(run, lambda: any(step() for step in steps), stop_s=20)
    targets = list(run.transitions.order_by("id").values_list("target", flat=True))
    assert targets == ["queued", "starting", "running", "pausing", "paused", "running", "stopping", "stopped"]
    assert Command.objects.filter(run=run, accepted=True).count() == 3


def test_a_resume_is_a_new_attempt_from_the_checkpoint(operator: User) -> None:
    run = queued(operator, rollouts=4, rollout_s=0.8)

    def kill() -> None:
        os.kill(trainer_of(Run.objects.get(pk=run.pk)).pid, signal.SIGKILL)

    run = supervise(run, when(is_under_way(run), kill))
    assert run.status == "failed"
    first_rollouts = run.rollouts_done
    run = services.resume_run(actor=operator, run_id=run.pk)
    assert (run.status, run.failure_message) == ("queued", "")
    run = supervise(run)
    assert (run.status, run.attempt, run.rollouts_done) == ("completed", 2, 4)
    second = Attempt.objects.get(run=run, number=2)
    assert second.start_rollout is not None
    assert 1 <= second.start_rollout <= first_rollouts
    shown = Episode.objects.filter(run=run, superseded=False)
    assert shown.count() == 16
    assert shown.values("rollout").distinct().count() == 4


def test_a_stop_before_the_start_starts_nothing(operator: User) -> None:
    run = queued(operator)
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    services.stop_run(actor=operator, run_id=run.pk)
    Supervisor(claim, program=FAKE, patience=QUICK).supervise()
    run.refresh_from_db()
    assert run.status == "stopped"
    assert not Path(run.directory, "attempts").exists()


def test_a_program_that_does_not_exist_is_a_failure(operator: User) -> None:
    run = queued(operator)
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    Supervisor(claim, program=("/nonexistent/python",), patience=QUICK).supervise()
    run.refresh_from_db()
    assert run.status == "failed"
    assert "cannot start /nonexistent/python" in run.failure_message


def test_one_gpu_set_carries_one_run_and_the_oldest_goes_first(operator: User) -> None:
    first, second, third = queued(operator), queued(operator), queued(operator)
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    assert claim.run_id == first.pk
    assert claim_next(gpu_set=SET) is None
    other = claim_next(gpu_set="elsewhere:all")
    assert other is not None
    assert other.run_id == second.pk
    third.refresh_from_db()
    assert third.status == "queued"


def test_a_supervisor_that_lost_its_lease_ends_its_trainer_and_writes_nothing(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=0.1)
    usurper = leases.uuid.uuid4()
    run = supervise(run, when(is_under_way(run), lambda: Run.objects.filter(pk=run.pk).update(lease=usurper)))
    assert (run.status, run.lease) == ("running", usurper)
    assert not is_alive(trainer_of(run))


@pytest.mark.django_db(transaction=True)
def test_training_goes_on_while_the_database_is_away(operator: User) -> None:
    run = queued(operator, rollouts=6, rollout_s=0.2)
    parameters = connection.get_connection_params()
    keys = ("host", "port", "user", "password", "dbname")
    ours = {key: parameters[key] for key in keys if parameters.get(key)}

    def cut() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backend = cursor.fetchone()[0]
        with psycopg.connect(**ours, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [backend])

    run = supervise(run, when(is_under_way(run), cut))
    assert (run.status, run.rollouts_done, run.gap) == ("completed", 6, False)
    assert Episode.objects.filter(run=run).count() == 24
