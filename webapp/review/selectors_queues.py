"""Reading queues: what is open, items with what a reader may see of them, progress of people, agreement, labels for download."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet
from django.http import Http404

from webapp.accounts.models import User
from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import Environment
from webapp.review import signals
from webapp.review.agreement import Agreement, agreement_of, cohen_kappa
from webapp.review.models import FINE, Flag, Queue, QueueItem, Review, Skip
from webapp.review.services_reviews import free_for

PAGE_ROWS = 100
ITEM_STATES = {"open": "open", "done": "done", "mine": "reviewed by you", "skipped": "skipped by you"}
EXPORT_COLUMNS = (
    "queue", "run", "environment", "class_name", "skill", "rollout", "suspicion", "signals", "reviewer", "label", "severity", "comment",
    "effect", "given_at", "item_done",
)  # fmt: skip

_READ = (
    "item__completed_at", "item__score", "item__reasons", "item__environment__key", "item__environment__class_name",
    "item__environment__skill", "item__environment__rollout", "reviewer__username", "kind__key", "severity", "comment", "wish", "given_at",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ListedQueue:
    """A queue with its counts; ``own`` are the reader's labels, ``free`` the items that could be offered to them now."""

    queue: Queue
    items: int
    done: int
    own: int
    free: int


@dataclass(frozen=True, kw_only=True)
class ShownReason:
    """A signal as shown: its words, and the episode and turn (from 1) to look at."""

    label: str
    meaning: str
    text: str
    episode: int | None
    turn: int | None


@dataclass(frozen=True, kw_only=True)
class ShownItem:
    """An item for one reader. ``labels`` is None while others' labels are hidden from them."""

    item: QueueItem
    reasons: list[ShownReason]
    given: int
    wanted: int
    own: Review | None  # the reader's place, reserved or given
    labels: list[Review] | None

    @property
    def is_own_given(self) -> bool:
        """The reader has labelled it."""
        return self.own is not None and self.own.given_at is not None

    @property
    def is_held(self) -> bool:
        """The reader has reserved it."""
        return self.own is not None and self.own.given_at is None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What one person did in a queue."""

    reviewer: str
    given: int
    fine: int | None  # None where labels are hidden from the reader
    skipped: int
    last: datetime | None


@dataclass(frozen=True, kw_only=True)
class PairAgreement:
    """Cohen's κ of two people over the done items both labelled."""

    first: str
    second: str
    items: int
    value: float | None


def list_queues(*, reader: User, is_open: bool) -> list[ListedQueue]:
    """Open or closed queues, newest first."""
    queues = (
        Queue.objects.filter(run__deleted_at=None, closed_at__isnull=is_open)
        .select_related("run", "created_by")
        .annotate(
            all_items=Count("items", distinct=True),
            done_items=Count("items", filter=Q(items__completed_at__isnull=False), distinct=True),
        )
        .order_by("-id")
    )
    own = dict(
        Review.objects.filter(reviewer=reader, given_at__isnull=False)
        .values_list("item__queue")
        .annotate(n=Count("id"))
        .values_list("item__queue", "n")
    )
    return [
        ListedQueue(
            queue=queue, items=queue.all_items, done=queue.done_items, own=own.get(queue.pk, 0),
            free=free_items(queue=queue, reader=reader) if is_open else 0,
        )
        for queue in queues
    ]  # fmt: skip


def free_items(*, queue: Queue, reader: User) -> int:
    """How many items the reader could be offered now, besides one they hold."""
    return free_for(queue=queue, reviewer=reader).values("item").distinct().count()


def reviewed_environments() -> QuerySet[QueueItem, int]:
    """Ids of environments that somebody labelled, or that wait for a label in an open queue."""
    given = Exists(Review.objects.filter(item=OuterRef("pk"), given_at__isnull=False))
    waits = Q(queue__closed_at=None, completed_at=None)
    return QueueItem.objects.filter(waits | given).values_list("environment", flat=True)


def skipped_items(*, queue: Queue, reader: User) -> int:
    """How many items the reader passed over."""
    return Skip.objects.filter(item__queue=queue, reviewer=reader).count()


def queues_of_run(*, run_id: int) -> list[Queue]:
    """Open queues of a run, newest first."""
    return list(Queue.objects.filter(run_id=run_id, closed_at=None).order_by("-id"))


def access_queue(*, queue_id: int) -> Queue:
    """The queue with its run. Raises Http404."""
    try:
        return Queue.objects.select_related("run", "created_by").get(pk=queue_id, run__deleted_at=None)
    except Queue.DoesNotExist as error:
        raise Http404("There is no such queue.") from error


def access_item(*, item_id: int) -> QueueItem:
    """The item with its environment and queue. Raises Http404."""
    items = QueueItem.objects.select_related("queue__run", "environment__run", "environment__document")
    try:
        return items.get(pk=item_id, queue__run__deleted_at=None)
    except QueueItem.DoesNotExist as error:
        raise Http404("There is no such item.") from error


def list_items(
    *, queue: Queue, reader: User, state: str = "", cursor: str = "", size: int = PAGE_ROWS
) -> tuple[Page[QueueItem], list[ShownItem]]:
    """The most suspicious first. Raises BadRequest for a damaged cursor."""
    items = QueueItem.objects.filter(queue=queue).select_related("environment").defer("environment__code")
    if state == "open":
        items = items.filter(completed_at=None)
    elif state == "done":
        items = items.exclude(completed_at=None)
    elif state == "mine":
        items = items.filter(
            Exists(Review.objects.filter(item=OuterRef("pk"), reviewer=reader, given_at__isnull=False))
        )
    elif state == "skipped":
        items = items.filter(Exists(Skip.objects.filter(item=OuterRef("pk"), reviewer=reader)))
    page = keyset_page(items, order=("-score", "id"), cursor=cursor, size=size)
    return page, show_items(queue=queue, items=page.rows, reader=reader)


