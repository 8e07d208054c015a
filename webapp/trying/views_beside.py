"""A play of the tried checkpoint beside the run's own play of the same environment and seed."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.environments.selectors_play import agent_plays
from webapp.episodes.rendering import render_turns
from webapp.episodes.selectors import TURNS_A_PAGE, align, read_turns
from webapp.episodes.texts import removal_dates
from webapp.episodes.viewing import view_context
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run
from webapp.trying import selectors


@require_role(Role.OPERATOR)
@require_safe
def trial_beside(request: HttpRequest, run_id: int, trial_id: int, exchange_id: int, episode_id: int) -> HttpResponse:
    """Both, aligned by turn, the first difference marked."""
    run = access_run(run_id=run_id)
    trial = selectors.access_trial(run=run, trial_id=trial_id, person=signed_in_user(request))
    play = selectors.access_play(trial=trial, exchange_id=exchange_id)
    if play is None or play.environment is None or play.seed is None or play.is_open:
        raise Http404("This play is not over.")
    plays = agent_plays(environment=play.environment, seed=play.seed)
    index = next((at for at, one in enumerate(plays) if one.pk == episode_id), None)
    if index is None:
        raise Http404("The run's agent has no such play of this seed.")
    episode, shown = plays[index], view_context(request)
    tried, stored = selectors.turns_of(play)[:TURNS_A_PAGE], read_turns(episode=episode)
    if shown["view"] == "rendered":
        tried, stored = render_turns(tried, stored)
    aligned = align(tried, stored)
    neighbours = [
        reverse("runs:trial_beside", args=[run.pk, trial.pk, play.pk, plays[at].pk]) if 0 <= at < len(plays) else ""
        for at in (index - 1, index + 1)
    ]
    context = run_context(
        request, run, "checkpoints", trial=trial, play=play, environment=play.environment, episode=episode, aligned=aligned,
        first_difference=next((row.number for row in aligned if row.first_difference), None), previous=neighbours[0],
        following=neighbours[1], place=index + 1, plays=plays, is_cut=episode.turns > TURNS_A_PAGE,
        removed=removal_dates(episodes=[episode]), **shown,
    )  # fmt: skip
    return render(request, "trying/beside.html", dict(context))
