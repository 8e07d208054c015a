"""Pages about environments of one run: list, one environment, candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.core.listing import added_cells, added_filters, chosen_filters
from webapp.core.requests import signed_in_user
from webapp.environments import selectors, selectors_play
from webapp.environments.models import Environment
from webapp.environments.selectors import FLAGS, LIST, STATES, EnvironmentFilter
from webapp.environments.selectors_lineage import records_shown
from webapp.episodes.models import Episode
from webapp.episodes.selectors import strip_of
from webapp.runs import services
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

JUDGE: dict[str, Callable[..., Any]] = {
    "quarantine": services.quarantine_environment,
    "release": services.release_environment,
}


def number_in(query: QueryDict, name: str) -> int | None:
    """A whole number of the query, None when it is not given. Raises BadRequest for anything else."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise BadRequest(f"{name} must be a whole number.")
    return int(text)


def filter_in(query: QueryDict) -> EnvironmentFilter:
    """The filters of the list that stand in an address. Raises BadRequest."""
    return EnvironmentFilter(
        search=query.get("q", "").strip()[:200], skill=query.get("skill", ""), state=query.get("state", ""),
        flag=query.get("flag", "") if query.get("flag", "") in FLAGS else "", rollout=number_in(query, "rollout"),
        document=query.get("document", ""), added=chosen_filters(LIST, query),
    )  # fmt: skip


