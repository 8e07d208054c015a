"""Pages about what environments come from and lead to: memory, corpus, regret."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.environments import selectors, selectors_sources
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

SKILL_COLORS = ("--run-0", "--run-1", "--run-3", "--run-2", "--run-5", "--run-4", "--run-7", "--run-6", "--run-9")


@require_role(Role.VIEWER)
@require_safe
def memory(request: HttpRequest, run_id: int) -> HttpResponse:
    """Memory records: when they came and went and why, and which prompts used them."""
    run = access_run(run_id=run_id)
    query = request.GET
    present = {"present": True, "removed": False}.get(query.get("state", ""))
    page = selectors_sources.list_memory(
        run=run, skill=query.get("skill", ""), present=present, cursor=query.get("after", "")
    )
    uses = selectors_sources.uses_of(run=run, keys=[record.environment_key for record in page.rows])
    menus = [
        FilterMenu(name="skill", label="skill", values=selectors.skills_of(run=run)),
        FilterMenu(name="state", label="state", values=["present", "removed"]),
    ]
    context = run_context(
        request, run, "memory", page=page, rows=[{"record": record, "uses": uses[record.environment_key]} for record in page.rows],
        menus=[menu.bound(query) for menu in menus if menu.values], chips=chosen_chips(query, ("skill", "state")),
    )  # fmt: skip
    return render(request, "environments/memory.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def corpus(request: HttpRequest, run_id: int) -> HttpResponse:
    """Documents the designer was shown."""
    run = access_run(run_id=run_id)
    search = request.GET.get("q", "").strip()[:200]
    page = selectors_sources.list_documents(run=run, search=search, cursor=request.GET.get("after", ""))
    context = run_context(request, run, "corpus", page=page, search=search, chips=chosen_chips(request.GET, ("q",)))
    return render(request, "environments/corpus.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def document(request: HttpRequest, run_id: int, document_id: int) -> HttpResponse:
    """One document as the designer saw it, and what came of it."""
    run = access_run(run_id=run_id)
    found = selectors_sources.access_document(run=run, document_id=document_id)
    chosen = selectors.EnvironmentFilter(document=found.key)
    page, listed = selectors.list_environments(run=run, chosen=chosen, cursor=request.GET.get("after", ""))
    context = run_context(
        request, run, "corpus", document=found, page=page, listed=listed, metadata=sorted(found.metadata.items())
    )
    return render(request, "environments/document.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def regret(request: HttpRequest, run_id: int) -> HttpResponse:
    """Regret per environment, and per skill over the regenerations with its uncertainty."""
    run = access_run(run_id=run_id)
    query = request.GET
    page = selectors_sources.list_regret(run=run, skill=query.get("skill", ""), cursor=query.get("after", ""))
    by_skill = selectors_sources.regret_by_skill(run=run)
    menus = [FilterMenu(name="skill", label="skill", values=selectors.skills_of(run=run))]
    context = run_context(
        request, run, "regret", page=page, matrix=_matrix(by_skill), menus=[menu.bound(query) for menu in menus if menu.values],
        chips=chosen_chips(query, ("skill",)), states=_states(by_skill), spec=_spec(by_skill),
    )  # fmt: skip
    return render(request, "environments/regret.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def regret_series(request: HttpRequest, run_id: int) -> HttpResponse:
    """Mean regret and its standard error per skill, in the form of the series endpoint."""
    run = access_run(run_id=run_id)
    series: dict[str, dict[str, Any]] = {}
    for row in selectors_sources.regret_by_skill(run=run):
        for name, value in ((f"skill/{row.skill}", row.mean), (f"skill-error/{row.skill}", row.standard_error)):
            one = series.setdefault(name, {"x": [], "y": [], "total": 0, "missing": 0, "ghosts": []})
            one["x"].append(row.rollout)
            one["y"].append(value)
            one["total"] += 1
            one["missing"] += value is None
    return JsonResponse({"cursor": run.last_cursor, "series": series})


def _spec(by_skill: list[selectors_sources.SkillRegret]) -> dict[str, Any]:
    """What charts.js draws: one line per skill."""
    skills = sorted({row.skill for row in by_skill})
    lines = [
        {"name": f"skill/{skill}", "label": skill, "color": SKILL_COLORS[index % len(SKILL_COLORS)], "dash": index >= len(SKILL_COLORS),
         "band": "", "sparse": False, "bridge": True}
        for index, skill in enumerate(skills)
    ]  # fmt: skip
    return {
        "key": "skills",
        "title": "Mean regret by skill",
        "series": lines,
        "low": None,
        "high": None,
        "zero": True,
        "unit": "",
    }


def _matrix(by_skill: list[selectors_sources.SkillRegret], newest: int = 12) -> dict[str, Any]:
    """Skills as rows, the newest regenerations as columns (newest first)."""
    rollouts = sorted({row.rollout for row in by_skill}, reverse=True)[:newest]
    cells = {(row.skill, row.rollout): row for row in by_skill}
    skills = sorted({row.skill for row in by_skill})
    return {
        "rollouts": rollouts,
        "rows": [{"skill": skill, "cells": [cells.get((skill, rollout)) for rollout in rollouts]} for skill in skills],
    }


def _states(by_skill: list[selectors_sources.SkillRegret]) -> list[tuple[str, int]]:
    """How many measurements had which state, over the whole run."""
    totals: dict[str, int] = {}
    for row in by_skill:
        for state, count in row.states.items():
            totals[state] = totals.get(state, 0) + count
    return [(state.replace("_", " "), count) for state, count in sorted(totals.items(), key=lambda item: -item[1])]
