"""Working on a queue: claiming items, giving labels, skipping, taking back. Each function owns its transaction.

A claim is a conditional update that must change exactly one row; an expired reservation is free for anybody, and still good for whoever
had it as long as nobody took it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.models import Environment
from webapp.review import services
from webapp.review.errors import ReviewRefused
from webapp.review.models import FINE, Flag, FlagKind, Queue, QueueItem, Review, Skip
from webapp.review.selectors import withheld
from webapp.review.services import Pointer, Wish
from webapp.runs.storable import storable_text

_CLAIM_TRIES = 20
BULK_ITEMS = 200


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a reviewer says about an item: a kind of flag, or None for fine."""

    kind_id: int | None = None
    severity: int = Flag.Severity.MAJOR
    comment: str = ""
    wish: Wish | None = None


@dataclass(frozen=True, kw_only=True)
class Bulk:
    """What a label for many items came to."""

    given: int
    refused: list[str]


def claim_next(*, actor: User, queue_id: int) -> QueueItem | None:
    """The item the actor has reserved, else the most suspicious one that is free for them, now reserved; None when none is left.

    Raises ReviewRefused for a closed queue, or when others were faster every time.
    """
    queue = open_queue(queue_id)
    held = Review.objects.filter(item__queue=queue, reviewer=actor, given_at=None).order_by("id").first()
    if held is not None and _renew(held, actor, queue):
        return held.item
    for _ in range(_CLAIM_TRIES):
        place = free_for(queue=queue, reviewer=actor).order_by("-item__score", "item_id", "place").first()
        if place is None:
            return None
        if _take(place, actor, queue):
            return place.item
    raise ReviewRefused("Others took every item that was free a moment ago; try again.")


def claim_item(*, actor: User, item_id: int) -> QueueItem:
    """Reserve this very item. Raises ReviewRefused when it is not free for the actor."""
    item = QueueItem.objects.select_related("queue").filter(pk=item_id).first()
    if item is None:
        raise ReviewRefused("This item is gone.")
    queue = open_queue(item.queue_id)
    own = item.reviews.filter(reviewer=actor).first()
    if own is not None:
        if own.given_at is not None:
            raise ReviewRefused("You have reviewed this item already.")
        if _renew(own, actor, queue):
            return item
    for place in item.reviews.filter(_is_free()).order_by("place"):
        if _take(place, actor, queue):
            return item
    raise ReviewRefused("Every place of this item is taken or done; take the next one.")


def free_for(*, queue: Queue, reviewer: User) -> QuerySet[Review]:
    """Places that the reviewer could take: free, of items they neither have nor skipped, of environments nobody put out."""
    touched = Review.objects.filter(item__queue=queue, reviewer=reviewer).values("item")
    skipped = Skip.objects.filter(item__queue=queue, reviewer=reviewer).values("item")
    out = withheld(environments=Environment.objects.filter(run_id=queue.run_id)).values("pk")
    return (
        Review.objects.filter(_is_free(), item__queue=queue)
        .exclude(item__in=touched)
        .exclude(item__in=skipped)
        .exclude(item__environment__in=out)
        .select_related("item")
    )


@transaction.atomic
def give_review(*, actor: User, item_id: int, label: Label) -> Review:
    """Give the label for which the actor holds a place. Raises ReviewRefused when the place went to somebody else, or the queue is closed.

    Where labels are hidden, flags come into being when the item is done; otherwise at once.
    """
    item = _locked_item(item_id)
    open_queue(item.queue_id)
    kind = _kind(label.kind_id)
    wish = label.wish or Wish()
    if kind is None and wish.act != Flag.NOTE:
        raise ReviewRefused("What is fine needs no effect; choose what is wrong with it.")
    services.check_wish(wish)
    changed = Review.objects.filter(item=item, reviewer=actor, given_at=None).update(
        given_at=timezone.now(),
        reserved_until=None,
        kind=kind,
        severity=label.severity,
        comment=storable_text(label.comment.strip())[: services.COMMENT_CHARS],
        wish=wish.act,
        weight=wish.weight,
    )
    if changed != 1:
        raise ReviewRefused("Your reservation ended and somebody else took the item; your label was not kept.")
    review = Review.objects.select_related("kind").get(item=item, reviewer=actor)
    detail = {"queue": item.queue.pk, "environment": item.environment.key, "label": kind.key if kind else FINE}
    record(actor=actor, action="review.given", target=item, detail=detail)
    if not item.reviews.filter(given_at=None).exists():
        item.completed_at = timezone.now()
        item.save(update_fields=["completed_at"])
    if item.completed_at is not None or not item.queue.hides_labels:
        _place_flags(item)
    review.refresh_from_db()
    return review


@transaction.atomic
def take_back(*, actor: User, queue_id: int) -> QueueItem:
    """Undo the actor's newest label of the queue; the item is theirs again. Raises ReviewRefused."""
    queue = open_queue(queue_id)
    newest = (
        Review.objects.filter(item__queue=queue, reviewer=actor, given_at__isnull=False).order_by("-given_at").first()
    )
    if newest is None:
        raise ReviewRefused("There is no label of yours to take back in this queue.")
    item = _locked_item(newest.item_id)
    if queue.hides_labels and item.completed_at is not None:
        raise ReviewRefused(
            "All labels of that item are in and can be seen; withdraw your flag on the environment instead."
        )
    if newest.flag_id is not None and newest.flag is not None and newest.flag.withdrawn_at is None:
        services.withdraw_flag(actor=actor, flag_id=newest.flag_id, reason="the label was taken back")
    Review.objects.filter(pk=newest.pk).update(
        given_at=None, reserved_until=_until(queue), kind=None, comment="", wish=Flag.NOTE, weight=None, flag=None,
        severity=Flag.Severity.MAJOR,
    )  # fmt: skip
    QueueItem.objects.filter(pk=item.pk).update(completed_at=None)
    record(actor=actor, action="review.taken_back", target=item, detail={"queue": queue.pk})
    return item


