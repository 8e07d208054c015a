"""What runs take of the disk: measured in turn by a worker, never while somebody waits for a page."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.models import F, Q, Sum
from django.utils import timezone

from webapp.core.pagination import Page, keyset_page
from webapp.keeping.models import DiskUse
from webapp.runs.estimate import directory_bytes
from webapp.runs.models import Run
from webapp.runs.retention import is_ours
from webapp.runs.states import ACTIVE

PAGE_ROWS = 50
AGAIN_AFTER_S = 600.0  # a run at work
REST_AGAIN_AFTER_S = 24 * 3600.0  # a run at rest: only people or housekeeping change it
RUNS_A_ROUND = 200


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Bytes. ``unmeasured`` runs are not in ``runs``; ``free`` and ``disk`` are of the disk of the data directory, None if unknown."""

    runs: int
    checkpoints: int
    tensors: int
    logs: int
    deleted: int
    database: int
    unmeasured: int
    free: int | None
    disk: int | None


def measure() -> int:
    """Measure runs whose figures are missing or old, the oldest first; how many. Safe to run anywhere."""
    now = timezone.now()
    old = Q(disk_use=None) | Q(disk_use__measured_at__lt=now - timedelta(seconds=REST_AGAIN_AFTER_S))
    at_work = Q(status__in=ACTIVE, disk_use__measured_at__lt=now - timedelta(seconds=AGAIN_AFTER_S))
    changed = Q(
        disk_use__measured_at__lt=now - timedelta(seconds=AGAIN_AFTER_S), finished_at__gt=now - timedelta(hours=1)
    )
    due = (
        Run.objects.filter(old | at_work | changed)
        .exclude(directory="")
        .order_by(F("disk_use__measured_at").asc(nulls_first=True))
    )
    runs = list(due[:RUNS_A_ROUND])
    for run in runs:
        directory = Path(run.directory)
        parts = {
            name: directory_bytes(directory / name) or 0 for name in ("checkpoints", "start", "tensors", "attempts")
        }
        log = directory / "log.txt"
        DiskUse.objects.update_or_create(
            run=run,
            defaults={
                "total_bytes": directory_bytes(directory) or 0, "checkpoint_bytes": parts["checkpoints"] + parts["start"],
                "tensor_bytes": parts["tensors"],
                "log_bytes": parts["attempts"] + (log.lstat().st_size if log.is_file() else 0),
                "is_ours": is_ours(run), "measured_at": timezone.now(),
            },
        )  # fmt: skip
    return len(runs)


def list_use(*, cursor: str = "", size: int = PAGE_ROWS) -> Page[DiskUse]:
    """Runs by what they take, the largest first. Raises BadRequest for a damaged cursor."""
    rows = DiskUse.objects.select_related("run", "run__owner")
    return keyset_page(rows, order=("-total_bytes", "-id"), cursor=cursor, size=size)


def totals() -> Totals:
    """Sums over everything that was measured."""
    sums = DiskUse.objects.aggregate(
        runs=Sum("total_bytes"), checkpoints=Sum("checkpoint_bytes"), tensors=Sum("tensor_bytes"), logs=Sum("log_bytes"),
        deleted=Sum("total_bytes", filter=Q(run__deleted_at__isnull=False, is_ours=True)),
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (database,) = cursor.fetchone()
    try:
        disk = shutil.disk_usage(settings.SPADEWORK_HOME)
    except OSError:
        disk = None
    return Totals(
        **{name: value or 0 for name, value in sums.items()}, database=database,
        unmeasured=Run.objects.filter(disk_use=None).exclude(directory="").count(),
        free=disk.free if disk else None, disk=disk.total if disk else None,
    )  # fmt: skip
