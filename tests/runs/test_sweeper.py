"""The sweeper: runs whose supervisor has vanished are called lost, and what they left behind is ended."""

from __future__ import annotations

import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from tests.runs.supervising import SET, queued
from webapp.accounts.models import User
from webapp.runs import dispatch, services
from webapp.runs.models import Attempt, Run
from webapp.runs.supervision import lease as leases
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.proctree import identify
from webapp.runs.supervision.sweeper import sweep

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own_home")]


def abandoned(operator: User, monkeypatch: pytest.MonkeyPatch, **script: Any) -> Run:
    """A run whose supervisor has vanished without a word: its lease is old."""
    monkeypatch.setattr(leases, "_database_age_s", lambda: 100.0)
    run = queued(operator, **script)
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    Run.objects.filter(pk=run.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=leases.LEASE_S + 1))
    return Run.objects.get(pk=run.pk)


def test_case_15_the_sweeper_takes_in_the_log_and_calls_an_abandoned_run_lost(
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
