"""The pages of one run that are about the run itself: overview, charts, checkpoints, settings, log."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.shared import Shared
from webapp.environments.selectors import newest_environments
from webapp.runs import selectors
from webapp.runs.chartlist import OVERVIEW_CHARTS, ChartGroup, Piece, charts_of, first_pieces, matching, piece_of
from webapp.runs.configuration import presets
from webapp.runs.forms import sections, setting_text, setting_value
from webapp.runs.models import Run
from webapp.runs.overview import attention_of, figures_of, stages_of
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run
from webapp.runs.series import MAX_NAMES, MAX_POINTS, metric_names, read_clock, read_series
from webapp.runs.storable import storable_text

LATEST_ENVIRONMENTS = 8
_LATEST: Shared[bytes] = Shared(keep=64)


@require_role(Role.VIEWER)
@require_safe
def overview(request: HttpRequest, run_id: int) -> HttpResponse:
    """The live page of a run."""
    run = access_run(run_id=run_id)
    context = run_context(
        request, run, "overview",
        stages=stages_of(run=run), figures=figures_of(run=run), charts=OVERVIEW_CHARTS, every=_every(run),
        listed=newest_environments(run=run, limit=LATEST_ENVIRONMENTS), attention=attention_of(run=run),
        warnings=selectors.warnings_of(run=run, limit=5), commands=selectors.commands_of(run=run, limit=5),
    )  # fmt: skip
    return render(request, "runs/overview.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def head(request: HttpRequest, run_id: int) -> HttpResponse:
    """The header of a run's page, for live updates."""
    return render(request, "runs/_head.html", dict(run_context(request, access_run(run_id=run_id), "")))


@require_role(Role.VIEWER)
@require_safe
def progress(request: HttpRequest, run_id: int) -> HttpResponse:
    """Stage strip and key figures, for live updates."""
    run = access_run(run_id=run_id)
    return render(
        request, "runs/_progress.html", {"run": run, "stages": stages_of(run=run), "figures": figures_of(run=run)}
    )


@require_role(Role.VIEWER)
@require_safe
def latest(request: HttpRequest, run_id: int) -> HttpResponse:
    """Latest environments and the attention panel, for live updates: every open page asks for them at the same moment."""
    run = access_run(run_id=run_id)
    return HttpResponse(_LATEST.get((run.pk, run.created_at, run.last_cursor), lambda: _latest(request, run)))


def _latest(request: HttpRequest, run: Run) -> bytes:
    """The same for every viewer, and made from what the run's cursor counts."""
    context = {
        "run": run,
        "listed": newest_environments(run=run, limit=LATEST_ENVIRONMENTS),
        "attention": attention_of(run=run),
        "warnings": selectors.warnings_of(run=run, limit=5),
        "commands": selectors.commands_of(run=run, limit=5),
    }
    return render(request, "runs/_latest.html", context).content


@require_role(Role.VIEWER)
@require_safe
def charts(request: HttpRequest, run_id: int) -> HttpResponse:
    """Every metric (with ``?metric=`` in its name), grouped by the part of its name before the slash.

    With ``?group=`` and ``?from=`` only a piece of a group, for pages that scroll on.
    """
    run = access_run(run_id=run_id)
    text = storable_text(request.GET.get("metric", "").strip())[:200]
    groups = charts_of(matching(metric_names(run=run), text))
    urls = {"series_url": reverse("runs:series", args=[run.pk]), "csv_url": reverse("runs:series_csv", args=[run.pk])}
    piece_url = f"{reverse('runs:charts', args=[run.pk])}?{urlencode({'metric': text} if text else {})}"
    if request.GET.get("group"):
        piece = asked_piece(request, groups)
        return render(
            request, "runs/_charts.html", {"piece": piece, "every": _every(run), "piece_url": piece_url, **urls}
        )
    context = run_context(
        request, run, "charts",
        pieces=first_pieces(groups), every=_every(run), metric=text, piece_url=piece_url, kept=dict(request.GET.items()), **urls,
    )  # fmt: skip
    return render(request, "runs/charts.html", dict(context))


def asked_piece(request: HttpRequest, groups: Sequence[ChartGroup]) -> Piece:
    """The piece that ``?group=`` and ``?from=`` ask for. Raises Http404 when there is no such group."""
    group = next((group for group in groups if group.key == request.GET.get("group")), None)
    start = request.GET.get("from", "0")
    if group is None or not start.isdecimal() or len(start) > 9:
        raise Http404("There are no such charts.")
    return piece_of(group, start=int(start))


