"""Pages about the sets of environments as a whole: degenerate signals, win rates against the band, designer rewards, what was captured."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.environments import selectors, selectors_signals
from webapp.environments.selectors_signals import BINS, LEDGER_COLUMNS, SIGNALS, Histogram
from webapp.environments.views import number_in
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

SETS_SHOWN = 60
LEDGER_ROWS = 200
_PLOT_HEIGHT = 120  # units of the histogram's drawing; a bin is 20 wide


@require_role(Role.VIEWER)
@require_safe
def signals(request: HttpRequest, run_id: int) -> HttpResponse:
    """Environments without a learning signal, by set and kind, each number a link to the very environments; the win-rate histogram."""
    run = access_run(run_id=run_id)
    rollout = number_in(request.GET, "rollout")
    groups = selectors_signals.unhinted_groups(run=run)
    rows = selectors_signals.signals_by_set(run=run, groups=groups)
    table = [{"row": row, "cells": [(flag, row.counts[flag]) for flag in SIGNALS]} for row in rows[:SETS_SHOWN]]
    totals = [(flag, sum(row.counts[flag] for row in rows)) for flag in SIGNALS]
    menus = [FilterMenu(name="rollout", label="rollout", values=[str(row.rollout) for row in rows[:SETS_SHOWN]])]
    histogram = selectors_signals.win_rate_histogram(run=run, groups=groups, rollout=rollout)
    context = run_context(
        request, run, "environments", kinds=[(flag, *SIGNALS[flag]) for flag in SIGNALS], table=table, totals=totals, rollout=rollout,
        environments_total=sum(row.environments for row in rows), more_sets=max(0, len(rows) - SETS_SHOWN), histogram=histogram,
        drawing=_drawing(histogram), menus=[menu.bound(request.GET) for menu in menus if menu.values],
        chips=chosen_chips(request.GET, ("rollout",)),
    )  # fmt: skip
    return render(request, "environments/signals.html", dict(context))


def _drawing(histogram: Histogram) -> dict[str, Any]:
    """Bars and bands in the units of the drawing: 20 wide a bin, _PLOT_HEIGHT high."""
    width = 20 * BINS
    tallest = max(1, histogram.highest)
    bars = [
        {"x": 20 * index + 1, "height": round(count / tallest * (_PLOT_HEIGHT - 8), 1), "count": count,
         "y": round(_PLOT_HEIGHT - count / tallest * (_PLOT_HEIGHT - 8), 1), "low": index / BINS, "high": (index + 1) / BINS}
        for index, count in enumerate(histogram.bins)
    ]  # fmt: skip
    bands = {name: {"x": round(low * width, 1), "width": round((high - low) * width, 1)}
             for name, (low, high) in (("learnable", histogram.learnable), ("anchor", histogram.anchor))}  # fmt: skip
    return {"bars": bars, "width": width, "height": _PLOT_HEIGHT, **bands}


@require_role(Role.VIEWER)
@require_safe
def rewards(request: HttpRequest, run_id: int) -> HttpResponse:
    """How each environment's designer reward came about."""
    run = access_run(run_id=run_id)
    query = request.GET
    page = selectors_signals.list_rewards(run=run, skill=query.get("skill", ""), cursor=query.get("after", ""))
    menus = [FilterMenu(name="skill", label="skill", values=selectors.skills_of(run=run))]
    context = run_context(
        request, run, "environments", page=page, menus=[menu.bound(query) for menu in menus if menu.values],
        chips=chosen_chips(query, ("skill",)),
    )  # fmt: skip
    return render(request, "environments/rewards.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def ledger(request: HttpRequest, run_id: int) -> HttpResponse:
    """What the trainer announced and what is stored, per rollout."""
    run = access_run(run_id=run_id)
    rows = selectors_signals.capture_ledger(run=run)
    shown = [
        {
            "row": row,
            "cells": [(row.stored[name], row.expected.get(name), name in row.short) for name in LEDGER_COLUMNS],
        }
        for row in rows[:LEDGER_ROWS]
    ]
    context = run_context(
        request, run, "environments", rows=shown, columns=LEDGER_COLUMNS, coverage=selectors_signals.coverage_of(rows),
        short=sum(bool(row.short) for row in rows), rollouts=len(rows), more=max(0, len(rows) - LEDGER_ROWS),
    )  # fmt: skip
    return render(request, "environments/ledger.html", dict(context))
