"""How long what is kept, and what that would remove now. Removing is housekeeping's; both ask the same questions here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.forms.models import model_to_dict
from django.utils import timezone

from trainer.config import RunConfig
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.episodes.texts import texts_of
from webapp.runs.configuration import apply_overrides
from webapp.runs.estimate import directory_bytes
from webapp.runs.eventlog_texts import event_files
from webapp.runs.logtail import log_path
from webapp.runs.models import Retention, Run, SystemSample
from webapp.runs.services import runs_directory
from webapp.runs.states import FINAL

_ROW: Final = 1
NAMES_SHOWN = 10
#: Fields of Retention → the setting of new runs they stand for.
CHECKPOINT_SETTINGS: Final = {name: f"checkpoint.{name}" for name in ("keep_last", "keep_every", "keep_best")}


@dataclass(kw_only=True)
class Removal:
    """What would be removed at the next housekeeping."""

    runs: int = 0
    run_bytes: int = 0
    names: list[str] = field(default_factory=list)
    tensor_files: int = 0
    tensor_bytes: int = 0
    samples: int = 0
    transcripts: int = 0
    transcript_bytes: int = 0  # in the database
    event_log_bytes: int = 0  # of the logs they are also taken out of, with all else these hold
    logs: int = 0
    log_bytes: int = 0

    @property
    def is_nothing(self) -> bool:
        """True when nothing would go."""
        return not (self.runs or self.tensor_files or self.samples or self.transcripts or self.logs)


def retention() -> Retention:
    """What holds now; unsaved and empty when no admin has set anything."""
    return Retention.objects.filter(pk=_ROW).first() or Retention(pk=_ROW)


def restore_days(held: Retention | None = None) -> int:
    """How many days a deleted run can be restored."""
    days = (held or retention()).restore_days
    return int(settings.SPADEWORK_RESTORE_DAYS) if days is None else days


@transaction.atomic
def set_retention(*, actor: User, wanted: Retention) -> None:
    """Hold these from now on; housekeeping acts on them within the hour."""
    before = model_to_dict(retention(), exclude=["id"])
    wanted.pk = _ROW
    Retention.objects.update_or_create(pk=_ROW, defaults=model_to_dict(wanted, exclude=["id"]))
    after = model_to_dict(wanted, exclude=["id"])
    changed = {name: [before[name], value] for name, value in after.items() if before[name] != value}
    record(actor=actor, action="retention.changed", label="retention", detail=changed)


def with_checkpoint_defaults(config: RunConfig) -> RunConfig:
    """A preset's settings with the checkpoint retention that an admin set for new runs. Raises InvalidConfig."""
    held = retention()
    wanted = {path: getattr(held, name) for name, path in CHECKPOINT_SETTINGS.items()}
    return apply_overrides(config, {path: value for path, value in wanted.items() if value is not None})


def due_runs(held: Retention) -> QuerySet[Run]:
    """Deleted runs whose time for restoring is over."""
    return Run.objects.filter(deleted_at__lt=timezone.now() - timedelta(days=restore_days(held)))


def is_ours(run: Run) -> bool:
    """True when the run's directory lies among ours; an imported one that stayed in its place belongs to somebody else."""
    directory = Path(run.directory)
    return (
        bool(run.directory) and directory.parent.resolve() == runs_directory().resolve() and not directory.is_symlink()
    )


def due_tensors(held: Retention) -> Iterator[tuple[Run, list[Path]]]:
    """Token files of runs of ours that ended long enough ago, by run."""
    if held.tensor_days is None:
        return
    for run in _ended_before(held.tensor_days).iterator():
        folder = Path(run.directory) / "tensors"
        if is_ours(run) and folder.is_dir() and not folder.is_symlink():
            files = sorted(path for path in folder.glob("*.safetensors") if path.is_file() and not path.is_symlink())
            if files:
                yield run, files


def due_samples(held: Retention) -> QuerySet[SystemSample]:
    """Measurements of the machine of runs that ended long enough ago."""
    if held.sample_days is None:
        return SystemSample.objects.none()
    return SystemSample.objects.filter(run__in=_ended_before(held.sample_days).values("pk"))


def due_texts(held: Retention) -> QuerySet[Run]:
    """Runs that ended long enough ago and whose transcripts have not been looked at since."""
    if held.transcript_days is None:
        return Run.objects.none()
    return _ended_before(held.transcript_days).filter(Q(text_removed_at=None) | Q(text_removed_at__lt=F("finished_at")))


def due_logs(held: Retention) -> Iterator[tuple[Run, Path]]:
    """Printed logs of runs of ours that ended long enough ago, by run."""
    if held.log_days is None:
        return
    due = _ended_before(held.log_days).filter(Q(log_removed_at=None) | Q(log_removed_at__lt=F("finished_at")))
    for run in due.iterator():
        path = log_path(run) if is_ours(run) else None
        if path is not None:
            yield run, path


def removal_of(held: Retention) -> Removal:
    """What these would remove now; nothing is removed."""
    found = Removal(samples=due_samples(held).count())
    gone = set()
    for run in due_runs(held).order_by("deleted_at"):
        gone.add(run.pk)
        found.runs += 1
        found.run_bytes += (directory_bytes(Path(run.directory)) or 0) if is_ours(run) else 0
        if len(found.names) < NAMES_SHOWN:
            found.names.append(run.name)
    for run, files in due_tensors(held):
        if run.pk not in gone:
            found.tensor_files += len(files)
            found.tensor_bytes += sum(path.stat().st_size for path in files)
    _add_texts(found, [run for run in due_texts(held) if run.pk not in gone])
    for run, path in due_logs(held):
        if run.pk not in gone:
            found.logs += 1
            found.log_bytes += path.stat().st_size
    return found


def _add_texts(found: Removal, runs: Sequence[Run]) -> None:
    texts = texts_of(runs=[run.pk for run in runs])
    if texts.transcripts:
        found.transcripts, found.transcript_bytes = texts.transcripts, texts.bytes
        files = (path for run in runs if is_ours(run) for path in event_files(Path(run.directory)))
        found.event_log_bytes = sum(path.stat().st_size for path in files)


def _ended_before(days: int) -> QuerySet[Run]:
    return Run.objects.filter(status__in=FINAL, finished_at__lt=timezone.now() - timedelta(days=days)).order_by("id")
