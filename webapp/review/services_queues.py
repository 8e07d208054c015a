"""Queues: made, filled by rules or by hand, closed. Each function owns its transaction and its audit entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.models import Environment
from webapp.review import signals
from webapp.review.errors import ReviewRefused
from webapp.review.models import Queue, QueueItem, Review
from webapp.review.selectors import withheld
from webapp.runs.models import Run
from webapp.runs.storable import storable_text

SCAN_ENVIRONMENTS = 200  # looked at in one transaction, rounded up to whole rollouts
MOST_REVIEWERS = 5
RESERVATION_MINUTES = (1, 24 * 60)
_NAME_CHARS = 120


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a queue takes in and how it is worked on."""

    signals: Sequence[str] = field(default_factory=lambda: tuple(signals.BY_KEY))
    threshold: float = 1.0
    skill: str = ""
    reviewers_per_item: int = 1
    blind: bool = True
    reservation_minutes: int = 15


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What one look at the run brought: environments looked at, items added, rollouts still to look at."""

    looked_at: int
    added: int
    rollouts_left: int


@transaction.atomic
def create_queue(*, actor: User, run_id: int, name: str, rules: Rules) -> Queue:
    """An empty queue for a run. Raises ReviewRefused for rules that make no sense."""
    name = " ".join(storable_text(name).split())[:_NAME_CHARS]
    if not name:
        raise ReviewRefused("A queue needs a name; type one.")
    run = Run.objects.filter(pk=run_id, deleted_at=None).first()
    if run is None:
        raise ReviewRefused("There is no such run.")
    unknown = [key for key in rules.signals if key not in signals.BY_KEY]
    if unknown:
        raise ReviewRefused(f"There is no signal called {unknown[0]}.")
    if not 1 <= rules.reviewers_per_item <= MOST_REVIEWERS:
        raise ReviewRefused(f"An item needs 1 to {MOST_REVIEWERS} reviewers.")
    least, most = RESERVATION_MINUTES
    if not least <= rules.reservation_minutes <= most:
        raise ReviewRefused(f"A reservation lasts {least} to {most} minutes.")
    if not rules.threshold >= 0:
        raise ReviewRefused("The least suspicion is 0 or more.")
    queue = Queue.objects.create(
        name=name, run=run, signals=list(rules.signals), threshold=rules.threshold if rules.signals else 0.0, skill=rules.skill,
        reviewers_per_item=rules.reviewers_per_item, blind=rules.blind, reservation_minutes=rules.reservation_minutes, created_by=actor,
    )  # fmt: skip
    record(actor=actor, action="queue.created", target=queue, detail={"run": run.slug, "signals": queue.signals})
    return queue


@transaction.atomic
def close_queue(*, actor: User, queue_id: int) -> Queue:
    """Offer nothing of it any more; labels stay. Raises ReviewRefused."""
    queue = _locked(queue_id)
    queue.closed_at = timezone.now()
    queue.save(update_fields=["closed_at"])
    record(actor=actor, action="queue.closed", target=queue)
    return queue


@transaction.atomic
def reopen_queue(*, actor: User, queue_id: int) -> Queue:
    """Offer its items again. Raises ReviewRefused when it is open."""
    queue = Queue.objects.select_for_update(no_key=True).filter(pk=queue_id).exclude(closed_at=None).first()
    if queue is None:
        raise ReviewRefused("This queue is not closed.")
    queue.closed_at = None
    queue.save(update_fields=["closed_at"])
    record(actor=actor, action="queue.reopened", target=queue)
    return queue


@transaction.atomic
def fill_queue(*, queue_id: int, actor: User | None = None) -> Filled:
    """Look at the next environments of finished rollouts and add those the rules find. Raises ReviewRefused for a closed queue.

    An act of a person leaves an audit entry when it added something; a queue that refills itself does not.
    """
    queue = _locked(queue_id)
    run = queue.run
    _forget_what_was_redone(queue, run)
    waiting = Environment.objects.filter(
        run=run, superseded=False, rollout__gt=queue.scanned_through, rollout__lt=run.rollouts_done
    )
    chosen = waiting.filter(skill=queue.skill) if queue.skill else waiting
    batch: list[Environment] = []
    rollouts = sorted({one for one in waiting.values_list("rollout", flat=True) if one is not None})
    done = 0
    for rollout in rollouts:
        if len(batch) >= SCAN_ENVIRONMENTS:
            break
        batch += chosen.filter(rollout=rollout).defer("code")
        queue.scanned_through = rollout
        done += 1
    added = _add_suspicious(queue, run, batch)
    queue.scanned_attempt = run.attempt
    queue.save(update_fields=["scanned_through", "scanned_attempt"])
    if actor is not None and added:
        record(actor=actor, action="queue.filled", target=queue, detail={"added": added})
    return Filled(looked_at=len(batch), added=added, rollouts_left=len(rollouts) - done)


@transaction.atomic
def add_by_hand(*, actor: User, queue_id: int, environment_id: int) -> QueueItem:
    """Put one environment into a queue of its run, whatever the rules say. Raises ReviewRefused."""
    queue = _locked(queue_id)
    environment = Environment.objects.filter(pk=environment_id, run=queue.run).first()
    if environment is None:
        raise ReviewRefused(f"{queue} holds environments of {queue.run} only.")
    if QueueItem.objects.filter(queue=queue, environment=environment).exists():
        raise ReviewRefused(f"{environment} is in {queue} already.")
    reasons = signals.reasons_for(run=queue.run, environments=[environment])[environment.pk]
    (item,) = _add(queue, {environment: reasons}, actor)
    record(actor=actor, action="queue.item_added", target=queue, detail={"environment": environment.key})
    return item


def _forget_what_was_redone(queue: Queue, run: Run) -> None:
    """After a resume, rollouts from its start on are new ones."""
    if run.attempt <= queue.scanned_attempt:
        return
    starts = run.attempts.filter(number__gt=max(1, queue.scanned_attempt), start_rollout__isnull=False)
    first = min((one for one in starts.values_list("start_rollout", flat=True) if one is not None), default=None)
    if first is not None:
        queue.scanned_through = min(queue.scanned_through, first - 1)


def _add_suspicious(queue: Queue, run: Run, batch: Sequence[Environment]) -> int:
    there = set(QueueItem.objects.filter(queue=queue, environment__in=batch).values_list("environment_id", flat=True))
    out = set(withheld(environments=Environment.objects.filter(run=run)).values_list("pk", flat=True))
    fresh = [environment for environment in batch if environment.pk not in there | out]
    found = signals.reasons_for(run=run, environments=fresh) if queue.signals else {one.pk: [] for one in fresh}
    chosen = {}
    for environment in fresh:
        reasons = [reason for reason in found[environment.pk] if reason.signal in queue.signals]
        if not queue.signals or (reasons and signals.suspicion_of(reasons) >= queue.threshold):
            chosen[environment] = reasons
    return len(_add(queue, chosen, None))


def _add(queue: Queue, chosen: Mapping[Environment, Sequence[signals.Reason]], actor: User | None) -> list[QueueItem]:
    """Items with their places, in two inserts whatever their number."""
    items = QueueItem.objects.bulk_create(
        QueueItem(
            queue=queue,
            environment=environment,
            score=signals.suspicion_of(reasons),
            reasons=[reason.as_json() for reason in reasons],
            added_by=actor,
        )
        for environment, reasons in chosen.items()
    )
    places = range(queue.reviewers_per_item)
    Review.objects.bulk_create(Review(item=item, place=place) for item in items for place in places)
    return items


def _locked(queue_id: int) -> Queue:
    queue = Queue.objects.select_for_update(of=("self",), no_key=True).select_related("run").filter(pk=queue_id).first()
    if queue is None:
        raise ReviewRefused("This queue is gone.")
    if queue.closed_at is not None:
        raise ReviewRefused(f"{queue} is closed; open it again first.")
    return queue
