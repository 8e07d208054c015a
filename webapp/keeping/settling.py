"""After a restore: rows speak of processes and folders that are not here, and the files may know more than the rows."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from trainer.rundir import RunDirectory
from webapp.accounts.audit import record
from webapp.runs import journal
from webapp.runs.ingest import Ingester
from webapp.runs.models import Attempt, Run
from webapp.runs.states import ACTIVE, Status
from webapp.runs.supervision.lease import Claim
from webapp.runs.supervision.outcome import close_run, judge_silence

log = logging.getLogger(__name__)


def settle_restore(*, home_before: Path, made_at: str) -> dict[str, int]:
    """Make the rows fit this place; how many runs ended as what. Safe to repeat.

    Paths below the former data directory become paths below the present one, in the rows and in the settings of runs. A run that
    was at work when the backup was made ends as its log says, else as ``lost``, and can be resumed; one that waited is stopped.
    """
    home = Path(settings.SPADEWORK_HOME)
    if home_before != home:
        for run in Run.objects.only("id", "directory", "config").iterator():
            _move(run, str(home_before), str(home))
    counts: dict[str, int] = {}
    for run in Run.objects.filter(status__in=ACTIVE).order_by("id"):
        status = _close(run, made_at)
        counts[status] = counts.get(status, 0) + 1
    waiting = list(Run.objects.filter(status=Status.QUEUED).values_list("pk", flat=True))
    for run_id in waiting:
        _take_out(run_id, made_at)
    detail = {"made_at": made_at, "home_before": str(home_before), "ended": counts, "taken_out": len(waiting)}
    record(actor=None, action="backup.restored", label=f"backup of {made_at}", detail=detail)
    return {**counts, "taken out of the queue": len(waiting)}


def _move(run: Run, before: str, now: str) -> None:
    directory, config = _moved(run.directory, before, now), _moved(run.config, before, now)
    if (directory, config) != (run.directory, run.config):
        Run.objects.filter(pk=run.pk).update(directory=directory, config=config)
    path = RunDirectory(Path(directory)).config
    if directory and Path(directory).is_relative_to(now) and path.is_file():
        frozen = json.loads(path.read_text(encoding="utf-8"))
        if (moved := _moved(frozen, before, now)) != frozen:
            aside = path.with_suffix(".part")
            aside.write_text(json.dumps(moved, indent=1), encoding="utf-8")
            aside.rename(path)


def _moved(value: Any, before: str, now: str) -> Any:
    """The same value with every path at or below ``before`` at or below ``now`` instead."""
    if isinstance(value, str):
        return now + value[len(before) :] if value == before or value.startswith(before + os.sep) else value
    if isinstance(value, dict):
        return {key: _moved(item, before, now) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, before, now) for item in value]
    return value


def _close(run: Run, made_at: str) -> str:
    """Take in what the run wrote after the snapshot, and end it."""
    lease = uuid4()
    Run.objects.filter(pk=run.pk).update(lease=lease)
    directory = Path(run.directory)
    try:
        Ingester(run_id=run.pk, directory=directory).drain()
    except OSError as error:
        log.warning("%s: what it wrote last cannot be read (%s)", run, error)
    attempt, _ = Attempt.objects.get_or_create(run=run, number=run.attempt)
    claim = Claim(run.pk, lease, attempt.number, RunDirectory(directory))
    outcome = judge_silence(attempt, f"restored from the backup of {made_at}, when it was {run.status}")
    close_run(claim, outcome, exit_code=None)
    return str(outcome.status)


@transaction.atomic
def _take_out(run_id: int, made_at: str) -> None:
    why = f"taken out of the queue: restored from the backup of {made_at}"
    journal.move(run_id=run_id, target=Status.STOPPED, why=why, sources=(Status.QUEUED,), finished_at=timezone.now())
