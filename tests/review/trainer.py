"""A trainer's answers, written as the trainer writes them and taken in by the real ingest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer.eventlog import EventLog
from trainer.events import CommandAcknowledged, Payload
from trainer.rundir import RunDirectory


def answer_command(
    run: Any, command: Any, *, rollout: int, accepted: bool = True, message: str = "", more: tuple[Payload, ...] = ()
) -> None:
    """The answer to ``command`` in ``rollout``, then ``more`` events."""
    from webapp.runs.ingest import Ingester

    directory = Path(run.directory)
    log = EventLog(RunDirectory(directory), run.attempt, rollout=rollout)
    log.enter_rollout(rollout)
    answer = CommandAcknowledged(
        command=str(command.pk),
        action=command.action,
        accepted=accepted,
        message=message,
        effective_rollout=rollout,
    )
    for payload in (answer, *more):
        log.emit(payload)
    log.close()
    Ingester(run_id=run.pk, directory=directory).drain()
