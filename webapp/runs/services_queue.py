"""The order of the queue, changed by people."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.states import Status

#: Where a run may be moved: name -> its new place, from the old one and the number of runs that wait.
PLACES: dict[str, Callable[[int, int], int]] = {
    "first": lambda place, last: 0,
    "up": lambda place, last: max(0, place - 1),
    "down": lambda place, last: min(last, place + 1),
    "last": lambda place, last: last,
}


@transaction.atomic
def move_in_queue(*, actor: User, run_id: int, to: str) -> int:
    """Move a queued run to another place; its new place, from 1. Raises ActRefused when it does not wait, KeyError for no such place.

    All that wait are locked meanwhile: two people who move at once each see what the other did, and no worker takes a run between.
    """
    waiting = list(Run.objects.select_for_update().filter(status=Status.QUEUED).order_by("id"))
    waiting.sort(key=lambda run: (run.queue_rank, run.queued_at, run.pk))
    run = next((one for one in waiting if one.pk == run_id), None)
    if run is None:
        raise ActRefused("It does not wait in the queue any more.")
    before = waiting.index(run)
    after = PLACES[to](before, len(waiting) - 1)
    waiting.insert(after, waiting.pop(before))
    for rank, one in enumerate(waiting, start=1):
        one.queue_rank = rank
    Run.objects.bulk_update(waiting, ["queue_rank"])
    record(actor=actor, action="run.moved_in_queue", target=run, detail={"from": before + 1, "to": after + 1})
    return after + 1
