"""Runs that are deleted for good take their flags and queues along, and nothing of others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.review import services, services_queues, services_reviews
from webapp.review.models import Effect, Flag, FlagKind, Queue, Review
from webapp.review.services import Pointer, Wish
from webapp.review.services_queues import Rules
from webapp.review.services_reviews import Label
from webapp.runs.housekeeping import purge_deleted
from webapp.runs.models import Run
from webapp.runs.services_shelf import restorable

pytestmark = pytest.mark.django_db


def test_a_run_that_is_gone_for_good_takes_its_flags_effects_and_queues_along(
    ingested: Callable[..., Any], person: Callable[[str], Any], kind: Callable[[str], Any]
) -> None:
    actor = person("operator")
    for seed in (7, 11):
        run = ingested(seed=seed, status="stopped")
        episode = run.episodes.filter(environment__isnull=False).first()
        services.place_flag(
            actor=actor, environment_id=episode.environment_id, kind_id=kind("crash").pk, wish=Wish(act="quarantine"),
            subject="turn", pointer=Pointer(episode_id=episode.pk, turn=0),
        )  # fmt: skip
        queue = services_queues.create_queue(
            actor=actor, run_id=run.pk, name="q", rules=Rules(signals=(), threshold=0.0)
        )
        services_queues.fill_queue(queue_id=queue.pk)
        item = services_reviews.claim_next(actor=actor, queue_id=queue.pk)
        services_reviews.give_review(actor=actor, item_id=item.pk, label=Label(kind_id=kind("hang").pk))
    gone, kept = Run.objects.order_by("id")
    Run.objects.filter(pk=gone.pk).update(deleted_at=timezone.now() - restorable() - timedelta(days=1))
    assert purge_deleted() == 1
    assert (Flag.objects.count(), Effect.objects.count(), Queue.objects.count()) == (2, 1, 1)
    assert set(Flag.objects.values_list("run", flat=True)) == {kept.pk}
    assert Review.objects.exclude(given_at=None).count() == 1
    assert FlagKind.objects.count() == 15
