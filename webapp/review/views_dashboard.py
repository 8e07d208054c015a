"""The review dashboard, and flags for download."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.attachments import attachment
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.core.requests import signed_in_user
from webapp.core.spreadsheet import csv_text
from webapp.environments.views import number_in
from webapp.review import selectors_dashboard as dashboard
from webapp.review.exporting import FLAG_COLUMNS, flag_rows
from webapp.review.models import Flag
from webapp.review.selectors import narrowed
from webapp.review.selectors_queues import list_queues
from webapp.review.views import filter_in
from webapp.runs.models import Run

_RECENT = 8
_PROPOSALS = 10
_RUNS_OFFERED = 60
_SPAN_WORDS = {"day": "4 weeks by day", "week": "26 weeks by week"}


@require_role(Role.VIEWER)
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Flags per kind over time and by skill, what waits for somebody, open queues."""
    reader = signed_in_user(request)
    run = number_in(request.GET, "run")
    span = request.GET.get("span", "day")
    span = span if span in dashboard.SPANS else "day"
    over_time, highest = dashboard.flags_over_time(span=span, run=run)
    menus, words = _menus()
    may_review = has_role(request.user, Role.REVIEWER)
    context = {
        "figures": dashboard.figures(run=run), "over_time": over_time, "highest": highest, "span_words": _SPAN_WORDS[span],
        "drawing_width": dashboard.SPANS[span][1] * dashboard.BAR_WIDTH, "drawing_height": dashboard.BAR_HEIGHT,
        "bar_width": dashboard.BAR_WIDTH - dashboard.BAR_GAP, "skills": dashboard.flags_by_skill(run=run), "run": run,
        "proposals": dashboard.waiting_proposals(reader=reader, run=run, limit=_PROPOSALS),
        "recent": dashboard.newest_flags(reader=reader, run=run, limit=_RECENT), "may_review": may_review,
        "queues": list_queues(reader=reader, is_open=True) if may_review else [],
        "menus": [menu.bound(request.GET) for menu in menus if menu.values],
        "chips": chosen_chips(request.GET, ("run", "span"), words), "back": request.get_full_path(),
    }  # fmt: skip
    return render(request, "review/dashboard.html", context)


def _menus() -> tuple[list[FilterMenu], dict[str, str]]:
    """The filters, and the words of their values."""
    flagged = Run.objects.filter(Exists(Flag.objects.filter(run=OuterRef("pk"))), deleted_at=None).order_by("-pk")
    names = {str(pk): name for pk, name in flagged.values_list("pk", "name")[:_RUNS_OFFERED]}
    menus = [
        FilterMenu(name="span", label="time", values=list(_SPAN_WORDS), words=_SPAN_WORDS),
        FilterMenu(name="run", label="run", values=list(names), words=names),
    ]
    return menus, {**names, **_SPAN_WORDS}


@require_role(Role.VIEWER)
@require_safe
def flags_csv(request: HttpRequest) -> HttpResponse:
    """The flags of the list's filter as CSV."""
    text = csv_text(FLAG_COLUMNS, (list(row.values()) for row in flag_rows(narrowed(filter_in(request)))))
    return attachment(text, name="flags.csv", kind="text/csv; charset=utf-8")


@require_role(Role.VIEWER)
@require_safe
def flags_jsonl(request: HttpRequest) -> HttpResponse:
    """The same as JSON, one object a line."""
    rows: list[dict[str, Any]] = list(flag_rows(narrowed(filter_in(request))))
    text = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
    return attachment(text, name="flags.jsonl", kind="application/jsonl")
