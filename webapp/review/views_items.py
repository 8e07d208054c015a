"""Working on a queue: the next item, its page, the label, skipping, taking back, many at once."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.keys import SECOND_ROW
from webapp.core.requests import signed_in_user
from webapp.environments.selectors import with_measures
from webapp.episodes.models import Episode
from webapp.episodes.selectors import read_turns
from webapp.episodes.texts import removal_dates
from webapp.review import selectors, selectors_queues, services_queues, services_reviews
from webapp.review.errors import ReviewRefused
from webapp.review.forms import LabelForm
from webapp.review.models import Flag, Queue
from webapp.review.selectors_queues import ShownItem
from webapp.review.services import may_reach_trainer
from webapp.review.views_queues import FILL_S

_EVIDENCE_TURNS = 40
_KEYED_KINDS = 9


@require_role(Role.REVIEWER)
@require_POST
def queue_next(request: HttpRequest, queue_id: int) -> HttpResponse:
    """Reserve the next item and go to it."""
    return _next(request, selectors_queues.access_queue(queue_id=queue_id))


@require_role(Role.REVIEWER)
@require_POST
def queue_unskip(request: HttpRequest, queue_id: int) -> HttpResponse:
    """Be offered what one skipped again."""
    queue = selectors_queues.access_queue(queue_id=queue_id)
    count = services_reviews.forget_skips(actor=signed_in_user(request), queue_id=queue.pk)
    messages.success(request, f"{count} skipped item{'' if count == 1 else 's'} will be offered to you again.")
    return redirect("review:queue", queue.pk)


@require_role(Role.REVIEWER)
@require_POST
def queue_undo(request: HttpRequest, queue_id: int) -> HttpResponse:
    """Take one's newest label back and go to its item."""
    queue = selectors_queues.access_queue(queue_id=queue_id)
    try:
        item = services_reviews.take_back(actor=signed_in_user(request), queue_id=queue.pk)
    except ReviewRefused as error:
        messages.error(request, str(error))
        return redirect("review:queue", queue.pk)
    messages.success(request, "Taken back; label it again.")
    return redirect("review:item", item.pk)


@require_role(Role.REVIEWER)
@require_POST
def queue_bulk(request: HttpRequest, queue_id: int) -> HttpResponse:
    """The same label for every ticked item."""
    queue = selectors_queues.access_queue(queue_id=queue_id)
    form = LabelForm(request.POST)
    ids = [int(text) for text in request.POST.getlist("item") if text.isascii() and text.isdecimal() and len(text) < 15]
    if not form.is_valid() or not ids:
        messages.error(request, "Tick items and choose a label.")
        return redirect("review:queue", queue.pk)
    try:
        bulk = services_reviews.review_many(
            actor=signed_in_user(request), queue_id=queue.pk, item_ids=ids, label=form.chosen_label()
        )
    except ReviewRefused as error:
        messages.error(request, str(error))
        return redirect("review:queue", queue.pk)
    messages.success(request, f"{bulk.given} item{'' if bulk.given == 1 else 's'} labelled.")
    if bulk.refused:
        more = f" and {len(bulk.refused) - 3} more" if len(bulk.refused) > 3 else ""
        messages.warning(request, f"Not labelled: {'; '.join(bulk.refused[:3])}{more}")
    return redirect("review:queue", queue.pk)


@require_role(Role.REVIEWER)
@require_safe
def item_page(request: HttpRequest, item_id: int) -> HttpResponse:
    """One item: program, evidence, why it is there, and the label."""
    item, reader = selectors_queues.access_item(item_id=item_id), signed_in_user(request)
    queue = item.queue
    shown = selectors_queues.show_items(queue=queue, items=[item], reader=reader)[0]
    kinds = selectors.kinds_by_use()
    own = sum(one.given for one in selectors_queues.progress_of(queue=queue) if one.reviewer == reader.get_username())
    context = {
        "queue": queue, "item": item, "shown": shown, "environment": item.environment, "run": item.environment.run,
        "measured": with_measures(environments=[item.environment])[0].measured, **_evidence(request, shown),
        "keyed": list(enumerate(kinds[:_KEYED_KINDS], start=1)), "more_kinds": kinds[_KEYED_KINDS:], "own": own,
        "total": queue.items.count(), "done": queue.items.exclude(completed_at=None).count(),
        "severities": list(zip(SECOND_ROW, Flag.Severity.choices, strict=True)), "default_severity": Flag.Severity.MAJOR.value,
        "wishes": Flag.WISHES, "may_reach": may_reach_trainer(reader), "agreement": selectors_queues.agreement_in(queue=queue)[0],
        "held_until": selectors_queues.held_until(shown),
    }  # fmt: skip
    return render(request, "review/item.html", context)


