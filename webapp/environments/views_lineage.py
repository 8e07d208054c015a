"""Lineage of an environment: sources, attempts, gates, hint, episodes, regret, reward, memory, children; and code against a parent."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.environments import selectors, selectors_lineage, selectors_play
from webapp.environments.lineage_graph import Life, lineage_graph
from webapp.environments.views import number_in
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run


@require_role(Role.VIEWER)
@require_safe
def lineage(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """The life of one environment from its document to its children."""
    run = access_run(run_id=run_id)
    environment = selectors.access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    attempts = selectors.attempts_for_slot(environment=environment)
    measured = selectors.with_measures(environments=[environment])[0].measured
    stages = environment.candidate.stages if environment.candidate else []
    ancestors = selectors_lineage.ancestors_of(environment=environment)
    descendants = selectors_lineage.descendants_of(environment=environment)
    memory = selectors_lineage.memory_of(environment=environment)
    life = Life(
        environment=environment, attempts=attempts, stages=stages, measured=measured, memory=memory, ancestors=ancestors,
        descendants=descendants,
    )  # fmt: skip
    context = run_context(
        request, run, "environments", environment=environment, attempts=attempts,
        rejected=sum(not one.accepted for one in attempts), measured=measured, stages=stages, ancestors=ancestors,
        descendants=descendants, graph=lineage_graph(request=request, life=life).as_json(), memory=memory,
        rejected_users=selectors_lineage.rejected_users_of(environment=environment),
        reward=selectors_lineage.reward_of(environment=environment),
        offsets=selectors.statistics_by_offset(environment=environment), variants=selectors_play.variants_of(environment=environment),
        commands=selectors.commands_on(environment=environment), transitions=environment.transitions.order_by("id")[:20],
    )  # fmt: skip
    return render(request, "environments/lineage.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def diff(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """The program against that of another environment of the run (``?to=``)."""
    run = access_run(run_id=run_id)
    environment = selectors.access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    other = selectors.access_environment(run=run, key=request.GET.get("to", ""))
    lines = selectors_play.diff_lines(old=other.code, new=environment.code)
    added, removed = selectors_play.changed_counts(lines)
    context = run_context(
        request, run, "environments", environment=environment, other=other, diff=lines, added=added, removed=removed,
        relatives=selectors.relatives(run=run, keys=[*environment.examples, *environment.counter_examples]),
    )  # fmt: skip
    return render(request, "environments/diff.html", dict(context))
