"""Queues: the list, making and filling one, its items, and the page where an item is judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.attachments import attachment
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.core.requests import signed_in_user
from webapp.core.spreadsheet import csv_text
from webapp.review import selectors, selectors_queues, services_queues, signals
from webapp.review.errors import ReviewRefused
from webapp.review.forms import QueueForm
from webapp.review.models import Flag, Queue, QueueItem
from webapp.review.selectors_queues import EXPORT_COLUMNS, ITEM_STATES

FILL_S = 3.0  # a button should answer within seconds; what is left is looked at when it is needed
_ACTS: dict[str, Callable[..., Queue]] = {"close": services_queues.close_queue, "reopen": services_queues.reopen_queue}


@require_role(Role.REVIEWER)
@require_safe
def queue_list(request: HttpRequest) -> HttpResponse:
    """Open queues, and closed ones below."""
    reader = signed_in_user(request)
    context = {
        "open": selectors_queues.list_queues(reader=reader, is_open=True),
        "closed": selectors_queues.list_queues(reader=reader, is_open=False),
    }
    return render(request, "review/queues.html", context)


@require_role(Role.REVIEWER)
@require_http_methods(["GET", "HEAD", "POST"])
def queue_new(request: HttpRequest) -> HttpResponse:
    """Make a queue for a run and fill it by its rules."""
    form = QueueForm(request.POST or None, initial={"run": request.GET.get("run", "")})
    if request.method == "POST" and form.is_valid():
        actor = signed_in_user(request)
        try:
            queue = services_queues.create_queue(
                actor=actor, run_id=form.cleaned_data["run"], name=form.cleaned_data["name"], rules=form.rules()
            )
        except ReviewRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, _fill(request, queue))
            return redirect("review:queue", queue.pk)
    return render(request, "review/queue_new.html", {"form": form, "signals": signals.SIGNALS})


@require_role(Role.REVIEWER)
@require_safe
def queue_page(request: HttpRequest, queue_id: int) -> HttpResponse:
    """Items, progress of everybody, agreement."""
    queue, reader = selectors_queues.access_queue(queue_id=queue_id), signed_in_user(request)
    state = request.GET.get("state", "")
    page, items = selectors_queues.list_items(
        queue=queue, reader=reader, state=state, cursor=request.GET.get("after", "")
    )
    agreement, pairs = selectors_queues.agreement_in(queue=queue)
    menu = FilterMenu(name="state", label="state", values=list(ITEM_STATES), words=ITEM_STATES)
    context = {
        "queue": queue, "page": page, "items": items, "menus": [menu.bound(request.GET)],
        "chips": chosen_chips(request.GET, ("state",), ITEM_STATES),
        "total": queue.items.count(), "done": queue.items.exclude(completed_at=None).count(),
        "progress": selectors_queues.progress_of(queue=queue), "agreement": agreement, "pairs": pairs,
        "free": selectors_queues.free_items(queue=queue, reader=reader), "unscanned": selectors_queues.rollouts_unscanned(queue),
        "own_skipped": selectors_queues.skipped_items(queue=queue, reader=reader),
        "signal_labels": [signals.BY_KEY[key].label for key in queue.signals if key in signals.BY_KEY],
        "kinds": selectors.kinds_by_use(), "severities": Flag.Severity.choices, "default_severity": Flag.Severity.MAJOR.value,
    }  # fmt: skip
    return render(request, "review/queue.html", context)


@require_role(Role.REVIEWER)
@require_POST
def queue_fill(request: HttpRequest, queue_id: int) -> HttpResponse:
    """Let the rules look at what is new in the run."""
    queue = selectors_queues.access_queue(queue_id=queue_id)
    return _attempt(request, queue, lambda: _fill(request, queue))


@require_role(Role.REVIEWER)
@require_POST
def queue_act(request: HttpRequest, queue_id: int, act: str) -> HttpResponse:
    """Close or reopen a queue."""
    queue, service = selectors_queues.access_queue(queue_id=queue_id), _ACTS.get(act)
    if service is None:
        raise Http404("There is no such act.")

    def change() -> str:
        service(actor=signed_in_user(request), queue_id=queue.pk)
        return f"{queue} is {'closed' if act == 'close' else 'open again'}."

    return _attempt(request, queue, change)


@require_role(Role.REVIEWER)
@require_safe
def labels_csv(request: HttpRequest, queue_id: int) -> HttpResponse:
    """Labels as CSV, one row a label; lists of signals are joined by spaces."""
    queue = selectors_queues.access_queue(queue_id=queue_id)
    rows, _ = selectors_queues.labels_for_download(queue=queue, reader=signed_in_user(request))
    cells = ([" ".join(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in rows)
    return attachment(
        csv_text(EXPORT_COLUMNS, cells), name=f"queue-{queue.pk}-labels.csv", kind="text/csv; charset=utf-8"
    )


@require_role(Role.REVIEWER)
@require_safe
def labels_jsonl(request: HttpRequest, queue_id: int) -> HttpResponse:
    """The same as JSON, one object a line."""
    queue = selectors_queues.access_queue(queue_id=queue_id)
    rows, _ = selectors_queues.labels_for_download(queue=queue, reader=signed_in_user(request))
    text = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
    return attachment(text, name=f"queue-{queue.pk}-labels.jsonl", kind="application/jsonl")


@require_role(Role.REVIEWER)
@require_POST
def add_environment(request: HttpRequest, environment_id: int) -> HttpResponse:
    """Put an environment into a queue by hand."""
    environment = selectors.access_environment(environment_id=environment_id)
    chosen = request.POST.get("queue", "")
    try:
        if not chosen.isascii() or not chosen.isdecimal() or len(chosen) > 15:
            raise ReviewRefused("Choose a queue.")
        item: QueueItem = services_queues.add_by_hand(
            actor=signed_in_user(request), queue_id=int(chosen), environment_id=environment.pk
        )
        messages.success(request, f"{environment.key} is in {item.queue}.")
    except ReviewRefused as error:
        messages.error(request, str(error))
    return redirect("runs:environment", environment.run_id, environment.key)


def _fill(request: HttpRequest, queue: Queue) -> str:
    """Look at the run until it is done or seconds have passed; what was found, in words. Raises ReviewRefused."""
    looked_at = added = 0
    deadline = time.monotonic() + FILL_S
    while True:
        filled = services_queues.fill_queue(queue_id=queue.pk, actor=signed_in_user(request))
        looked_at, added = looked_at + filled.looked_at, added + filled.added
        if not filled.rollouts_left or time.monotonic() > deadline:
            break
    left = f" {filled.rollouts_left} rollouts are still to be looked at." if filled.rollouts_left else ""
    return f"Looked at {looked_at} environment{'' if looked_at == 1 else 's'}, added {added}.{left}"


def _attempt(request: HttpRequest, queue: Queue, act: Callable[[], str]) -> HttpResponse:
    try:
        messages.success(request, act())
    except ReviewRefused as error:
        messages.error(request, str(error))
    return redirect("review:queue", queue.pk)
