"""Reading the queue: what holds a machine, and what waits for one."""

from __future__ import annotations

from webapp.runs.models import Run
from webapp.runs.states import ACTIVE, Status
from webapp.runs.supervision.lease import QUEUE_ORDER


def active_runs() -> list[Run]:
    """Runs that hold a machine's devices, by machine."""
    return list(Run.objects.filter(status__in=ACTIVE).select_related("owner").order_by("gpu_set", "id"))


def queued_runs() -> list[Run]:
    """Everything that waits, in the order in which it will start."""
    return list(Run.objects.filter(status=Status.QUEUED).select_related("owner").order_by(*QUEUE_ORDER))