def show_items(*, queue: Queue, items: Sequence[QueueItem], reader: User) -> list[ShownItem]:
    """The items as the reader may see them."""
    reviews: dict[int, list[Review]] = defaultdict(list)
    for review in Review.objects.filter(item__in=items).select_related("reviewer", "kind").order_by("place"):
        reviews[review.item_id].append(review)
    shown = []
    for item in items:
        places = reviews[item.pk]
        own = next((review for review in places if review.reviewer_id == reader.pk), None)
        given = [review for review in places if review.given_at is not None]
        shown.append(
            ShownItem(
                item=item,
                reasons=reasons_of(item),
                given=len(given),
                wanted=len(places),
                own=own,
                labels=given if _shows_labels(queue, item) else None,
            )
        )
    return shown


def _shows_labels(queue: Queue, item: QueueItem) -> bool:
    """Blind until all labels are in: one's own can be taken back until then, and must not follow what others said."""
    return not queue.hides_labels or item.completed_at is not None


def reasons_of(item: QueueItem) -> list[ShownReason]:
    """Why the item is there, the heaviest first."""
    shown = []
    for reason in item.reasons:
        signal = signals.BY_KEY.get(reason["signal"])
        turn = reason.get("turn")
        shown.append(
            ShownReason(
                label=signal.label if signal else reason["signal"], meaning=signal.meaning if signal else "", text=reason["text"],
                episode=reason.get("episode"), turn=None if turn is None else turn + 1,
            )
        )  # fmt: skip
    return shown


def progress_of(*, queue: Queue) -> list[Progress]:
    """Everybody who labelled or skipped something, the busiest first."""
    rows = (
        Review.objects.filter(item__queue=queue, given_at__isnull=False, reviewer__isnull=False)
        .values("reviewer__username")
        .annotate(given=Count("id"), fine=Count("id", filter=Q(kind=None)), last=Max("given_at"))
    )
    skipped = dict(
        Skip.objects.filter(item__queue=queue)
        .values_list("reviewer__username")
        .annotate(n=Count("id"))
        .values_list("reviewer__username", "n")
    )
    people = {row["reviewer__username"]: row for row in rows}
    progress = [
        Progress(
            reviewer=name,
            given=people.get(name, {}).get("given", 0),
            fine=None if queue.hides_labels else people.get(name, {}).get("fine", 0),
            skipped=skipped.get(name, 0),
            last=people.get(name, {}).get("last"),
        )
        for name in {*people, *skipped}
    ]
    return sorted(progress, key=lambda one: (-one.given, one.reviewer))


def agreement_in(*, queue: Queue) -> tuple[Agreement, list[PairAgreement]]:
    """Over done items, and of every two people."""
    labels = _labels_of_done_items(queue)
    people = sorted({person for item in labels for person in item})
    pairs = []
    for index, first in enumerate(people):
        for second in people[index + 1 :]:
            both = [item for item in labels if first in item and second in item]
            if both:
                value = cohen_kappa([item[first] for item in both], [item[second] for item in both])
                pairs.append(PairAgreement(first=first, second=second, items=len(both), value=value))
    return agreement_of(labels), pairs


def _labels_of_done_items(queue: Queue) -> list[dict[Any, Any]]:
    """Done items with two labels or more, as reviewer → label."""
    if queue.reviewers_per_item < 2:
        return []
    items: dict[int, dict[str, str]] = defaultdict(dict)
    rows = Review.objects.filter(item__queue=queue, item__completed_at__isnull=False, reviewer__isnull=False)
    for item, reviewer, kind in rows.order_by("item_id", "place").values_list(
        "item_id", "reviewer__username", "kind__key"
    ):
        items[item][reviewer] = kind or FINE
    return [labels for labels in items.values() if len(labels) == queue.reviewers_per_item]


def labels_for_download(*, queue: Queue, reader: User) -> tuple[list[dict[str, Any]], int]:
    """Every given label the reader may see, with its context, and how many are hidden from them."""
    given = Review.objects.filter(item__queue=queue, given_at__isnull=False)
    severities = dict(Flag.Severity.choices)
    run = queue.run.slug or queue.run.name
    rows, hidden = [], 0
    for row in given.order_by("-item__score", "item_id", "place").values_list(
        *_READ
    ):  # plain values: there may be thousands
        (completed, score, reasons, key, class_name, skill, rollout, who, kind, severity, comment, wish, at) = row
        if queue.hides_labels and completed is None and who != reader.get_username():
            hidden += 1
            continue
        values = (
            queue.name, run, key, class_name, skill, rollout, round(score, 4), [reason["signal"] for reason in reasons], who, kind or FINE,
            severities[severity] if kind else None, comment, wish if kind else None, at.isoformat() if at else None, completed is not None,
        )  # fmt: skip
        rows.append(dict(zip(EXPORT_COLUMNS, values, strict=True)))
    return rows, hidden


def rollouts_unscanned(queue: Queue) -> int:
    """Finished rollouts whose environments the rules have not looked at."""
    waiting = Environment.objects.filter(
        run=queue.run, superseded=False, rollout__gt=queue.scanned_through, rollout__lt=F("run__rollouts_done")
    )
    return waiting.values("rollout").distinct().count()


def held_until(item: ShownItem) -> datetime | None:
    """When the reader's reservation ends; None when they hold none."""
    return item.own.reserved_until if item.is_held and item.own is not None else None
