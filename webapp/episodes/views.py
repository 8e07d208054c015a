"""Pages about episodes of one run: list, transcript, raw text, and the pair of arms side by side."""

from __future__ import annotations

import json
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.environments.selectors import access_environment
from webapp.environments.views import number_in
from webapp.episodes import selectors
from webapp.episodes.finding import HITS_SHOWN, find_in_transcript
from webapp.episodes.models import Episode
from webapp.episodes.rendering import PAGE_CHARACTERS, render_text, render_turns
from webapp.episodes.selectors import STATUSES, TURNS_A_PAGE, EpisodeFilter, Pair, Text, TurnView
from webapp.episodes.texts import removal_dates
from webapp.episodes.viewing import view_context
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

FIND_CHARS = 200
_WORDS = {status: status.replace("_", " ") for status in STATUSES} | {"fault": "any fault"}


@require_role(Role.VIEWER)
@require_safe
def episode_list(request: HttpRequest, run_id: int) -> HttpResponse:
    """Episodes of a run, newest first; filters are in the address."""
    run = access_run(run_id=run_id)
    query = request.GET
    chosen = EpisodeFilter(
        arm=query.get("arm", ""), status=query.get("status", ""), environment=query.get("environment", ""),
        rollout=number_in(query, "rollout"),
    )  # fmt: skip
    page = selectors.list_episodes(run=run, chosen=chosen, cursor=query.get("after", ""))
    menus = [
        FilterMenu(name="arm", label="arm", values=["unhinted", "hinted"]),
        FilterMenu(name="status", label="status", values=[*STATUSES, "fault"], words=_WORDS),
    ]
    context = run_context(
        request, run, "episodes", page=page, menus=[menu.bound(query) for menu in menus],
        chips=chosen_chips(query, ("arm", "status", "environment", "rollout"), _WORDS),
    )  # fmt: skip
    return render(request, "episodes/list.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def episode_page(request: HttpRequest, run_id: int, episode_id: int) -> HttpResponse:
    """One transcript; its first turns (with ``?turn=`` those around that one), more on request; ``?find=`` lists where a text occurs."""
    run = access_run(run_id=run_id)
    episode = selectors.access_episode(run=run, episode_id=episode_id)
    wanted = number_in(request.GET, "turn") or 1
    start = max(0, min(wanted, episode.turns) - 1) // TURNS_A_PAGE * TURNS_A_PAGE
    turns = selectors.read_turns(episode=episode, start=start)
    shown = view_context(request)
    turns, final = _as_shown(turns, selectors.final_observation(episode=episode), shown["view"])
    following = start + len(turns)
    more = episode.turns > following
    pair = _pair_address(run, episode)
    find = request.GET.get("find", "").strip()[:FIND_CHARS]
    context = run_context(
        request, run, "episodes", episode=episode, turns=turns, next_turn=following if more else None, pair_url=pair,
        final=None if more else final, earlier=max(1, start - TURNS_A_PAGE + 1) if start else None,
        find=find, hits=find_in_transcript(episode=episode, text=find), hits_limit=HITS_SHOWN,
        is_partly_raw=shown["view"] == "rendered" and any(turn.reply.html is None for turn in turns),
        rendered_limit=PAGE_CHARACTERS, text_removed_at=removal_dates(episodes=[episode]).get(episode.pk),
        **shown,
    )  # fmt: skip
    return render(request, "episodes/page.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def episode_turns(request: HttpRequest, run_id: int, episode_id: int) -> HttpResponse:
    """The next turns of a long transcript, as a fragment."""
    run = access_run(run_id=run_id)
    episode = selectors.access_episode(run=run, episode_id=episode_id)
    start = number_in(request.GET, "from") or 0
    turns = selectors.read_turns(episode=episode, start=start)
    shown = view_context(request)
    turns, final = _as_shown(turns, selectors.final_observation(episode=episode), shown["view"])
    following = start + len(turns)
    is_end = len(turns) < TURNS_A_PAGE or following >= episode.turns
    context = {
        "run": run,
        "episode": episode,
        "turns": turns,
        "next_turn": None if is_end else following,
        "final": final if is_end else None,
        **shown,
    }
    return render(request, "episodes/_turns.html", context)


@require_role(Role.VIEWER)
@require_safe
def episode_raw(request: HttpRequest, run_id: int, episode_id: int) -> HttpResponse:
    """The transcript as JSON, or with ``?turn=&part=`` one whole text; always a download, never a page."""
    episode = selectors.access_episode(run=access_run(run_id=run_id), episode_id=episode_id)
    turn = number_in(request.GET, "turn")
    if turn is not None:
        part = request.GET.get("part", "")
        text = selectors.read_text(episode=episode, turn=turn, part=part)
        name, kind = f"episode-{episode.pk}-turn-{turn + 1}-{part}.txt", "text/plain; charset=utf-8"
    else:
        transcript = selectors.whole_transcript(episode=episode)
        body = {
            "episode": episode.key, "attempt": episode.attempt, "seed": str(episode.seed), "arm": episode.arm, "status": episode.status,
            "reward": episode.reward, "fault": episode.fault, "turns": transcript.turns, "final_observation": transcript.final_observation,
            "text_removed_at": transcript.removed_at.isoformat() if transcript.removed_at else None,
        }  # fmt: skip
        text, name, kind = (
            json.dumps(body, ensure_ascii=True, indent=1),
            f"episode-{episode.pk}.json",
            "application/json",
        )
    response = HttpResponse(text.encode("utf-8", "backslashreplace"), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_role(Role.VIEWER)
@require_safe
def pair_page(request: HttpRequest, run_id: int, key: str, play: int) -> HttpResponse:
    """The two arms of one seed side by side, aligned by turn."""
    run = access_run(run_id=run_id)
    environment = access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    pairs = selectors.pairs_of(environment=environment)
    index = next((at for at, pair in enumerate(pairs) if pair.play == play), None)
    if index is None:
        raise Http404(f"Environment {key} has no pair {play}.")
    pair = pairs[index]
    turns = {
        arm: selectors.read_turns(episode=episode) if episode else []
        for arm, episode in (("unhinted", pair.unhinted), ("hinted", pair.hinted))
    }
    shown = view_context(request)
    if shown["view"] == "rendered":
        turns["unhinted"], turns["hinted"] = render_turns(turns["unhinted"], turns["hinted"])
    aligned = selectors.align(turns["unhinted"], turns["hinted"])
    first = next((turn.number for turn in aligned if turn.first_difference), None)
    context = run_context(
        request, run, "environments", environment=environment, pair=pair, pairs=pairs, aligned=aligned, first_difference=first,
        strips=[{"arm": arm, "marks": _marks(run, key, pairs, arm, play)} for arm in ("unhinted", "hinted")],
        previous=_address(run, key, pairs, index - 1), following=_address(run, key, pairs, index + 1), place=index + 1,
        removed=removal_dates(episodes=[pair.unhinted, pair.hinted]),
        is_cut=any(episode is not None and episode.turns > TURNS_A_PAGE for episode in (pair.unhinted, pair.hinted)),
        **shown,
    )  # fmt: skip
    return render(request, "episodes/pair.html", dict(context))


def _as_shown(turns: list[TurnView], final: Text | None, view: str) -> tuple[list[TurnView], Text | None]:
    """Turns and what the environment said last, rendered when that is the view."""
    if view != "rendered":
        return turns, final
    return render_turns(turns)[0], render_text(final) if final else None


def _marks(run: Run, key: str, pairs: list[Pair], arm: str, play: int) -> list[dict[str, Any]]:
    marks = []
    for pair in pairs:
        episode = pair.unhinted if arm == "unhinted" else pair.hinted
        if episode is not None:
            here = " (shown)" if pair.play == play else ""
            marks.append(
                {
                    "status": episode.status,
                    "url": reverse("runs:pair", args=[run.pk, key, pair.play]),
                    "label": f"pair {pair.play}{here}",
                }
            )
    return marks


def _address(run: Run, key: str, pairs: list[Pair], index: int) -> str:
    return reverse("runs:pair", args=[run.pk, key, pairs[index].play]) if 0 <= index < len(pairs) else ""


def _pair_address(run: Run, episode: Episode) -> str:
    """The pair view of an episode at offset 0, "" when it has no partner."""
    if episode.offset != 0 or episode.superseded:
        return ""
    other = Episode.Arm.HINTED if episode.arm == Episode.Arm.UNHINTED else Episode.Arm.UNHINTED
    has_partner = Episode.objects.filter(
        environment=episode.environment_id, seed=episode.seed, arm=other, offset=0
    ).exists()
    return reverse("runs:pair", args=[run.pk, episode.environment_key, episode.play]) if has_partner else ""
