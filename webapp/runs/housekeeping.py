"""What happens by itself: what is kept no longer (``retention.py``) is removed for good, files and rows."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.episodes.models import Episode, Transcript
from webapp.episodes.texts import kept_environments, remove_texts
from webapp.runs.errors import ActRefused
from webapp.runs.eventlog_texts import strip_texts
from webapp.runs.models import Event, MetricPoint, Run
from webapp.runs.retention import due_logs, due_samples, due_tensors, due_texts, is_ours, retention
from webapp.runs.services_shelf import restorable

log = logging.getLogger(__name__)

#: Episodes removed in one statement; a run may have hundreds of thousands.
_CHUNK = 2_000


def purge() -> None:
    """One round. Safe to run anywhere, any number of times at once."""
    purge_deleted()
    purge_tensors()
    purge_samples()
    purge_texts()
    purge_logs()


def _unlink(path: Path) -> int | None:
    """Remove one file; its bytes, or None when another worker was faster or it cannot be removed now."""
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s cannot be removed (%s); it is tried again", path, error)
        return None
    return size


def purge_tensors() -> int:
    """Remove the token files of runs that ended long enough ago; bytes freed. What cannot be removed is tried again."""
    freed = 0
    for run, files in due_tensors(retention()):
        removed = 0
        for path in files:
            removed += _unlink(path) or 0
        if removed:
            record(actor=None, action="run.tensors_purged", target=run, detail={"bytes": removed})
        freed += removed
    return freed


def purge_samples() -> int:
    """Remove the machine's measurements of runs that ended long enough ago; how many."""
    return due_samples(retention()).delete()[0]


def purge_texts() -> int:
    """Remove what was said in the episodes of runs that ended long enough ago; how many transcripts.

    Rows first, then the event log; the run is done when both are. What fails or is cut short is taken up in the next round.
    """
    removed = 0
    for run in due_texts(retention()):
        try:
            removed += _purge_texts(run)
        except Exception:
            log.exception(
                "texts of %s cannot be removed; it is tried again, and the other runs are not kept waiting", run
            )
    return removed


def _purge_texts(run: Run) -> int:
    at = timezone.now()
    kept = kept_environments(run=run)
    removed = remove_texts(run=run, kept=list(kept), at=at)
    freed = 0
    try:
        if is_ours(run) and Path(run.directory).is_dir():
            keys = frozenset(kept.values())
            freed = strip_texts(
                root=Path(run.directory), keeps=lambda _attempt, payload: payload["environment"] in keys
            )
    except (ActRefused, OSError) as error:
        log.warning("texts of %s cannot be taken out of its event log (%s); it is tried again", run, error)
    else:
        Run.objects.filter(pk=run.pk).update(text_removed_at=at)
    if removed.transcripts or freed:
        detail = {
            "transcripts": removed.transcripts, "database_bytes": removed.bytes, "event_log_bytes": freed,
            "environments_kept": len(kept),
        }  # fmt: skip
        record(actor=None, action="run.texts_purged", target=run, detail=detail)
    return removed.transcripts


def purge_logs() -> int:
    """Remove the printed logs of runs that ended long enough ago; bytes freed. What cannot be removed is tried again."""
    freed = 0
    for run, path in due_logs(retention()):
        size = _unlink(path)
        if size is None:
            continue
        Run.objects.filter(pk=run.pk).update(log_removed_at=timezone.now())
        record(actor=None, action="run.log_purged", target=run, detail={"bytes": size})
        freed += size
    return freed


def purge_deleted() -> int:
    """Remove every run whose time for restoring is over; how many. Safe to run anywhere, any number of times at once.

    A run whose files cannot be removed keeps its rows and is tried again in the next round.
    """
    before = timezone.now() - restorable()
    due = list(Run.objects.filter(deleted_at__lt=before).order_by("id").values_list("id", flat=True))
    return sum(_purge(run_id, before=before) for run_id in due)


def _purge(run_id: int, *, before: object) -> bool:
    with transaction.atomic():
        run = Run.objects.select_for_update(skip_locked=True).filter(pk=run_id, deleted_at__lt=before).first()
        if run is None:  # restored meanwhile, or another worker is at it
            return False
        try:
            freed = _remove_files(run)
        except OSError as error:
            log.warning("run %s was deleted but its files cannot be removed (%s); they are tried again", run_id, error)
            return False
        _remove_rows(run)
        deleted_at = run.deleted_at.isoformat() if run.deleted_at else ""
        record(actor=None, action="run.purged", target=run, detail={"deleted_at": deleted_at, "files_removed": freed})
        run.delete()
    log.info("run %s was removed for good", run_id)
    return True


def _remove_files(run: Run) -> bool:
    """Remove the run's directory. One outside our own folder (an import) belongs to somebody else and stays."""
    if not is_ours(run):
        return False
    directory = Path(run.directory)
    if directory.exists():
        shutil.rmtree(directory)
    for suffix in (".settings.json", ".fork.log"):  # what the supervisor laid beside it
        directory.with_name(directory.name + suffix).unlink(missing_ok=True)
    return True


def _remove_rows(run: Run) -> None:
    """The many rows first, in pieces: Django's own cascade would read all of them at once."""
    while ids := list(Episode.objects.filter(run=run).order_by("id").values_list("id", flat=True)[:_CHUNK]):
        Transcript.objects.filter(episode_id__in=ids).delete()
        Episode.objects.filter(pk__in=ids).delete()
    Event.objects.filter(run=run).delete()
    MetricPoint.objects.filter(run=run).delete()
