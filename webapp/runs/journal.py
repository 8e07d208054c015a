"""Adding to a run's numbered history: the events sockets follow, and every change of its status.

The cursor comes from a counter on the run's row, claimed in the transaction that inserts the events: the row lock makes the order
of commits the order of cursors, so a reader that follows the cursor misses nothing (an identity column would lose rows).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import connection, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from webapp.accounts.models import User
from webapp.runs import states, watchers
from webapp.runs.errors import RunNotFound
from webapp.runs.models import Event, Run, RunTransition
from webapp.runs.storable import storable, storable_text

log = logging.getLogger(__name__)

LIST_GROUP = "runs"


def run_group(run_id: int) -> str:
    """Name of the channel group that is woken when the run has something new."""
    return f"run.{run_id}"


def claim_cursors(*, run_id: int, count: int) -> int:
    """Take ``count`` cursors (locks the run's row until the transaction ends); returns the first. Raises RunNotFound."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_run SET last_cursor = last_cursor + %s WHERE id = %s RETURNING last_cursor", [count, run_id]
        )
        row = cursor.fetchone()
    if row is None:
        raise RunNotFound(f"there is no run {run_id}")
    return int(row[0]) - count + 1


def append(*, run_id: int, kind: str, payload: dict[str, Any], at: datetime | None = None) -> int:
    """Add one event that is not the trainer's, inside the caller's transaction; sockets are woken on commit. Returns its cursor."""
    cursor = claim_cursors(run_id=run_id, count=1)
    Event.objects.create(run_id=run_id, cursor=cursor, kind=kind, at=at or timezone.now(), payload=storable(payload))
    transaction.on_commit(lambda: poke(run_id))
    return cursor


def append_each(*, run_ids: Sequence[int], kind: str, payload: dict[str, Any]) -> None:
    """The same event on each of ``run_ids``, inside the caller's transaction; sockets are woken on commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_run SET last_cursor = last_cursor + 1 WHERE id = ANY(%s) RETURNING id, last_cursor",
            [list(run_ids)],
        )
        claimed = cursor.fetchall()
    at, clean = timezone.now(), storable(payload)
    Event.objects.bulk_create(
        [Event(run_id=run_id, cursor=number, kind=kind, at=at, payload=clean) for run_id, number in claimed],
        batch_size=1000,
    )
    transaction.on_commit(lambda: poke(*(run_id for run_id, _ in claimed)))


def warn(*, run_id: int, message: str, where: str = "") -> None:
    """Note on the run that something about its record is wrong, inside the caller's transaction."""
    append(run_id=run_id, kind="ingest_warning", payload={"message": message, "where": where})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET warnings = warnings + 1 WHERE id = %s", [run_id])


def move(
    *,
    run_id: int,
    target: str,
    by: User | None = None,
    why: str = "",
    sources: Sequence[str] | None = None,
    **fields: Any,
) -> bool:
    """Change the run's status if it is in one of ``sources`` (default: whatever may go there) now; False when it is not.

    ``fields`` are set in the same update. Writes the transition and its event, inside the caller's transaction.
    """
    allowed = sources if sources is not None else states.sources(target)
    found = (
        Run.objects.select_for_update().filter(pk=run_id, status__in=allowed).values_list("status", flat=True).first()
    )
    if found is None:
        return False
    at = timezone.now()
    why = storable_text(why)
    Run.objects.filter(pk=run_id).update(status=target, **fields)
    RunTransition.objects.create(run_id=run_id, source=found, target=target, by=by, why=why, at=at)
    payload = {"from": found, "to": target, "by": by.get_username() if by else None, "why": why}
    append(run_id=run_id, kind="status", payload=payload, at=at)
    watchers.tell_status(run_id, target, why)
    return True


def poke(*run_ids: int) -> None:
    """Wake whoever follows the runs. Carries no data; when the broker is away, followers notice at their next poll."""
    layer = get_channel_layer()
    try:
        async_to_sync(_wake)(layer, run_ids)
    except (RedisError, OSError) as error:
        log.warning("runs %s: nobody could be woken (%s); pages follow at their next poll", run_ids, error)


async def _wake(layer: Any, run_ids: Sequence[int]) -> None:
    for run_id in run_ids:
        message = {"type": "run.wake", "run": run_id}
        await layer.group_send(run_group(run_id), message)
        await layer.group_send(LIST_GROUP, message)
