"""Which sessions live, handing them to a worker, and finding those whose worker died. The rows are the queue."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError

from webapp.environments.jobs import FORGOTTEN_S
from webapp.trying.models import HELD, OWED, Exchange, Trial

log = logging.getLogger(__name__)

QUEUE = "try"
HOLD_TASK = "webapp.trying.tasks.hold"
KEPT_DAYS = 30
LOST = "The worker that held the model died; start another session."
UNTAKEN = (
    "No worker took it up. The one of the queue “try” runs where the trainer is installed; `python -m webapp.stack status` "
    "says whether it does."
)


def send_hold(trial_id: int) -> None:
    """Tell a worker that may load weights. When the broker is away, the sweep sends it again."""
    try:
        current_app.send_task(HOLD_TASK, args=[trial_id], queue=QUEUE, retry=False)
    except OperationalError as error:
        log.warning("no worker could be told of trial %s (%s); it will be sent again", trial_id, error)


def alive() -> QuerySet[Trial]:
    """Sessions that somebody uses: held by a worker that lives, or waiting for one and not yet given up."""
    recent = timezone.now() - timedelta(seconds=settings.SPADEWORK_TRY_IDLE_S)
    waiting = Q(state=Trial.State.WAITING, created_at__gte=recent)
    return Trial.objects.filter(waiting | Q(state__in=HELD, leased_until__gte=Now()))


def end_exchanges(*, trial_id: int, why: str) -> None:
    """Nothing is left as if the model still thought about it."""
    rows = Exchange.objects.filter(trial_id=trial_id, state__in=OWED)
    rows.update(state=Exchange.State.LOST, failure=why, answered_at=timezone.now())


def close(trial: Trial, *, state: str, why: str) -> bool:
    """End a session for the machine's own reasons, if nobody else has; ``why`` is shown."""
    with transaction.atomic():
        held = Trial.objects.filter(pk=trial.pk, state=trial.state, lease=trial.lease, leased_until=trial.leased_until)
        if held.update(state=state, failure=why, ended_at=timezone.now()) != 1:
            return False
        end_exchanges(trial_id=trial.pk, why=why)
        return True


def sweep() -> None:
    """Mark sessions whose worker died, give up those nobody took, send again what was forgotten, remove old ones."""
    now = timezone.now()
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    for trial in Trial.objects.filter(free, state__in=HELD):
        close(trial, state=Trial.State.LOST, why=LOST)
    given_up = now - timedelta(seconds=settings.SPADEWORK_TRY_IDLE_S)
    for trial in Trial.objects.filter(free, state=Trial.State.WAITING):
        if trial.created_at < given_up:
            close(trial, state=Trial.State.EXPIRED, why=UNTAKEN)
        elif trial.created_at < now - timedelta(seconds=FORGOTTEN_S):
            send_hold(trial.pk)
    Trial.objects.filter(ended_at__lt=now - timedelta(days=KEPT_DAYS)).delete()