def _evidence(request: HttpRequest, shown: ShownItem) -> dict[str, Any]:
    """The episode to look at: the one asked for, else of the heaviest reason that has one, else the first won one."""
    episodes = Episode.objects.filter(environment=shown.item.environment)
    asked = request.GET.get("episode", "")
    candidates = [int(asked)] if asked.isascii() and asked.isdecimal() and len(asked) < 15 else []
    candidates += [reason.episode for reason in shown.reasons if reason.episode is not None]
    episode = next((found for found in (episodes.filter(pk=pk).first() for pk in candidates) if found), None)
    episode = (
        episode
        or episodes.filter(arm="unhinted", status="won").order_by("id").first()
        or episodes.order_by("id").first()
    )
    if episode is None:
        return {"episode": None, "turns": []}
    marked = {reason.turn for reason in shown.reasons if reason.episode == episode.pk and reason.turn is not None}
    return {
        "episode": episode, "turns": read_turns(episode=episode, count=_EVIDENCE_TURNS), "marked_turns": marked,
        "text_removed_at": removal_dates(episodes=[episode]).get(episode.pk),
    }  # fmt: skip


@require_role(Role.REVIEWER)
@require_POST
def item_claim(request: HttpRequest, item_id: int) -> HttpResponse:
    """Reserve this very item."""
    item = selectors_queues.access_item(item_id=item_id)
    try:
        services_reviews.claim_item(actor=signed_in_user(request), item_id=item.pk)
    except ReviewRefused as error:
        messages.error(request, str(error))
    return redirect("review:item", item.pk)


@require_role(Role.REVIEWER)
@require_POST
def item_give(request: HttpRequest, item_id: int) -> HttpResponse:
    """Give the label and go to the next item."""
    item = selectors_queues.access_item(item_id=item_id)
    form = LabelForm(request.POST)
    if not form.is_valid():
        messages.error(request, f"Not labelled. {form.problem()}")
        return redirect("review:item", item.pk)
    try:
        services_reviews.give_review(actor=signed_in_user(request), item_id=item.pk, label=form.chosen_label())
    except ReviewRefused as error:
        messages.error(request, str(error))
        return redirect("review:item", item.pk)
    return _next(request, item.queue)


@require_role(Role.REVIEWER)
@require_POST
def item_skip(request: HttpRequest, item_id: int) -> HttpResponse:
    """Pass it over and go to the next item."""
    item = selectors_queues.access_item(item_id=item_id)
    try:
        services_reviews.skip_item(actor=signed_in_user(request), item_id=item.pk)
    except ReviewRefused as error:
        messages.error(request, str(error))
    return _next(request, item.queue)


def _next(request: HttpRequest, queue: Queue) -> HttpResponse:
    """To the next item; looks for new ones when the queue seems empty, so that empty means done."""
    actor = signed_in_user(request)
    try:
        item = services_reviews.claim_next(actor=actor, queue_id=queue.pk)
        deadline = time.monotonic() + FILL_S
        while item is None and time.monotonic() < deadline:
            filled = services_queues.fill_queue(queue_id=queue.pk)
            item = services_reviews.claim_next(actor=actor, queue_id=queue.pk) if filled.added else None
            if not filled.rollouts_left:
                break
    except ReviewRefused as error:
        messages.error(request, str(error))
        return redirect("review:queue", queue.pk)
    if item is None:
        messages.info(request, "Nothing is left for you in this queue.")
        return redirect("review:queue", queue.pk)
    return redirect("review:item", item.pk)
