"""Trying a checkpoint: load it, write to it, let it play. A session is its owner's alone; admins see everybody's."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.request import QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.requests import signed_in_user
from webapp.environments.selectors_play import agent_plays
from webapp.environments.views import number_in
from webapp.episodes.selectors import HINT_MARK
from webapp.runs.checkpoint_files import resolve_name, stored_checkpoints
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run
from webapp.trying import selectors, services, sources
from webapp.trying.files import why_not
from webapp.trying.models import OPEN, Exchange, Trial

EASY_SEEDS = 10_000
MODES = (("chat", "Chat"), ("play", "Play"))
REPLY_TOKENS = 256  # offered for a message when the model's context leaves more


@require_role(Role.OPERATOR)
@require_http_methods(["GET", "HEAD", "POST"])
def try_new(request: HttpRequest, run_id: int, name: str) -> HttpResponse:
    """What trying this checkpoint means; POST has it loaded. Says what to do when it cannot be."""
    run = access_run(run_id=run_id)
    person, name = signed_in_user(request), resolve_name(run=run, name=name)
    if request.method == "POST":
        try:
            trial = services.start_trial(actor=person, run=run, checkpoint=name)
            return redirect("runs:trial", run.pk, trial.pk)
        except ActRefused as error:
            messages.error(request, str(error))
    problem = why_not(run=run, name=name)
    others = (
        [] if problem is None else [one for one in stored_checkpoints(run=run) if why_not(run=run, name=one) is None]
    )
    context = run_context(
        request, run, "checkpoints", name=name, problem=problem, others=others, is_compact=_is_compact(run),
        trials=selectors.trials_of(run=run, checkpoint=name, person=person),
    )  # fmt: skip
    status = 200 if problem is None else 404 if problem.kind == "gone" else 409
    return render(request, "trying/new.html", dict(context), status=status)


@require_role(Role.OPERATOR)
@require_safe
def trial(request: HttpRequest, run_id: int, trial_id: int) -> HttpResponse:
    """A session: the board of one mode, and its state."""
    run = access_run(run_id=run_id)
    one = selectors.access_trial(run=run, trial_id=trial_id, person=signed_in_user(request))
    board = _board(request, one)
    tabs = [
        {
            "label": label,
            "url": f"{reverse('runs:trial', args=[run.pk, one.pk])}?mode={mode}",
            "active": mode == board["mode"],
        }
        for mode, label in MODES
    ]
    return render(request, "trying/page.html", dict(run_context(request, run, "checkpoints", modes=tabs, **board)))


@require_role(Role.OPERATOR)
@require_safe
def trial_board(request: HttpRequest, run_id: int, trial_id: int) -> HttpResponse:
    """The board alone, while something is awaited."""
    run = access_run(run_id=run_id)
    one = selectors.access_trial(run=run, trial_id=trial_id, person=signed_in_user(request))
    return render(request, "trying/_board.html", {"run": run, **_board(request, one)})


@require_role(Role.OPERATOR)
@require_safe
def trial_state(request: HttpRequest, run_id: int, trial_id: int) -> HttpResponse:
    """The state alone: a page that is merely open learns that its session has ended."""
    run = access_run(run_id=run_id)
    one = selectors.access_trial(run=run, trial_id=trial_id, person=signed_in_user(request))
    return render(request, "trying/_state.html", {"run": run, "trial": one, "is_open": one.state in OPEN})


@require_role(Role.OPERATOR)
@require_POST
def trial_act(request: HttpRequest, run_id: int, trial_id: int) -> HttpResponse:
    """``do``: chat, fresh (another conversation), play or end; answers with the board."""
    run = access_run(run_id=run_id)
    person = signed_in_user(request)
    one = selectors.access_trial(run=run, trial_id=trial_id, person=person)
    mode = "play" if request.POST.get("mode") == "play" else "chat"
    refused = ""
    try:
        _do(request, run, one)
    except ActRefused as error:
        refused = str(error)
    if not request.headers.get("HX-Request"):
        if refused:
            messages.error(request, refused)
        return redirect(f"{reverse('runs:trial', args=[run.pk, one.pk])}?mode={mode}")
    one = selectors.access_trial(run=run, trial_id=trial_id, person=person)
    return render(request, "trying/_board.html", {"run": run, **_board(request, one), "refused": refused})


def _do(request: HttpRequest, run: Run, one: Trial) -> None:
    """One act of the person. Raises ActRefused."""
    person, data = signed_in_user(request), request.POST
    act = data.get("do", "chat")
    if act == "end":
        services.end_trial(actor=person, trial_id=one.pk, as_admin=has_role(person, Role.ADMIN))
    elif act == "fresh":
        services.begin_conversation(actor=person, trial_id=one.pk)
    elif act == "play":
        environment = sources.chosen_environment(run=run, value=data.get("environment", ""))
        services.play(
            actor=person,
            trial_id=one.pk,
            environment=environment,
            seed=_seed(data),
            arm=data.get("arm", "unhinted"),
        )
    else:
        services.say(
            actor=person, trial_id=one.pk, text=data.get("text", ""), system=data.get("system", ""),
            temperature=_number(data, "temperature"), reply_tokens=_whole(data, "reply_tokens"),
        )  # fmt: skip


def _board(request: HttpRequest, one: Trial) -> dict[str, Any]:
    """What the board shows of one mode; ``is_busy`` while it has to be looked at again."""
    query = request.POST if request.method == "POST" else request.GET
    mode = "play" if query.get("mode") == "play" else "chat"
    exchanges = selectors.exchanges_of(trial=one, kind=mode)
    is_open = one.state in OPEN
    owes = one.exchanges.filter(state__in=(Exchange.State.WAITING, Exchange.State.RUNNING)).exists()
    longest = int(one.facts.get("reply_tokens") or 0)
    said = exchanges if mode == "chat" else []
    offered = (said[-1].reply_tokens if said else None) or min(REPLY_TOKENS, longest or REPLY_TOKENS)
    board: dict[str, Any] = {
        "trial": one, "mode": mode, "exchanges": exchanges, "is_open": is_open, "is_ready": one.state == Trial.State.READY,
        "is_busy": is_open and (owes or one.state != Trial.State.READY), "is_mine": one.by_id == request.user.pk,
        "is_compact": _is_compact(one.run), "longest": longest, "offered": offered, "first": said[0] if said else None,
        "temperature": (said[-1].temperature if said else None) or one.facts.get("temperature") or 1.0,
    }  # fmt: skip
    return board | (_plays(request, query, one) if mode == "play" else {})


def _plays(request: HttpRequest, query: QueryDict, one: Trial) -> dict[str, Any]:
    shown = selectors.access_play(trial=one, exchange_id=number_in(request.GET, "play"))
    played = shown.environment if shown else None
    before = str(played.run_id) if played and played.run_id != one.run_id else ""
    found: dict[str, Any] = {
        "source": sources.source_of(run=one.run, text=query.get("from", before)), "suggested": sources.suggestions(run=one.run),
        "shown": shown, "drawn": secrets.randbelow(EASY_SEEDS), "turns": [],
        "wished": request.GET.get("environment", "") or (sources.value_of(run=one.run, environment=played) if played else ""),
    }  # fmt: skip
    if shown is None or shown.environment is None or shown.seed is None:
        return found
    seen, _, hint = (
        shown.observation.partition(HINT_MARK)
        if shown.arm == "hinted" and not shown.turns
        else (shown.observation, "", "")
    )
    found |= {"turns": selectors.turns_of(shown), "seen": seen, "seen_hint": hint}
    if not shown.is_open:
        found["agent_plays"] = agent_plays(environment=shown.environment, seed=shown.seed)
    return found


def _is_compact(run: Run) -> bool:
    """Whether the run talks to its model in the prompts of a model that knows nothing else."""
    return bool(run.config.get("prompts") == "compact")


def _whole(data: QueryDict, name: str) -> int | None:
    text = data.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise ActRefused(f"{'A seed' if name == 'seed' else 'New tokens'}: a whole number, please.")
    return int(text)


def _seed(data: QueryDict) -> int:
    seed = _whole(data, "seed")
    if seed is None:
        raise ActRefused("A seed is a whole number; type one.")
    return seed


def _number(data: QueryDict, name: str) -> float | None:
    text = data.get(name, "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise ActRefused(f"The temperature is a number, not {text[:20]!r}.") from None
