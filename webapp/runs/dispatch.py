"""Telling a GPU worker that something is queued. The queue itself is the table of runs; a lost message costs seconds."""

from __future__ import annotations

import logging

from celery import current_app
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)

QUEUE = "gpu"
SUPERVISE = "webapp.runs.tasks.supervise_next"


def wake_gpu_worker() -> None:
    """Have a worker look at the queue. When the broker is away, the sweeper sends it again."""
    try:
        current_app.send_task(SUPERVISE, queue=QUEUE, retry=False)
    except OperationalError as error:
        log.warning("no worker could be told about the queue (%s); the sweeper will try again", error)


def waiting_messages() -> int:
    """Messages in the GPU queue that no worker has taken. Raises kombu's OperationalError when the broker is away."""
    with current_app.connection_for_read() as connection:
        try:
            return int(connection.default_channel.queue_declare(queue=QUEUE, passive=True).message_count)
        except connection.channel_errors:  # Redis forgets a list that is empty
            return 0
