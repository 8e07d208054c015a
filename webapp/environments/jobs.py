"""Handing work to a worker that has the sandbox: messages, leases, what was forgotten. The rows are the queue."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TypeVar
from uuid import UUID, uuid4

from celery import current_app
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError

from webapp.environments.models import GateRun, PlaySession, SandboxJob

log = logging.getLogger(__name__)

PLAY_TASK = "webapp.environments.tasks.drive_play"
GATES_TASK = "webapp.environments.tasks.run_gates"
LEASE_S = 60.0  # renewed by whoever works; longer than any single call into the sandbox
FORGOTTEN_S = 5.0  # a message that was not taken up by then is sent again
SESSION_EXPIRES_S = 30 * 60.0
JobT = TypeVar("JobT", bound=SandboxJob)


def send(task: str, job_id: int) -> None:
    """Tell a worker. When the broker is away, the sweep sends it again."""
    try:
        current_app.send_task(task, args=[job_id], retry=False)
    except OperationalError as error:
        log.warning("no worker could be told of %s %s (%s); it will be sent again", task, job_id, error)


def send_plain(task: str) -> None:
    """Tell a worker of something that is done regularly anyway; lost when the broker is away."""
    try:
        current_app.send_task(task, retry=False)
    except OperationalError as error:
        log.warning("no worker could be told of %s (%s); it comes round by itself", task, error)


def claim(kind: type[JobT], job_id: int) -> tuple[JobT, UUID] | None:
    """Take the lease of a job that nobody works on; None when somebody does, or it is gone."""
    lease = uuid4()
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    taken = kind._default_manager.filter(free, pk=job_id).update(lease=lease, leased_until=_until())
    if taken != 1:
        return None
    job = kind._default_manager.filter(pk=job_id, lease=lease).first()
    return (job, lease) if job is not None else None


def renew(kind: type[SandboxJob], job_id: int, lease: UUID) -> bool:
    """Hold the lease longer; False when it was lost: what was being done must then not be stored."""
    return kind._default_manager.filter(pk=job_id, lease=lease).update(leased_until=_until()) == 1


def release(kind: type[SandboxJob], job_id: int, lease: UUID) -> None:
    """Give the lease back."""
    kind._default_manager.filter(pk=job_id, lease=lease).update(lease=None, leased_until=None)


def _until() -> object:
    return Now() + timedelta(seconds=LEASE_S)


def sweep() -> None:
    """Expire plays that nobody touched; send again what no worker holds."""
    now = timezone.now()
    old = now - timedelta(seconds=SESSION_EXPIRES_S)
    plays = PlaySession.objects.filter(state=PlaySession.State.OPEN)
    plays.filter(touched_at__lt=old).update(state=PlaySession.State.EXPIRED)
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    forgotten = Q(failure="", touched_at__lt=now - timedelta(seconds=FORGOTTEN_S))
    for session in plays.filter(free, forgotten).only("id", "state", "actions", "replies"):
        if session.is_waiting:
            send(PLAY_TASK, session.pk)
    for job_id in GateRun.objects.filter(free, forgotten, state=GateRun.State.WAITING).values_list("pk", flat=True):
        send(GATES_TASK, job_id)