@require_role(Role.VIEWER)
@require_safe
def series(request: HttpRequest, run_id: int) -> HttpResponse:
    """Points of the metrics named by ``?name=`` (repeated), thinned to ``?points=``, and the cursor they are complete to.

    ``?from=`` and ``?to=`` ask for a stretch of rollouts alone.
    """
    run = access_run(run_id=run_id)
    names = request.GET.getlist("name")
    if len(names) > MAX_NAMES:
        raise BadRequest(f"Ask for at most {MAX_NAMES} metrics at once.")
    clock = read_clock(run=run) if request.GET.get("times") else None
    times = clock.times if clock else None
    found = read_series(run=run, names=names, first=rollout_asked(request, "from"), last=rollout_asked(request, "to"))
    series = {one.name: one.as_json(points_asked(request), times) for one in found}
    return JsonResponse({"cursor": run.last_cursor, "start": clock.start if clock else None, "series": series})


def points_asked(request: HttpRequest) -> int:
    """How many points a line may have: ``?points=``, within bounds."""
    asked = request.GET.get("points", "")
    return min(5_000, int(asked)) if asked.isdecimal() and len(asked) < 6 else MAX_POINTS


def rollout_asked(request: HttpRequest, name: str) -> int | None:
    """A rollout of the address, None when it names none."""
    asked = request.GET.get(name, "")
    return int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else None


@require_role(Role.VIEWER)
@require_safe
def series_csv(request: HttpRequest, run_id: int) -> HttpResponse:
    """The same as CSV, not thinned: one row a point, empty where nothing was measured, ``nan`` and ``inf`` as such."""
    run = access_run(run_id=run_id)
    names = request.GET.getlist("name")[:MAX_NAMES] or metric_names(run=run)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["metric", "rollout", "value"])
    for one in read_series(run=run, names=names):
        marks = dict(one.marks)
        writer.writerows(
            [spreadsheet_cell(one.name), rollout, marks.get(rollout, "") if value is None else repr(value)]
            for rollout, value in one.points
        )
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="run-{run.pk}-metrics.csv"'
    return response


def spreadsheet_cell(text: str) -> str:
    """Text that a spreadsheet will not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


@require_role(Role.VIEWER)
@require_safe
def config(request: HttpRequest, run_id: int) -> HttpResponse:
    """The frozen settings, each with unit and sentence, against the preset or the run it was cloned from (``?against=parent``)."""
    run = access_run(run_id=run_id)
    preset = next((choice.config for choice in presets() if choice.name == run.preset), None)
    against = "parent" if request.GET.get("against") == "parent" and run.parent else "preset" if preset else ""
    base: dict[str, Any] | None = preset.model_dump(mode="json") if preset else None
    if against == "parent" and run.parent:
        base = run.parent.config
    groups: list[dict[str, Any]] = []
    for section in sections():
        rows: list[dict[str, Any]] = []
        for spec in section.settings:
            text = setting_text(setting_value(run.config, spec.path))
            other = setting_text(setting_value(base, spec.path)) if base is not None else text
            rows.append({"spec": spec, "text": text, "other": other, "differs": text != other})
        groups.append(
            {
                "title": section.title,
                "key": section.key,
                "rows": rows,
                "changed": sum(bool(row["differs"]) for row in rows),
            }
        )
    only_changed = request.GET.get("show") == "changed"
    context = run_context(
        request,
        run,
        "config",
        groups=groups,
        against=against,
        only_changed=only_changed,
        changed=sum(group["changed"] for group in groups),
    )
    return render(request, "runs/config.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def config_json(request: HttpRequest, run_id: int) -> HttpResponse:
    """The frozen settings as a file that ``python -m trainer run --config`` takes."""
    run = access_run(run_id=run_id)
    response = HttpResponse(json.dumps(run.config, indent=2, ensure_ascii=True), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="run-{run.pk}-config.json"'
    return response


def _every(run: Run) -> int:
    """Rollouts between two regenerations: metrics of a regeneration are due only then."""
    value = setting_value(run.config, "schedule.regenerate_every")
    return value if isinstance(value, int) and value > 0 else 1
