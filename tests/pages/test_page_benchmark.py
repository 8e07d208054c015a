"""The data that pages are timed with are what they say, and every page of the benchmark opens on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.test import Client

from tests.benchmarks._addresses import pages
from tests.benchmarks._workload import Size, write
from tests.benchmarks._workload_around import write_around
from tests.benchmarks.pages import measure
from webapp.accounts.models import AuditEntry
from webapp.alerts.models import Alert
from webapp.environments.models import Candidate, Environment
from webapp.episodes.models import Episode, Transcript
from webapp.pools.models import PoolItem
from webapp.review.models import Flag, QueueItem
from webapp.runs.models import Event, MetricPoint, Run

pytestmark = pytest.mark.django_db


def test_a_paper_sized_run_is_the_default() -> None:
    size = Size()
    assert (size.runs, size.rollouts, size.metrics, size.sets * size.environments) == (2_000, 400, 200, 2_400)
    assert size.episodes == 192_000


def test_what_is_written_is_what_was_asked_for_and_every_page_opens(as_role: Callable[[str], Client]) -> None:
    size = replace(
        Size.small(), runs=12, rollouts=8, environments=3, plays=2, metrics=20, small_rollouts=3, flags=40, queues=2
    )
    run = write(size)
    write_around(run, size)
    assert Run.objects.count() == 12
    assert Environment.objects.filter(run=run).count() == 2 * 3
    assert Episode.objects.filter(run=run).count() == Transcript.objects.count() == size.episodes == 3 * 2 * (8 + 2)
    assert MetricPoint.objects.filter(run=run).count() == 20 * 8
    assert MetricPoint.objects.exclude(run=run).count() == 11 * 6 * 3
    assert Event.objects.filter(run=run).count() == run.last_cursor
    assert Candidate.objects.filter(run=run, accepted=False).count() == 3
    assert Flag.objects.count() == 40
    assert Alert.objects.count() == 60
    assert AuditEntry.objects.count() == 100
    assert QueueItem.objects.filter(queue=1).count() == PoolItem.objects.filter(pool=1).count() == 6
    admin = as_role("admin")
    for name, (_, addresses) in pages(run, size).items():
        times, largest = measure(admin, addresses, requests=1)
        assert len(times) == 1, name
        assert largest > 0, name
