"""Reading closer: the tokens of one turn, and any two episodes side by side."""

from __future__ import annotations

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.environments.views import number_in
from webapp.episodes import selectors
from webapp.episodes.models import Episode
from webapp.episodes.rendering import render_turns
from webapp.episodes.selectors import TURNS_A_PAGE
from webapp.episodes.texts import removal_dates
from webapp.episodes.tokens import Token, TokensMissing, read_turn_tokens
from webapp.episodes.viewing import view_context
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

#: Lowest log-prob of each shade: 0.9, 0.5, 0.1 and 0.01 as probabilities.
_SHADES = (-0.1054, -0.6931, -2.3026, -4.6052)


@require_role(Role.VIEWER)
@require_safe
def episode_tokens(request: HttpRequest, run_id: int, episode_id: int) -> HttpResponse:
    """Sampled tokens of one turn (``?turn=``, from 0) with their log-probs, as a fragment."""
    episode = selectors.access_episode(run=access_run(run_id=run_id), episode_id=episode_id)
    turn = number_in(request.GET, "turn")
    if turn is None:
        raise BadRequest("Say which turn.")
    try:
        found = read_turn_tokens(episode=episode, turn=turn)
    except TokensMissing as error:
        return render(request, "episodes/_tokens.html", {"missing": str(error)})
    shades = [(token, _shade(token)) for token in found.tokens]
    return render(request, "episodes/_tokens.html", {"found": found, "tokens": shades})


def _shade(token: Token) -> int:
    """0 for what the policy was sure of, up to 4 for what it hardly expected."""
    return sum(token.logprob < edge for edge in _SHADES)


@require_role(Role.VIEWER)
@require_safe
def beside(request: HttpRequest, run_id: int) -> HttpResponse:
    """Any two episodes of the run, aligned by turn: ``?left=`` and ``?right=`` are ids or keys."""
    run = access_run(run_id=run_id)
    left, right = (_named(run, request.GET.get(side, "").strip()) for side in ("left", "right"))
    shown = view_context(request)
    sides = [selectors.read_turns(episode=left), selectors.read_turns(episode=right)]
    if shown["view"] == "rendered":
        sides = render_turns(*sides)
    aligned = selectors.align(*sides)
    context = run_context(
        request, run, "episodes", left=left, right=right, aligned=aligned,
        first_difference=next((row.number for row in aligned if row.first_difference), None),
        same_seed=left.seed == right.seed and left.environment_key == right.environment_key,
        removed=removal_dates(episodes=[left, right]), is_cut=max(left.turns, right.turns) > TURNS_A_PAGE, **shown,
    )  # fmt: skip
    return render(request, "episodes/beside.html", dict(context))


def _named(run: Run, name: str) -> Episode:
    """The episode of that id or key; of several with the same key the one that holds. Raises Http404."""
    if name.isascii() and name.isdecimal() and len(name) < 19:
        return selectors.access_episode(run=run, episode_id=int(name))
    found = (
        Episode.objects.filter(run=run, key=name)
        .order_by("superseded", "-attempt")
        .values_list("pk", flat=True)
        .first()
    )
    return selectors.access_episode(run=run, episode_id=found or 0)
