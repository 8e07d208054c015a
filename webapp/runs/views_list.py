"""The list of runs: search, filters, order, groups, saved views, and acts on many runs at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.core.pagination import Page
from webapp.core.requests import signed_in_user
from webapp.runs import selectors_list, services_shelf
from webapp.runs.errors import ActRefused, SearchRefused
from webapp.runs.models import Run
from webapp.runs.selectors_list import BULK_ACTS, GROUPED_BY, Listing, RunFilter
from webapp.runs.storable import storable_text

_FILTERS = ("status", "preset", "tag", "owner", "show", "group", "q")
#: Query parameters that make up a view of the list; the page within it is not part.
_VIEW = (*_FILTERS, "regex", "sort")
MAX_CHOSEN = 10_000
#: Acts that ask first even when every run was picked by hand.
_ASK_FIRST = frozenset({"delete", "stop"})
_DONE = {
    "tag": "tagged", "untag": "lost the tag", "archive": "archived: listed under “show: archived”", "restore": "restored",
    "delete": "deleted: until they are removed for good they can be restored, under “show: deleted”",
    "stop": "being stopped",
}  # fmt: skip


def filter_of(query: QueryDict) -> RunFilter:
    """What the address narrows the list to."""

    def text(name: str) -> str:
        return storable_text(query.get(name, "").strip())[:200]

    return RunFilter(
        search=text("q"), regex=bool(query.get("regex")), status=text("status"), preset=text("preset"), tag=text("tag"),
        owner=text("owner"), show=text("show"),
    )  # fmt: skip


@require_role(Role.VIEWER)
@require_safe
def run_list(request: HttpRequest) -> HttpResponse:
    """Runs in use, newest first; ``?status=``, ``preset``, ``tag``, ``owner``, ``q`` (``regex``), ``show``, ``sort``, ``group``."""
    query = request.GET
    chosen, group = filter_of(query), query.get("group", "")
    problem, listing = "", Listing(page=Page[Run](rows=[], cursor="", next_cursor=""), group_counts={}, total=0)
    try:
        listing = selectors_list.list_runs(
            chosen=chosen, sort=query.get("sort", ""), group=group, cursor=query.get("after", "")
        )
    except SearchRefused as error:
        problem = str(error)
    facets = selectors_list.run_facets()
    menus = [
        FilterMenu(name="status", label="status", values=["active", *facets.statuses]),
        FilterMenu(name="preset", label="preset", values=facets.presets),
        FilterMenu(name="tag", label="tag", values=facets.tags),
        FilterMenu(name="owner", label="owner", values=facets.owners),
        FilterMenu(name="show", label="show", values=[name for name in selectors_list.SHOWN if name]),
        FilterMenu(name="group", label="group by", values=list(GROUPED_BY)),
    ]
    context = {
        "page": listing.page, "groups": _groups(listing.page.rows, listing.group_counts), "total": listing.total,
        "problem": problem, "chosen": chosen,
        "menus": [menu.bound(query) for menu in menus if menu.values],
        "chips": chosen_chips(query, _FILTERS), "is_narrowed": chosen.is_narrowed, "is_pattern": chosen.regex,
        "sorts": _sorts(query), "views": _views(request, query), "view_query": _view_query(query),
    }  # fmt: skip
    return render(request, "runs/list.html", context, status=400 if problem else 200)


def _groups(rows: Sequence[Run], counts: dict[str, int]) -> list[dict[str, Any]]:
    """The rows of the page under the titles of their groups; one untitled group when the list is not grouped."""
    if not counts:
        return [{"runs": rows}] if rows else []
    grouped = groupby(rows, key=lambda run: str(getattr(run, "group_key", "")))
    return [{"title": key or "–", "count": counts.get(key, 0), "runs": list(runs)} for key, runs in grouped]


def _sorts(query: QueryDict) -> dict[str, dict[str, str]]:
    """Column → address that sorts by it (the other way round the second time), and how it is sorted now."""
    now = query.get("sort", "")
    links = {}
    for name in selectors_list.SORTED_BY:
        first, second = (name, f"-{name}") if name == "name" else (f"-{name}", name)
        target = second if now == first else "" if now == second else first
        changed = query.copy()
        changed.pop("after", None)
        changed.pop("sort", None)
        if target:
            changed["sort"] = target
        state = "" if now.removeprefix("-") != name else "descending" if now.startswith("-") else "ascending"
        links[name] = {"url": f"?{changed.urlencode()}", "state": state}
    return links


def _view_query(query: QueryDict) -> str:
    return urlencode([(name, query[name]) for name in _VIEW if query.get(name)])


def _views(request: HttpRequest, query: QueryDict) -> list[dict[str, Any]]:
    now = _view_query(query)
    return [
        {"pk": view.pk, "name": view.name, "url": f"?{view.query}", "active": view.query == now}
        for view in selectors_list.saved_views(user=signed_in_user(request))
    ]


@require_role(Role.VIEWER)
@require_safe
def run_row(request: HttpRequest, run_id: int) -> HttpResponse:
    """One row of the list, for live updates."""
    return render(request, "runs/_row.html", {"run": selectors_list.list_row(run_id=run_id)})


@require_role(Role.VIEWER)
@require_POST
def view_save(request: HttpRequest) -> HttpResponse:
    """Keep the list as it is now under a name of the person's own."""
    query = _view_query(QueryDict(request.POST.get("query", "")))
    try:
        view = services_shelf.save_view(user=signed_in_user(request), name=request.POST.get("name", ""), query=query)
        messages.success(request, f"The view {view.name} is saved.")
    except ActRefused as error:
        messages.error(request, str(error))
    return _back(query)


