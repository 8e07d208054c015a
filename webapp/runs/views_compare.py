"""The page that compares runs, and the points of its charts."""

from __future__ import annotations

import csv
import io
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.runs import compare as comparing
from webapp.runs.chartlist import first_pieces
from webapp.runs.errors import SearchRefused
from webapp.runs.models import Run
from webapp.runs.selectors_list import matching_ids
from webapp.runs.series import MAX_NAMES, read_clock, read_series
from webapp.runs.states import ACTIVE
from webapp.runs.storable import storable_text
from webapp.runs.views_list import filter_of
from webapp.runs.views_run import asked_piece, points_asked, rollout_asked, spreadsheet_cell

LIVE_EVERY_S = 10


@require_role(Role.VIEWER)
@require_http_methods(["GET", "HEAD", "POST"])
def compare(request: HttpRequest) -> HttpResponse:
    """``?run=3&run=7``: charts, key figures and settings of those runs. ``?add=text`` adds one; a POST is the list's selection."""
    if request.method == "POST":
        return redirect(_address(_chosen(request)))
    run_ids = ids_of(request.GET)
    wanted = storable_text(request.GET.get("add", "").strip())[:200]
    if wanted:
        found = comparing.run_named(text=wanted)
        if found is None:
            messages.error(request, f"There is no run called {wanted}.")
        return redirect(_address([*run_ids, *([found.pk] if found else [])]))
    compared = comparing.compared_runs(run_ids=run_ids)
    text = storable_text(request.GET.get("metric", "").strip())[:200]
    groups = comparing.charts_for(compared=compared, text=text) if compared else []
    query = urlencode([("run", one.run.pk) for one in compared])
    urls = {"series_url": f"{reverse('runs:compare_series')}?{query}", "csv_url": f"{reverse('runs:compare_csv')}?{query}",
            "piece_url": f"{reverse('runs:compare')}?{query}{'&' + urlencode({'metric': text}) if text else ''}"}  # fmt: skip
    if request.GET.get("group"):
        return render(request, "runs/_charts.html", {"piece": asked_piece(request, groups), **urls})
    rows = comparing.setting_rows(configs=[one.run.config for one in compared])
    context = {
        "compared": compared,
        "chips": [{"one": one, "without": _address([pk for pk in run_ids if pk != one.run.pk])} for one in compared],
        "query": query, "pieces": first_pieces(groups, size=len(groups[0].charts) if groups else 0), "metric": text, **urls,
        "figures": comparing.figure_rows(compared=compared) if compared else [],
        "settings": rows, "differing": sum(row.differs for row in rows), "show_all": request.GET.get("settings") == "all",
        "live_every_s": LIVE_EVERY_S if any(one.run.status in ACTIVE for one in compared) else 0,
        "suggested": Run.objects.filter(deleted_at=None, archived_at=None).exclude(pk__in=run_ids).order_by("-id")[:30],
        "is_full": len(compared) >= comparing.MAX_RUNS, "max_runs": comparing.MAX_RUNS,
    }  # fmt: skip
    return render(request, "runs/compare.html", context)


@require_role(Role.VIEWER)
@require_safe
def compare_series(request: HttpRequest) -> JsonResponse:
    """Points of the metrics ``?name=`` of the runs ``?run=``, by "run:metric"; as the series of one run otherwise."""
    names = request.GET.getlist("name")
    if len(names) > MAX_NAMES:
        raise BadRequest(f"Ask for at most {MAX_NAMES} metrics at once.")
    first, last = rollout_asked(request, "from"), rollout_asked(request, "to")
    series = {}
    for one in comparing.compared_runs(run_ids=ids_of(request.GET)):
        times = read_clock(run=one.run).times if request.GET.get("times") else None
        for line in read_series(run=one.run, names=names, first=first, last=last):
            series[f"{one.run.pk}:{line.name}"] = line.as_json(points_asked(request), times)
    return JsonResponse({"series": series})


@require_role(Role.VIEWER)
@require_safe
def compare_csv(request: HttpRequest) -> HttpResponse:
    """The points behind a chart as CSV, not thinned: run, name, metric, rollout, value."""
    names = request.GET.getlist("name")[:MAX_NAMES]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["run", "name", "metric", "rollout", "value"])
    for one in comparing.compared_runs(run_ids=ids_of(request.GET)):
        for line in read_series(run=one.run, names=names):
            marks = dict(line.marks)
            head = [one.run.pk, spreadsheet_cell(one.run.name), spreadsheet_cell(line.name)]
            for rollout, value in line.points:
                writer.writerow([*head, rollout, marks.get(rollout, "") if value is None else repr(value)])
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="compared-runs.csv"'
    return response


def ids_of(query: QueryDict) -> list[int]:
    """The runs an address names; what is no number is left out."""
    return [int(text) for text in query.getlist("run") if text.isdecimal() and len(text) < 12]


def _chosen(request: HttpRequest) -> list[int]:
    if request.POST.get("scope") != "filter":
        return ids_of(request.POST)[: comparing.MAX_RUNS]
    try:
        return matching_ids(chosen=filter_of(QueryDict(request.POST.get("query", ""))))[-comparing.MAX_RUNS :]
    except SearchRefused as error:
        messages.error(request, str(error))
        return []


def _address(run_ids: list[int]) -> str:
    return f"{reverse('runs:compare')}?{urlencode([('run', pk) for pk in dict.fromkeys(run_ids)])}"