@transaction.atomic
def skip_item(*, actor: User, item_id: int) -> None:
    """Let go of an item and do not be offered it again. Raises ReviewRefused when the actor does not hold it."""
    changed = Review.objects.filter(item_id=item_id, reviewer=actor, given_at=None).update(
        reviewer=None, reserved_until=None
    )
    if changed != 1:
        raise ReviewRefused("You do not hold this item any more.")
    Skip.objects.get_or_create(item_id=item_id, reviewer=actor)


@transaction.atomic
def forget_skips(*, actor: User, queue_id: int) -> int:
    """Be offered what one skipped again; how many items."""
    deleted, _ = Skip.objects.filter(item__queue_id=queue_id, reviewer=actor).delete()
    return deleted


def review_many(*, actor: User, queue_id: int, item_ids: Sequence[int], label: Label) -> Bulk:
    """The same label for many items, each in its own transaction; those that are not free are named. Raises ReviewRefused for too many."""
    if len(item_ids) > BULK_ITEMS:
        raise ReviewRefused(f"At most {BULK_ITEMS} items at once.")
    items = (
        QueueItem.objects.filter(queue_id=queue_id, pk__in=item_ids)
        .select_related("environment")
        .order_by("-score", "id")
    )
    given, refused = 0, []
    for item in items:
        try:
            with transaction.atomic():
                claim_item(actor=actor, item_id=item.pk)
                give_review(actor=actor, item_id=item.pk, label=label)
            given += 1
        except ReviewRefused as error:
            refused.append(f"{item.environment}: {error}")
    return Bulk(given=given, refused=refused)


def open_queue(queue_id: int) -> Queue:
    """The queue when it is open. Raises ReviewRefused."""
    queue = Queue.objects.filter(pk=queue_id, run__deleted_at=None).first()
    if queue is None:
        raise ReviewRefused("This queue is gone.")
    if queue.closed_at is not None:
        raise ReviewRefused(f"{queue} is closed.")
    return queue


def _is_free() -> Q:
    return Q(given_at=None) & (Q(reviewer=None) | Q(reserved_until__lt=timezone.now()))


def _until(queue: Queue) -> datetime:
    return timezone.now() + timedelta(minutes=queue.reservation_minutes)


def _renew(held: Review, actor: User, queue: Queue) -> bool:
    mine = Review.objects.filter(pk=held.pk, reviewer=actor, given_at=None)
    return mine.update(reserved_until=_until(queue)) == 1


def _take(place: Review, actor: User, queue: Queue) -> bool:
    """Reserve a place; False when somebody was faster, or the actor has another place of the item already."""
    try:
        with transaction.atomic():
            free = Review.objects.filter(_is_free(), pk=place.pk)
            return free.update(reviewer=actor, reserved_until=_until(queue)) == 1
    except IntegrityError:
        return False


def _place_flags(item: QueueItem) -> None:
    """A flag for every given label that names something wrong and has none yet, by whoever gave it."""
    given = item.reviews.filter(given_at__isnull=False, kind__isnull=False, flag=None).select_related(
        "reviewer", "kind"
    )
    for review in given.order_by("place"):
        if review.reviewer is None or review.kind is None:
            continue
        review.flag = _flag_for(item, review, review.reviewer, review.kind)
        review.save(update_fields=["flag"])


def _flag_for(item: QueueItem, review: Review, reviewer: User, kind: FlagKind) -> Flag | None:
    """The flag of a label. An effect that cannot be had (any more) leaves a note that says so; a kind retired meanwhile leaves none."""
    evidence: dict[str, Any] = next((reason for reason in item.reasons if reason.get("episode") is not None), {})
    pointer = Pointer(episode_id=evidence.get("episode"), turn=evidence.get("turn"))
    comment = review.comment
    for wish in (Wish(act=review.wish, weight=review.weight), Wish()):
        try:
            return services.place_flag(
                actor=reviewer, environment_id=item.environment_id, kind_id=kind.pk, pointer=pointer, severity=review.severity,
                comment=comment, wish=wish,
            )  # fmt: skip
        except ReviewRefused as error:
            if kind.retired_at is not None:
                return None
            comment = f"{review.comment} ({review.get_wish_display()} was wanted: {error})".strip()
    raise ReviewRefused(f"The flag of {reviewer.get_username()} could not be placed.")


def _kind(kind_id: int | None) -> FlagKind | None:
    if kind_id is None:
        return None
    kind = FlagKind.objects.filter(pk=kind_id, retired_at=None).first()
    if kind is None:
        raise ReviewRefused("This kind of flag does not exist or was retired; choose another.")
    return kind


def _locked_item(item_id: int) -> QueueItem:
    items = QueueItem.objects.select_for_update(of=("self",), no_key=True).select_related("queue", "environment")
    item = items.filter(pk=item_id).first()
    if item is None:
        raise ReviewRefused("This item is gone.")
    return item