@require_role(Role.VIEWER)
@require_safe
def environment_list(request: HttpRequest, run_id: int) -> HttpResponse:
    """Environments of a run, newest set first; filters are in the address."""
    run = access_run(run_id=run_id)
    query = request.GET
    chosen = filter_in(query)
    page, listed = selectors.list_environments(run=run, chosen=chosen, cursor=query.get("after", ""))
    menus = [
        FilterMenu(name="skill", label="skill", values=selectors.skills_of(run=run)),
        FilterMenu(name="state", label="state", values=STATES),
        FilterMenu(name="flag", label="signal", values=list(FLAGS), words=FLAGS),
        FilterMenu(
            name="rollout", label="rollout", values=[str(rollout) for rollout in selectors.set_rollouts(run=run)[:60]]
        ),
    ]
    words = dict(FLAGS)
    for one in added_filters(LIST):
        values = dict(one.values(run))
        menus.append(FilterMenu(name=one.name, label=one.label, values=list(values), words=values))
        words |= values
    names = ("skill", "state", "flag", "rollout", "document", *(one.name for one in added_filters(LIST)), "q")
    context = run_context(
        request, run, "environments", page=page, listed=listed, menus=[menu.bound(query) for menu in menus if menu.values],
        chips=chosen_chips(query, names, words), search=chosen.search, added=added_cells(LIST, page.rows),
        can_choose="pools" in settings.SPADEWORK_FEATURES and has_role(request.user, Role.REVIEWER),
    )  # fmt: skip
    return render(request, "environments/list.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def environment_page(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """One environment: code, hint, gates, statistics, outcomes of both arms, lineage, attempts of its slot."""
    run = access_run(run_id=run_id)
    environment = selectors.access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    measured = selectors.with_measures(environments=[environment])[0].measured
    candidate = environment.candidate
    gate_runs = selectors_play.gate_runs_of(environment=environment)
    context = run_context(
        request, run, "environments",
        environment=environment, measured=measured, candidate=candidate, stages=candidate.stages if candidate else [],
        offsets=selectors.statistics_by_offset(environment=environment), strips=_strips(run, environment),
        examples=selectors.relatives(run=run, keys=environment.examples),
        counter_examples=selectors.relatives(run=run, keys=environment.counter_examples),
        children=selectors.children_of(environment=environment), attempts=selectors.attempts_for_slot(environment=environment),
        commands=selectors.commands_on(environment=environment), transitions=environment.transitions.order_by("-id")[:20],
        variant=None, variants=selectors_play.variants_of(environment=environment), may_review=has_role(request.user, Role.REVIEWER),
        gate_runs=gate_runs, is_gating=any(one.state == "waiting" for one in gate_runs),
        measures=sorted(environment.measures.items()), can_judge=run.status not in ("draft", "completed"),
    )  # fmt: skip
    return render(request, "environments/page.html", dict(context))


def _strips(run: Run, environment: Environment) -> list[dict[str, Any]]:
    """Per offset the outcome marks of both arms, each a link to its episode."""
    strips = strip_of(environment=environment)
    offsets = sorted({episode.offset for episodes in strips.values() for episode in episodes})
    return [
        {
            "offset": offset,
            "arms": [
                {"arm": arm, "marks": [_mark(run, episode) for episode in strips[arm] if episode.offset == offset]}
                for arm in ("unhinted", "hinted")
            ],
            "first_pair": next((one.play for one in strips["hinted"] if one.offset == offset), None)
            if offset == 0
            else None,
        }
        for offset in offsets
    ]


def _mark(run: Run, episode: Episode) -> dict[str, Any]:
    return {
        "status": episode.status,
        "url": reverse("runs:episode", args=[run.pk, episode.pk]),
        "label": f"play {episode.play}, {episode.arm}",
    }


@require_role(Role.VIEWER)
@require_safe
def environment_code(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """The program as a download. It is never served as anything a browser would run."""
    environment = selectors.access_environment(
        run=access_run(run_id=run_id), key=key, attempt=number_in(request.GET, "attempt")
    )
    response = HttpResponse(environment.code, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="run-{run_id}-environment-{environment.pk}.py"'
    return response


@require_role(Role.OPERATOR)
@require_POST
def environment_judge(request: HttpRequest, run_id: int, key: str, act: str) -> HttpResponse:
    """Quarantine or release; takes effect when the trainer acknowledges it, and the page says at which rollout."""
    run = access_run(run_id=run_id)
    service = JUDGE.get(act)
    if service is None:
        raise Http404("There is no such act.")
    reason = request.POST.get("reason", "").strip()
    if act == "quarantine" and not reason:
        messages.error(request, "Say why it goes into quarantine: others will want to know.")
    else:
        try:
            service(actor=signed_in_user(request), run_id=run.pk, environment_key=key, reason=reason)
            messages.success(request, f"The trainer was asked to {act} {key}; this page shows its answer.")
        except ActRefused as error:
            messages.error(request, str(error))
    return redirect("runs:environment", run.pk, key)


@require_role(Role.VIEWER)
@require_safe
def candidate_list(request: HttpRequest, run_id: int) -> HttpResponse:
    """Every design attempt, rejected ones first by default (``?verdict=all|accepted|rejected``)."""
    run = access_run(run_id=run_id)
    query = request.GET
    verdict = query.get("verdict", "rejected")
    accepted = {"accepted": True, "rejected": False}.get(verdict)
    page = selectors.list_candidates(
        run=run,
        skill=query.get("skill", ""),
        stage=query.get("stage", ""),
        accepted=accepted,
        cursor=query.get("after", ""),
    )
    stages = selectors.rejection_counts(run=run)
    menus = [
        FilterMenu(name="verdict", label="verdict", values=["rejected", "accepted", "all"]),
        FilterMenu(name="skill", label="skill", values=selectors.skills_of(run=run)),
        FilterMenu(name="stage", label="stage", values=[stage for stage, _ in stages]),
    ]
    context = run_context(
        request, run, "environments", page=page, stages=stages, verdict=verdict,
        menus=[menu.bound(query) for menu in menus if menu.values], chips=chosen_chips(query, ("verdict", "skill", "stage")),
    )  # fmt: skip
    return render(request, "environments/candidates.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def candidate_page(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """One design attempt: verdict of every gate, code, prompt and reply."""
    run = access_run(run_id=run_id)
    candidate = selectors.access_candidate(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    keys = [*candidate.examples, *candidate.counter_examples]
    context = run_context(
        request,
        run,
        "environments",
        candidate=candidate,
        stages=candidate.stages,
        shown=records_shown(run=run, keys=keys),
    )
    return render(request, "environments/candidate.html", dict(context))
