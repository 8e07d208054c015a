"""What flags show on the pages of environments and episodes (see core/panels.py)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from webapp.accounts.roles import Role, has_role
from webapp.core.graph import Graph, Node
from webapp.core.requests import signed_in_user
from webapp.environments.models import Environment
from webapp.episodes.models import Episode
from webapp.episodes.selectors import Pair
from webapp.review.effects import is_read_by_a_trainer
from webapp.review.models import Flag
from webapp.review.selectors import flags_of_environment, flags_of_episode, offered_kinds
from webapp.review.selectors_queues import queues_of_run
from webapp.review.services import EFFECT_ROLE, may_reach_trainer

LINEAGE_FLAGS = 8


def environment_button(request: HttpRequest, environment: Environment) -> SafeString:
    """The button that opens the dialog, for those who may flag."""
    return _button(request)


def environment_flags(request: HttpRequest, environment: Environment) -> SafeString:
    """The environment's flags, and the dialog to place one."""
    subjects = [Flag.Subject.ENVIRONMENT, *([Flag.Subject.HINT] if environment.hint_text else []), Flag.Subject.LINES]
    context = {
        **list_context(request, environment, None),
        **_dialog(request, environment, subjects),
        "queues": queues_of_run(run_id=environment.run_id),
    }
    return render_to_string("review/_panel.html", context, request=request)


def environment_lineage(request: HttpRequest, environment: Environment) -> SafeString:
    """The environment's flags as a step of its life: kind, severity, who, and whether it stands."""
    shown = flags_of_environment(environment=environment, reader=signed_in_user(request))
    return render_to_string("review/_lineage.html", {"shown": shown}, request=request)


def lineage_nodes(request: HttpRequest, graph: Graph, environment: Environment, subject: str) -> None:
    """Standing flags as nodes after the environment, LINEAGE_FLAGS of them."""
    shown = flags_of_environment(environment=environment, reader=signed_in_user(request))
    standing = [item for item in shown if item.flag.withdrawn_at is None]
    for item in standing[:LINEAGE_FLAGS]:
        flag = item.flag
        detail = f"{flag.get_severity_display()}, {item.place.text}" + (f": {item.state.word}" if item.state else "")
        tone = "bad" if flag.severity == Flag.Severity.CRITICAL else "warn"
        node = Node(
            id=f"flag-{flag.pk}", kind="flag", title=flag.kind.label, detail=detail, url=item.place.url, tone=tone
        )
        graph.add(node, subject)
    if len(standing) > LINEAGE_FLAGS:
        graph.add(Node(id="flags-more", kind="flags", title=f"{len(standing) - LINEAGE_FLAGS} more"), subject)


def episode_button(request: HttpRequest, episode: Episode) -> SafeString:
    """The same button on an episode whose environment is known."""
    return _button(request) if episode.environment_id is not None else SafeString("")


def episode_flags(request: HttpRequest, episode: Episode) -> SafeString:
    """The episode's flags, and the dialog to place one."""
    environment = episode.environment
    if environment is None:
        return SafeString("")
    subjects = [Flag.Subject.EPISODE, *([Flag.Subject.TURN] if episode.turns else []), Flag.Subject.ENVIRONMENT]
    context = {**list_context(request, environment, episode), **_dialog(request, environment, subjects)}
    return render_to_string("review/_panel.html", context, request=request)


def pair_flags(request: HttpRequest, pair: Pair) -> SafeString:
    """Flags of the environment and of both plays of a pair, withdrawn ones left out; nothing where there are none."""
    episodes = [one for one in (pair.unhinted, pair.hinted) if one is not None]
    environment = next((one.environment for one in episodes if one.environment is not None), None)
    if environment is None:
        return SafeString("")
    shown = [
        item
        for item in flags_of_environment(environment=environment, reader=signed_in_user(request))
        if item.flag.withdrawn_at is None and item.flag.episode_id in (None, *(one.pk for one in episodes))
    ]
    return render_to_string("review/_pair_flags.html", {"shown": shown}, request=request) if shown else SafeString("")


def list_context(request: HttpRequest, environment: Environment, episode: Episode | None) -> dict[str, Any]:
    """Context of the list of flags alone, which live updates fetch again."""
    reader = signed_in_user(request)
    if episode is None:
        shown = flags_of_environment(environment=environment, reader=reader)
    else:
        shown = flags_of_episode(episode=episode, reader=reader)
    return {"environment": environment, "episode": episode, "shown": shown}


def _button(request: HttpRequest) -> SafeString:
    if not has_role(request.user, Role.REVIEWER):
        return SafeString("")
    return render_to_string("review/_button.html", request=request)


def _dialog(request: HttpRequest, environment: Environment, subjects: list[Flag.Subject]) -> dict[str, Any]:
    return {
        "may_flag": has_role(request.user, Role.REVIEWER),
        "may_reach": may_reach_trainer(signed_in_user(request)),
        "effect_role": EFFECT_ROLE.value,
        "is_read": is_read_by_a_trainer(environment),
        "subjects": subjects,
        "kinds": offered_kinds(),
        "severities": Flag.Severity.choices,
        "default_severity": Flag.Severity.MAJOR.value,
        "wishes": Flag.WISHES,
    }
