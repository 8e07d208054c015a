"""Celery's side of keeping: thin launchers on the queue "default"."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from webapp.environments.jobs import FORGOTTEN_S, send
from webapp.keeping.disk import measure
from webapp.keeping.importing import take_in
from webapp.keeping.models import ImportJob
from webapp.keeping.services import IMPORT_TASK


@shared_task  # type: ignore[untyped-decorator]
def import_directory(job_id: int) -> None:
    """Check and take in one run directory."""
    take_in(job_id=job_id)


@shared_task  # type: ignore[untyped-decorator]
def measure_disk() -> None:
    """Measure what runs take of the disk, where the figures are missing or old."""
    measure()


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Imports that no worker holds are sent again."""
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    old = timezone.now() - timedelta(seconds=FORGOTTEN_S)
    waiting = ImportJob.objects.filter(free, state=ImportJob.State.WAITING, touched_at__lt=old)
    for job_id in waiting.values_list("pk", flat=True):
        send(IMPORT_TASK, job_id)
