"""Events and ends of runs as alerts, in the transaction that stores them: exactly once however often a log is taken in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import F, Q
from django.db.models.functions import Greatest
from django.utils import timezone

from webapp.alerts.models import Alert, Kind
from webapp.alerts.rules import alerts_in
from webapp.alerts.services import send_alert
from webapp.runs.models import Event, Run
from webapp.runs.states import Status
from webapp.runs.storable import storable_text

_ENDS = {
    Status.LOST: Kind.RUN_LOST,
    Status.FAILED: Kind.RUN_FAILED,
    Status.COMPLETED: Kind.RUN_COMPLETED,
    Status.STOPPED: Kind.RUN_STOPPED,
}


def look_at_events(run_id: int, attempt: int, events: Sequence[Event]) -> None:
    """Alerts of every rollout whose metrics are among these events; an attempt that begins leaves those of older ones behind."""
    for event in events:
        if event.kind == "run_started" and not event.problem:
            _leave_behind(run_id=run_id, attempt=attempt, start_rollout=event.payload.get("start_rollout") or 0)
        if event.kind != "metrics" or event.problem or event.rollout is None:
            continue
        found = alerts_in(event.payload.get("values") or {}, event.payload.get("not_finite") or {})
        for kind, message in found:
            _raise(run_id=run_id, attempt=attempt, kind=kind, rollout=event.rollout, message=message, at=event.at)


def look_at_status(run_id: int, status: str, why: str) -> None:
    """A run that ended, in whatever way."""
    kind = _ENDS.get(Status(status))
    if kind is None:
        return
    run = Run.objects.only("attempt", "gpu_set", "last_event_at").get(pk=run_id)
    # A run that never held a machine of ours was imported: it ended when its log says, not when it was read.
    at = (None if run.gpu_set else run.last_event_at) or timezone.now()
    _raise(run_id=run_id, attempt=run.attempt, kind=kind, rollout=-1, message=why or "No reason is known.", at=at)


def _leave_behind(*, run_id: int, attempt: int, start_rollout: int) -> None:
    """Mark alerts of older attempts from ``start_rollout`` on, and of how those attempts ended. One that began before is cut in two."""
    older = Alert.objects.filter(run_id=run_id, attempt__lt=attempt)
    for alert in older.filter(rollout__gte=0, rollout__lt=start_rollout, last_rollout__gte=start_rollout):
        tail = {"last_rollout": alert.last_rollout, "message": alert.message, "at": alert.at, "superseded": True}
        Alert.objects.update_or_create(
            run_id=run_id, attempt=alert.attempt, kind=alert.kind, rollout=start_rollout, defaults=tail
        )
        Alert.objects.filter(pk=alert.pk).update(last_rollout=start_rollout - 1)
    if older.filter(Q(rollout__gte=start_rollout) | Q(rollout=-1)).update(superseded=True):
        held = Alert.objects.filter(run_id=run_id, superseded=False).count()
        Run.objects.filter(pk=run_id).update(alerts=held)


def _raise(*, run_id: int, attempt: int, kind: Kind, rollout: int, message: str, at: datetime) -> None:
    """Store and send a new alert; one of the rollout before that goes on is drawn out instead."""
    same = Alert.objects.filter(run_id=run_id, attempt=attempt, kind=kind)
    if rollout >= 0 and same.filter(rollout__lte=rollout, last_rollout__gte=rollout - 1).update(
        last_rollout=Greatest(F("last_rollout"), rollout)
    ):
        return
    alert, made = same.get_or_create(
        run_id=run_id, attempt=attempt, kind=kind, rollout=rollout,
        defaults={"last_rollout": rollout, "message": storable_text(message), "at": at},
    )  # fmt: skip
    if made:
        Run.objects.filter(pk=run_id).update(alerts=F("alerts") + 1)
        send_alert(alert=alert)
