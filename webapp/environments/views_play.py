"""Playing an environment oneself: choose a seed, play in the sandbox, then look at what the agent did with that seed."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import check_role, require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.requests import signed_in_user
from webapp.environments import selectors_play, services
from webapp.environments.beside import turns_of
from webapp.environments.models import Environment, PlaySession, Variant
from webapp.environments.selectors import access_environment
from webapp.environments.views import number_in
from webapp.episodes.models import Episode
from webapp.episodes.rendering import render_turns
from webapp.episodes.selectors import TURNS_A_PAGE, align, read_turns
from webapp.episodes.texts import removal_dates
from webapp.episodes.viewing import view_context
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

EASY_SEEDS = 10_000  # a seed drawn for a person should be easy to say and to type


@require_role(Role.VIEWER)
@require_http_methods(["GET", "HEAD", "POST"])
def play_new(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """Choose a seed; POST begins the play."""
    run = access_run(run_id=run_id)
    environment = access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    variant = _variant(request, environment)
    if request.method == "POST":
        check_role(request, Role.REVIEWER)
        try:
            session = services.start_play(
                actor=signed_in_user(request), environment=environment, seed=_seed(request), variant=variant
            )
            return redirect("runs:play", run.pk, session.pk)
        except ActRefused as error:
            messages.error(request, str(error))
    context = run_context(
        request, run, "environments", environment=environment, variant=variant, drawn=secrets.randbelow(EASY_SEEDS),
        seeds=_seeds(run, environment), may_play=has_role(request.user, Role.REVIEWER),
        sessions=selectors_play.sessions_of(environment=environment, by=signed_in_user(request)),
    )  # fmt: skip
    return render(request, "environments/play_new.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def play(request: HttpRequest, run_id: int, session_id: int) -> HttpResponse:
    """A play and its board."""
    run = access_run(run_id=run_id)
    session = selectors_play.access_session(run=run, session_id=session_id)
    context = run_context(request, run, "environments", **_board(request, session))
    return render(request, "environments/play.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def play_board(request: HttpRequest, run_id: int, session_id: int) -> HttpResponse:
    """The board alone, for live updates."""
    run = access_run(run_id=run_id)
    session = selectors_play.access_session(run=run, session_id=session_id)
    return render(request, "environments/_play_board.html", {"run": run, **_board(request, session)})


@require_role(Role.REVIEWER)
@require_POST
def play_act(request: HttpRequest, run_id: int, session_id: int) -> HttpResponse:
    """An action, another try after our side failed (``do=retry``), or giving up (``do=close``); answers with the board."""
    run = access_run(run_id=run_id)
    session = selectors_play.access_session(run=run, session_id=session_id)
    actor, refused = signed_in_user(request), ""
    try:
        if request.POST.get("do") == "retry":
            services.retry_play(actor=actor, session_id=session.pk)
        elif request.POST.get("do") == "close":
            services.close_play(actor=actor, session_id=session.pk)
        else:
            services.act_in_play(actor=actor, session_id=session.pk, text=request.POST.get("action", ""))
    except ActRefused as error:
        refused = str(error)
    if not request.headers.get("HX-Request"):
        if refused:
            messages.error(request, refused)
        return redirect("runs:play", run.pk, session.pk)
    session = selectors_play.access_session(run=run, session_id=session_id)
    board = {**_board(request, session), "refused": refused}
    return render(request, "environments/_play_board.html", {"run": run, **board})


@require_role(Role.VIEWER)
@require_safe
def play_beside(request: HttpRequest, run_id: int, session_id: int, episode_id: int) -> HttpResponse:
    """A person's play that is over beside the agent's play of the same environment and seed, aligned by turn."""
    run = access_run(run_id=run_id)
    session = selectors_play.access_session(run=run, session_id=session_id)
    plays = _agent_plays(session)
    index = next((at for at, one in enumerate(plays) if one.pk == episode_id), None)
    if index is None:
        raise Http404("The agent has no such play of this seed, or your own play still goes on.")
    episode, shown = plays[index], view_context(request)
    mine, theirs = turns_of(session), read_turns(episode=episode)
    if shown["view"] == "rendered":
        mine, theirs = render_turns(mine, theirs)
    aligned = align(mine, theirs, by_action=True)
    neighbours = [
        reverse("runs:play_beside", args=[run.pk, session.pk, plays[at].pk]) if 0 <= at < len(plays) else ""
        for at in (index - 1, index + 1)
    ]
    context = run_context(
        request, run, "environments", environment=session.environment, session=session, episode=episode, aligned=aligned,
        first_difference=next((row.number for row in aligned if row.first_difference), None), previous=neighbours[0],
        following=neighbours[1], place=index + 1, plays=plays, is_cut=episode.turns > TURNS_A_PAGE,
        removed=removal_dates(episodes=[episode]), **shown,
    )  # fmt: skip
    return render(request, "environments/play_beside.html", dict(context))


def _agent_plays(session: PlaySession) -> list[Episode]:
    """The agent's plays of the seed; none while the person still plays, and none of a program that the person edited."""
    if session.state == PlaySession.State.OPEN or session.variant_id:
        return []
    return selectors_play.agent_plays(environment=session.environment, seed=session.seed)


def _board(request: HttpRequest, session: PlaySession) -> dict[str, Any]:
    """What the board shows: turns so far, whose move it is, and after the end the agent's plays of the seed."""
    is_open = session.state == PlaySession.State.OPEN
    turns = [
        {"number": index + 1, "observation": reply["observation"], "stdout": reply.get("stdout", ""), "reward": reply.get("reward"),
         "action": session.actions[index] if index < len(session.actions) else None}
        for index, reply in enumerate(session.replies)
    ]  # fmt: skip
    return {
        "environment": session.environment, "session": session, "turns": turns, "is_open": is_open,
        "is_mine": session.by_id == request.user.pk and has_role(request.user, Role.REVIEWER),
        "options": session.replies[-1].get("options", []) if is_open and session.replies and not session.is_waiting else [],
        "agent_plays": _agent_plays(session),
    }  # fmt: skip


def _seeds(run: Run, environment: Environment) -> list[dict[str, Any]]:
    """Seeds the agent was given, each with the outcome marks of both arms."""
    seeds = []
    for item in selectors_play.played_seeds(environment=environment):
        marks: dict[str, list[dict[str, Any]]] = {"unhinted": [], "hinted": []}
        for episode in item.episodes:
            label = f"offset {episode.offset}, {episode.arm}"
            address = reverse("runs:episode", args=[run.pk, episode.pk])
            marks[episode.arm].append({"status": episode.status, "url": address, "label": label})
        arms = [{"arm": arm, "marks": found} for arm, found in marks.items() if found]
        seeds.append({"seed": item.seed, "arms": arms})
    return seeds


def _seed(request: HttpRequest) -> int:
    text = request.POST.get("seed", "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise ActRefused("A seed is a whole number from 0 to 2^63 − 1.")
    return int(text)


def _variant(request: HttpRequest, environment: Environment) -> Variant | None:
    number = number_in(request.GET, "variant")
    return selectors_play.access_variant(environment=environment, number=number) if number is not None else None
