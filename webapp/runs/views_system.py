"""The tab that shows what a run takes of its machine."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.runs import selectors
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run
from webapp.runs.states import ACTIVE
from webapp.runs.system import read_samples, system_charts
from webapp.runs.views_run import points_asked

LIVE_EVERY_S = 15


@require_role(Role.VIEWER)
@require_safe
def system(request: HttpRequest, run_id: int) -> HttpResponse:
    """Charts over time, and the machine of each attempt."""
    run = access_run(run_id=run_id)
    newest = run.samples.order_by("-at").first()
    context = run_context(
        request, run, "system",
        charts=system_charts(run=run) if newest else [], newest=newest, attempts=selectors.attempts_of(run=run),
        live_every_s=LIVE_EVERY_S if run.status in ACTIVE else 0,
    )  # fmt: skip
    return render(request, "runs/system.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def system_series(request: HttpRequest, run_id: int) -> JsonResponse:
    """Points of the lines named by ``?name=``, thinned to ``?points=``."""
    run = access_run(run_id=run_id)
    series = read_samples(run=run, names=request.GET.getlist("name")[:20], max_points=points_asked(request))
    return JsonResponse({"cursor": run.last_cursor, "start": None, "series": series})
