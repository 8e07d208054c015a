"""How an attempt ends: stopped, killed, failed, shut down with its worker; nothing it started outlives it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.runs.supervising import QUICK, is_under_way, queued, supervise, trainer_of, when
from webapp.accounts.models import AuditEntry, User
from webapp.runs import services
from webapp.runs.models import Attempt, Command, Event, Run
from webapp.runs.supervision.proctree import Process, family, is_alive

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own_home")]


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


def test_case_16_a_deaf_trainer_and_all_it_started_are_killed(operator: User) -> None:
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


def test_case_15_a_killed_trainer_is_failed_within_seconds_with_the_signal_named(operator: User) -> None:
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


def test_commands_nobody_answered_are_closed_with_the_attempt(operator: User) -> None:
    run = queued(operator, rollouts=500, rollout_s=600, deaf=True)

    def ask_and_kill() -> None:
        services.checkpoint_run(actor=operator, run_id=run.pk)
        os.kill(trainer_of(Run.objects.get(pk=run.pk)).pid, signal.SIGKILL)

    supervise(run, when(is_under_way(run), ask_and_kill))
    command = Command.objects.get(run=run)
    assert (command.accepted, command.message) == (False, "the attempt ended before it was carried out")
