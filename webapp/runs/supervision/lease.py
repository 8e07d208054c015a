"""Which supervisor holds which run. The row decides: every claim has a new lease, and who has lost it lets go."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass
from datetime import timedelta
from os import environ
from pathlib import Path

from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from trainer.rundir import RunDirectory
from webapp.runs import journal
from webapp.runs.ingest import attempt_numbers
from webapp.runs.models import Attempt, Run
from webapp.runs.states import ACTIVE, Status

#: Without a heartbeat for this long a run counts as lost.
LEASE_S = 15
#: The order in which queued runs start.
QUEUE_ORDER = ("queue_rank", "queued_at", "id")


class LeaseLost(Exception):
    """Somebody else has taken the run over, or ended it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to supervise one attempt of one run."""

    run_id: int
    lease: uuid.UUID
    attempt: int
    directory: RunDirectory


def host_name() -> str:
    """This machine, as shown with attempts."""
    return socket.gethostname()


def gpu_set_name() -> str:
    """The machine and the devices a worker on it uses; one run at a time holds it."""
    return f"{host_name()}:{environ.get('CUDA_VISIBLE_DEVICES') or 'all'}"


def claim_next(*, gpu_set: str) -> Claim | None:
    """Take the first run of the queue onto ``gpu_set``; None when nothing is queued or the set is in use."""
    try:
        with transaction.atomic():
            return _claim(gpu_set)
    except IntegrityError:  # one_active_run_per_gpu_set
        return None


def _claim(gpu_set: str) -> Claim | None:
    queued = Run.objects.filter(status=Status.QUEUED).order_by(*QUEUE_ORDER)
    run = queued.select_for_update(skip_locked=True).first()
    if run is None:
        return None
    directory = RunDirectory(Path(run.directory))
    number = max(attempt_numbers(directory), default=0) + 1  # the number the trainer will give itself
    claim = Claim(run.pk, uuid.uuid4(), number, directory)
    moved = journal.move(
        run_id=run.pk,
        target=Status.STARTING,
        why=f"attempt {number} on {host_name()}",
        lease=claim.lease,
        gpu_set=gpu_set,
        heartbeat_at=Now(),
        attempt=number,
        finished_at=None,
    )
    if not moved:
        return None
    fresh = {
        "host": host_name(),
        "pid": None,
        "process_started": None,
        "started_at": Now(),
        "finished_at": None,
        "exit_code": None,
        "log_offset": directory.log.stat().st_size if directory.log.exists() else 0,
    }
    # A launch that died before it made its attempt's folder leaves the number to the next launch.
    Attempt.objects.update_or_create(run_id=run.pk, number=number, defaults=fresh)
    return claim


def renew(claim: Claim) -> None:
    """Say that the supervisor lives. Raises LeaseLost."""
    held = Run.objects.filter(pk=claim.run_id, lease=claim.lease, status__in=ACTIVE)
    if held.update(heartbeat_at=Now()) != 1:
        raise LeaseLost(f"run {claim.run_id}: attempt {claim.attempt} is no longer ours")


def status_of(claim: Claim) -> str:
    """The status of the run while it is ours. Raises LeaseLost."""
    status = Run.objects.filter(pk=claim.run_id, lease=claim.lease).values_list("status", flat=True).first()
    if status is None:
        raise LeaseLost(f"run {claim.run_id}: attempt {claim.attempt} is no longer ours")
    return status


def take_over_expired() -> list[Claim]:
    """Claims on runs whose supervisor has been silent for LEASE_S; each is handed to exactly one caller.

    Empty while the database itself has just come up: supervisors could not have reported to it.
    """
    if _database_age_s() < LEASE_S + 5:
        return []
    expired = Run.objects.filter(status__in=ACTIVE, heartbeat_at__lt=Now() - timedelta(seconds=LEASE_S))
    claims = []
    for run in expired:
        lease = uuid.uuid4()
        silent = Run.objects.filter(pk=run.pk, lease=run.lease, heartbeat_at=run.heartbeat_at, status__in=ACTIVE)
        if silent.update(lease=lease, heartbeat_at=Now()) == 1:
            claims.append(Claim(run.pk, lease, run.attempt, RunDirectory(Path(run.directory))))
    return claims


def _database_age_s() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM now() - pg_postmaster_start_time())")
        return float(cursor.fetchone()[0])
