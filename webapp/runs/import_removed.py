"""What retention removed of an imported run stays removed when the run is imported again, as long as the rule holds.

Only copies among our own run directories are concerned: of a run that stays where it is, nothing but its rows was removed, and rows
come from new events alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from webapp.accounts.audit import record
from webapp.episodes.models import Episode
from webapp.runs.eventlog_texts import strip_texts
from webapp.runs.models import Attempt, Run
from webapp.runs.retention import retention

#: Whether a file of the source (its path inside the run directory, its state) is not to be copied again.
LeaveOut = Callable[[Path, os.stat_result], bool]


def what_stays_removed(run: Run) -> LeaveOut:
    """Printed logs and token files from before their removal, and event files that hold nothing new of a run without its texts."""
    held = retention()
    positions = {
        str(attempt.number): (attempt.ingest_file, attempt.ingest_offset) for attempt in Attempt.objects.filter(run=run)
    }
    lost_texts = _removed_episodes(run).exists()
    log_gone = run.log_removed_at if held.log_days is not None else None
    ended = run.finished_at
    is_due = (
        held.tensor_days is not None and ended is not None and ended < timezone.now() - timedelta(days=held.tensor_days)
    )

    def leave_out(path: Path, state: os.stat_result) -> bool:
        written = datetime.fromtimestamp(state.st_mtime, UTC)
        match path.parts:
            case ("log.txt",):
                return log_gone is not None and written <= log_gone
            case ("tensors", _):
                return is_due and ended is not None and written <= ended
            case ("attempts", number, "events", name) if lost_texts and number in positions:
                last, offset = positions[number]
                return name < last or (name == last and state.st_size <= offset)
        return False

    return leave_out


def remove_texts_again(run: Run) -> int:
    """Take what retention has removed out of the copied event log again; bytes freed. What is new keeps its texts until it is due.

    Raises ActRefused while a trainer is at work there, OSError.
    """
    removed = set(_removed_episodes(run).values_list("attempt", "key"))
    if not removed or retention().transcript_days is None:
        return 0

    def keeps(attempt: int, payload: dict[str, Any]) -> bool:
        return (attempt, payload["episode"]) not in removed

    freed = strip_texts(root=Path(run.directory), keeps=keeps)
    if freed:
        detail = {"transcripts": 0, "database_bytes": 0, "event_log_bytes": freed, "imported_again": True}
        record(actor=None, action="run.texts_purged", target=run, detail=detail)
    return freed


def _removed_episodes(run: Run) -> Any:
    return Episode.objects.filter(run=run, transcript__removed_at__isnull=False)
