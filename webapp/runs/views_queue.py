"""What runs where, what waits, and the workers and GPUs there are."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.runs import presence, selectors_queue, services_queue
from webapp.runs.errors import ActRefused
from webapp.runs.selectors import access_run


@require_role(Role.VIEWER)
@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    """Active runs by machine, the queue in its order, workers."""
    workers = presence.workers()
    shown = [{"worker": one, "at": datetime.fromtimestamp(one.at, tz=UTC)} for one in workers or ()]
    context = {
        "active": selectors_queue.active_runs(), "waiting": selectors_queue.queued_runs(), "workers": shown,
        "is_broker_away": workers is None, "takers": sum(one.takes_runs for one in workers or ()),
    }  # fmt: skip
    return render(request, "runs/_queue.html" if request.headers.get("HX-Request") else "runs/queue.html", context)


@require_role(Role.OPERATOR)
@require_POST
def queue_move(request: HttpRequest, run_id: int, to: str) -> HttpResponse:
    """Move a queued run: first, up, down or last."""
    run = access_run(run_id=run_id)
    if to not in services_queue.PLACES:
        raise Http404("There is no such place.")
    try:
        place = services_queue.move_in_queue(actor=signed_in_user(request), run_id=run.pk, to=to)
        messages.success(request, f"{run.name} is number {place} of the queue.")
    except ActRefused as error:
        messages.error(request, f"{run.name}: {error}")
    return redirect("runs:queue")