@require_role(Role.VIEWER)
@require_POST
def view_delete(request: HttpRequest, view_id: int) -> HttpResponse:
    """Forget a view of the person's own."""
    services_shelf.delete_view(user=signed_in_user(request), view_id=view_id)
    return _back(request.POST.get("query", ""))


@require_role(Role.OPERATOR)
@require_POST
def bulk(request: HttpRequest) -> HttpResponse:
    """An act on many runs: those picked (``run``), or with ``scope=filter`` every run that ``query`` matches, on whatever page.

    Asks first, stating the count, when it is a whole filter or cannot be undone by a click; asks again when the runs that match
    are no longer those that were counted.
    """
    query, act = QueryDict(request.POST.get("query", "")), request.POST.get("act", "")
    tag = " ".join(storable_text(request.POST.get("tag", "")).split())
    try:
        run_ids = _chosen_ids(request.POST, query)
    except SearchRefused as error:
        messages.error(request, str(error))
        return _back(query.urlencode())
    if act not in BULK_ACTS:
        raise Http404("There is no such act.")
    if not run_ids or (act in ("tag", "untag") and not tag):
        messages.error(request, "Type the tag first." if run_ids else "Choose some runs first.")
        return _back(query.urlencode())
    plan = selectors_list.plan_of(act=act, run_ids=run_ids, tag=tag)
    digest = hashlib.sha256(repr(plan.changed).encode()).hexdigest()
    confirmed = request.POST.get("confirmed", "")
    is_asked = bool(confirmed) or request.POST.get("scope") == "filter" or act in _ASK_FIRST
    if is_asked and confirmed != digest:
        context = {
            "plan": plan, "act": act, "tag": tag, "digest": digest, "query": query.urlencode(), "scope": request.POST.get("scope", ""),
            "run_ids": run_ids, "has_changed": bool(confirmed), "restore_days": services_shelf.restorable().days,
            "more": len(plan.changed) - len(plan.names),
        }  # fmt: skip
        return render(request, "runs/bulk.html", context)
    _do(request, act, plan.changed, tag, plan.refusals)
    return _back(query.urlencode())


def _chosen_ids(data: QueryDict, query: QueryDict) -> list[int]:
    if data.get("scope") == "filter":
        return selectors_list.matching_ids(chosen=filter_of(query))[:MAX_CHOSEN]
    return [int(text) for text in data.getlist("run")[:MAX_CHOSEN] if text.isdecimal() and len(text) < 12]


def _do(request: HttpRequest, act: str, run_ids: list[int], tag: str, refusals: list[str]) -> None:
    try:
        changed = services_shelf.act_on_runs(actor=signed_in_user(request), act=act, run_ids=run_ids, tag=tag)
    except ActRefused as error:
        messages.error(request, str(error))
        return
    noun = "run" if changed == 1 else "runs"
    rest = f" Left as they are: {'; '.join(refusals)}." if refusals else ""
    (messages.success if changed else messages.warning)(request, f"{changed} {noun} {_DONE[act]}.{rest}")


def _back(query: str) -> HttpResponse:
    return redirect(f"{reverse('runs:list')}?{query}" if query else reverse("runs:list"))
