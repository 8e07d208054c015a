"""Celery's side of pools: thin launchers on the queue "default"."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from webapp.environments.jobs import FORGOTTEN_S, send
from webapp.pools.building import build
from webapp.pools.models import Pool
from webapp.pools.services import BUILD_TASK


@shared_task  # type: ignore[untyped-decorator]
def build_pool(pool_id: int) -> None:
    """Judge the programs of a pool and write its archive."""
    build(pool_id=pool_id)


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Builds that no worker holds are sent again."""
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    old = timezone.now() - timedelta(seconds=FORGOTTEN_S)
    for pool_id in Pool.objects.filter(free, state=Pool.State.BUILDING, touched_at__lt=old).values_list(
        "pk", flat=True
    ):
        send(BUILD_TASK, pool_id)
