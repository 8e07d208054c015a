"""Celery's side of runs: thin launchers. What is to be done stands in the database, so a task lost or doubled changes nothing."""

from __future__ import annotations

import logging
import mmap
import threading
import time
from collections.abc import Sequence
from typing import Any

from celery import current_app, shared_task
from celery.signals import worker_ready, worker_shutting_down
from kombu.exceptions import OperationalError as BrokerAway
from redis.exceptions import RedisError

from webapp.runs import presence
from webapp.runs.dispatch import QUEUE
from webapp.runs.housekeeping import purge
from webapp.runs.supervision.lease import claim_next, gpu_set_name
from webapp.runs.supervision.supervisor import Supervisor
from webapp.runs.supervision.sweeper import sweep as sweep_once

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 10.0
HOUSEKEEPING_EVERY_S = 3600.0
# Shared with the pool's children, which are forked after this: the worker's main process writes, a supervisor reads.
_shutdown = mmap.mmap(-1, 1)
_ticker_stop = threading.Event()


def _shutting_down() -> bool:
    return _shutdown[0] == 1


@shared_task(queue=QUEUE)  # type: ignore[untyped-decorator]
def supervise_next() -> None:
    """Take the oldest queued run, if this worker's GPU set is free, and supervise it to its end."""
    if _shutting_down():
        return
    claim = claim_next(gpu_set=gpu_set_name())
    if claim is not None:
        Supervisor(claim, shutting_down=_shutting_down).supervise()


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Runs of dead workers become `lost`; what is queued and forgotten is sent again."""
    sweep_once()


@shared_task  # type: ignore[untyped-decorator]
def housekeep() -> None:
    """What is kept no longer is removed for good."""
    purge()


def _tick(name: str, queues: Sequence[str]) -> None:
    """Sends only: the worker's main process must not hold database connections across the forks of its pool."""
    housekept = -HOUSEKEEPING_EVERY_S
    while True:
        try:
            presence.announce(name=name, queues=queues)
            current_app.send_task("webapp.runs.tasks.sweep", expires=SWEEP_EVERY_S, retry=False)
            if time.monotonic() - housekept >= HOUSEKEEPING_EVERY_S:
                current_app.send_task("webapp.runs.tasks.housekeep", expires=HOUSEKEEPING_EVERY_S, retry=False)
                housekept = time.monotonic()
        except (BrokerAway, RedisError) as error:
            log.warning("the broker is away (%s); sweeping and housekeeping wait", error)
        if _ticker_stop.wait(SWEEP_EVERY_S):
            return


@worker_ready.connect  # type: ignore[untyped-decorator]
def start_ticker(sender: Any = None, **_: Any) -> None:
    """Every worker says that it is there and asks for a sweep, at its start and then regularly: no separate scheduler is needed."""
    name = str(getattr(sender, "hostname", "") or "worker")
    queues = sorted(current_app.amqp.queues.consume_from)
    threading.Thread(target=_tick, args=(name, queues), name="sweep-ticker", daemon=True).start()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def note_shutdown(sender: Any = None, **_: Any) -> None:
    """A supervisor in the pool sees this and ends its trainer, instead of keeping the worker alive for hours."""
    _shutdown[0] = 1
    _ticker_stop.set()
    try:
        presence.withdraw(name=str(sender or ""))
    except RedisError as error:
        log.warning("the broker is away (%s); this worker is listed for some seconds more", error)
