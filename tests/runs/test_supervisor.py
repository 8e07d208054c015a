"""One attempt from claim to end, with a scripted trainer process. `when` acts between two looks of the supervisor."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery import current_app
from django.db import connection
from django.utils import timezone

from trainer.config import RunConfig
from webapp.accounts.models import AuditEntry, User
from webapp.episodes.models import Episode
from webapp.runs import dispatch, services
from webapp.runs.models import Attempt, Command, Event, Run
from webapp.runs.supervision import lease as leases
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.proctree import Process, family, identify, is_alive
from webapp.runs.supervision.supervisor import Patience, Supervisor
from webapp.runs.supervision.sweeper import sweep

pytestmark = pytest.mark.django_db

FAKE = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))
QUICK = Patience(heartbeat_s=0.2, commands_s=0.05, stop_s=0.5, term_s=0.5, shutdown_s=0.5, database_s=20)
SET = "here:all"


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path


def queued(operator: User, **script: Any) -> Run:
    config = RunConfig(description=json.dumps({"rollouts": 3, **script}))
    run = services.create_run(actor=operator, name="fake", config=config)
    return services.start_run(actor=operator, run_id=run.pk)


def when(condition: Callable[[], bool], act: Callable[[], Any]) -> Callable[[], bool]:
    """A `shutting_down` that never asks to shut down, but acts once as soon as the condition holds."""
    done = False

    def look() -> bool:
        nonlocal done
        if not done and condition():
            done = True
            act()
        return False

    return look


def supervise(run: Run, shutting_down: Callable[[], bool] = lambda: False, **patience: float) -> Run:
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    assert claim.run_id == run.pk
    quick = Patience(**{**{name: getattr(QUICK, name) for name in QUICK.__slots__}, **patience})
    Supervisor(claim, program=FAKE, patience=quick, shutting_down=shutting_down).supervise()
    run.refresh_from_db()
    return run


def is_under_way(run: Run, rollouts: int = 1) -> Callable[[], bool]:
    return lambda: Run.objects.get(pk=run.pk).rollouts_done >= rollouts


def trainer_of(run: Run) -> Process:
    attempt = Attempt.objects.get(run=run, number=run.attempt)
    assert attempt.pid is not None
    assert attempt.process_started is not None
    return Process(attempt.pid, attempt.process_started)


def test_a_run_goes_from_queued_to_completed(operator: User) -> None:
    run = supervise(queued(operator))
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
    sample = run.samples.first()  # what it took of the machine
    assert (sample.attempt, sample.processes >= 1, sample.memory_bytes > 0) == (1, True, True)


def test_the_trainer_sees_no_secrets(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    run = supervise(queued(operator))
    seen = set(Attempt.objects.get(run=run).engine["environment"])
    assert {"PATH", "OMP_NUM_THREADS"} <= seen
    assert not {"DATABASE_URL", "REDIS_URL", "SPADEWORK_SECRET_KEY_FILE", "SPADEWORK_HOME", "HF_TOKEN"} & seen
    assert not any(name.startswith("DJANGO") for name in seen)


def test_stop_ends_the_run_and_is_acknowledged(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=0.1)
    stop = when(is_under_way(run), lambda: services.stop_run(actor=operator, run_id=run.pk, reason="enough"))
    run = supervise(run, stop, stop_s=20)
    assert run.status == "stopped"
    command = Command.objects.get(run=run)
    assert command.accepted is True
    assert command.effective_rollout is not None
    assert command.sent_at is not None
    sent = json.loads((Path(run.directory) / "control.jsonl").read_text())
    assert (sent["id"], sent["action"], sent["attempt"], sent["reason"]) == (str(command.pk), "stop", 1, "enough")
    assert AuditEntry.objects.filter(action="run.stopped", actor=operator).exists()


def test_a_deaf_trainer_and_all_it_started_are_killed(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=600, deaf=True, children=True)
    members: set[Process] = set()

    def stop() -> None:
        members.update(family(trainer_of(Run.objects.get(pk=run.pk))))
        services.stop_run(actor=operator, run_id=run.pk)

    started = time.monotonic()
    run = supervise(run, when(is_under_way(run), stop))
    assert run.status == "stopped"
    assert len(members) == 3  # the trainer, a child, a child in its own session
    assert not any(is_alive(process) for process in members)
    assert time.monotonic() - started < 20
    assert Attempt.objects.get(run=run).exit_code == -signal.SIGKILL
    assert run.transitions.latest("id").why == "killed: it did not stop when asked"


def test_children_of_a_killed_trainer_do_not_outlive_it(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=600, children=True)
    members: set[Process] = set()

    def kill() -> None:
        trainer = trainer_of(Run.objects.get(pk=run.pk))
        members.update(family(trainer))
        time.sleep(2 * QUICK.heartbeat_s)  # the supervisor looks at its family with every heartbeat

    def look() -> bool:
        if members and is_alive(trainer_of(run)):
            os.kill(trainer_of(run).pid, signal.SIGKILL)
        return False

    first = when(is_under_way(run), kill)
    ticks = 0

    def both() -> bool:
        nonlocal ticks
        first()
        run.refresh_from_db()
        ticks += bool(members)
        return look() if ticks > 10 else False

    supervise(run, both)
    assert run.status == "failed"
    assert len(members) == 3
    assert not any(is_alive(process) for process in members)


def test_a_killed_trainer_is_failed_with_the_signal_named(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=0.1)
    killed_at = 0.0

    def kill() -> None:
        nonlocal killed_at
        killed_at = time.monotonic()
        os.kill(trainer_of(Run.objects.get(pk=run.pk)).pid, signal.SIGKILL)

    run = supervise(run, when(is_under_way(run, 2), kill))
    assert time.monotonic() - killed_at < 3
    assert (run.status, run.failure_owner) == ("failed", "infrastructure")
    assert "SIGKILL" in run.failure_message
    assert Attempt.objects.get(run=run).exit_code == -9
    written = sum(1 for path in Path(run.directory).glob("attempts/1/events/*.jsonl") for _ in path.open("rb"))
    assert Event.objects.filter(run=run, attempt=1).count() == written


@pytest.mark.parametrize(
    ("script", "owner", "message"),
    [
        ({"exit": 2, "say": "model.path: no such folder"}, "user", "model.path: no such folder"),
        ({"exit": 1, "say": ""}, "bug", "fake trainer at work"),
        ({"exit": 3, "say": "the sandbox is gone", "fail": "infrastructure"}, "infrastructure", "the sandbox is gone"),
        ({"exit": 4, "say": "disk full", "fail": "limit"}, "limit", "disk full"),
    ],
)
def test_a_failure_has_an_owner_and_a_message(operator: User, script: dict[str, Any], owner: str, message: str) -> None:
    run = supervise(queued(operator, **script))
    assert (run.status, run.failure_owner, run.failure_message) == ("failed", owner, message)


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


def test_a_worker_that_shuts_down_takes_its_trainer_along(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=0.1)
    run = supervise(run, is_under_way(run), shutdown_s=20)
    assert run.status == "stopped"
    assert run.transitions.latest("id").why == "its worker was shut down"
    assert Attempt.objects.get(run=run).exit_code == 0


def test_sigterm_to_the_pool_process_counts_as_shutdown(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=0.1)
    before = signal.getsignal(signal.SIGTERM)
    run = supervise(run, when(is_under_way(run), lambda: os.kill(os.getpid(), signal.SIGTERM)), shutdown_s=20)
    assert run.status == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


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


def abandoned(operator: User, monkeypatch: pytest.MonkeyPatch, **script: Any) -> Run:
    """A run whose supervisor has vanished without a word: its lease is old."""
    monkeypatch.setattr(leases, "_database_age_s", lambda: 100.0)
    run = queued(operator, **script)
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    Run.objects.filter(pk=run.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=leases.LEASE_S + 1))
    return Run.objects.get(pk=run.pk)


def test_the_sweeper_takes_in_the_log_and_calls_an_abandoned_run_lost(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.runs.eventwriter import EventWriter

    run = abandoned(operator, monkeypatch)
    writer = EventWriter(Path(run.directory))
    writer.start()
    writer.rollouts(range(2))
    sweep()
    run.refresh_from_db()
    assert (run.status, run.rollouts_done, run.failure_owner) == ("lost", 2, "infrastructure")
    assert "no sign of life" in run.failure_message
    assert services.resume_run(actor=operator, run_id=run.pk).status == "queued"


def test_the_sweeper_believes_a_log_that_says_completed(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.runs.eventwriter import EventWriter

    run = abandoned(operator, monkeypatch)
    writer = EventWriter(Path(run.directory))
    writer.start()
    writer.rollouts(range(4))
    writer.emit("run_state", state="completed")
    sweep()
    run.refresh_from_db()
    assert run.status == "completed"


def test_the_sweeper_ends_processes_that_were_left_behind(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    run = abandoned(operator, monkeypatch)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    identity = identify(left.pid)
    assert identity is not None
    Attempt.objects.filter(run=run).update(pid=identity.pid, process_started=identity.started)
    sweep()
    assert left.wait(5) == -signal.SIGKILL
    run.refresh_from_db()
    assert run.status == "lost"


def test_the_sweeper_leaves_living_runs_alone(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_database_age_s", lambda: 100.0)
    run = queued(operator)
    assert claim_next(gpu_set=SET) is not None
    sweep()
    run.refresh_from_db()
    assert run.status == "starting"


def test_the_sweeper_waits_when_the_database_has_just_come_up(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run = abandoned(operator, monkeypatch)
    monkeypatch.setattr(leases, "_database_age_s", lambda: 3.0)
    sweep()
    run.refresh_from_db()
    assert run.status == "starting"


def test_the_sweeper_tells_a_worker_again_what_the_broker_forgot(operator: User) -> None:
    queued(operator)
    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge("gpu")
    assert dispatch.waiting_messages() == 0
    sweep()
    assert dispatch.waiting_messages() == 1
    sweep()
    assert dispatch.waiting_messages() == 1  # no worker has taken it yet: one is enough


def test_commands_nobody_answered_are_closed_with_the_attempt(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=600, deaf=True)

    def ask_and_kill() -> None:
        services.checkpoint_run(actor=operator, run_id=run.pk)
        os.kill(trainer_of(Run.objects.get(pk=run.pk)).pid, signal.SIGKILL)

    supervise(run, when(is_under_way(run), ask_and_kill))
    command = Command.objects.get(run=run)
    assert (command.accepted, command.message) == (False, "the attempt ended before it was carried out")
