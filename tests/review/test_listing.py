"""Flags in the list of environments and in the pair view."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from webapp.review import services
from webapp.review.models import Flag
from webapp.review.services import Pointer, Wish

pytestmark = pytest.mark.django_db


def listed(client: Client, run: Any, query: str = "") -> tuple[set[str], str]:
    """Keys in the list, and its HTML."""
    html = client.get(f"/runs/{run.pk}/environments/{query}").content.decode()
    return set(re.findall(r'row-link" href="/runs/\d+/environments/([^/]+)/', html)), html


def row_of(html: str, key: str) -> str:
    return next(row for row in html.split("<tr")[1:] if f"/environments/{key}/" in row)


@pytest.fixture
def flagged(run: Any, environment: Any, person: Any, kind: Any) -> Any:
    """Two standing flags of two kinds on one environment, with a quarantine asked for; a withdrawn one on another."""
    common = {"environment_id": environment.pk}
    services.place_flag(actor=person("reviewer"), kind_id=kind("answer-leaked").pk, severity=1, **common)
    services.place_flag(
        actor=person("operator"), kind_id=kind("shortcut").pk, severity=3, wish=Wish(act="quarantine"), **common
    )
    other = run.environments.filter(superseded=False).exclude(pk=environment.pk).first()
    flag = services.place_flag(actor=person("reviewer"), kind_id=kind("shortcut").pk, environment_id=other.pk)
    services.withdraw_flag(actor=person("reviewer"), flag_id=flag.pk)
    return environment


def test_a_row_says_how_many_flags_stand_how_bad_the_worst_is_and_what_is_in_force(
    flagged: Any, run: Any, viewer: Client, trainer_says: Any
) -> None:
    _, html = listed(viewer, run)
    row = row_of(html, flagged.key)
    assert re.search(r">2 <span class=\"chip bad\">", row)
    assert "critical" in row
    assert "quarantine: asked" in row
    assert html.count("critical") == 1
    trainer_says(run, Flag.objects.get(kind__key="shortcut", withdrawn_at=None).effect.command, rollout=5)
    assert "quarantine: in effect" in row_of(listed(viewer, run)[1], flagged.key)


def test_the_list_narrows_to_what_is_flagged_and_by_kind(flagged: Any, run: Any, viewer: Client) -> None:
    everything, html = listed(viewer, run)
    assert len(everything) > 2
    assert "flagged=any" in html
    assert listed(viewer, run, "?flagged=any")[0] == {flagged.key}
    assert listed(viewer, run, "?flagged=shortcut")[0] == {flagged.key}
    assert listed(viewer, run, "?flagged=hung")[0] == set()
    chips = listed(viewer, run, "?flagged=any&skill=nothing")[1]
    assert "No environment matches" in chips


def test_pools_take_what_the_filter_lets_through(flagged: Any, run: Any) -> None:
    from webapp.environments.selectors import EnvironmentFilter, matching_ids

    assert matching_ids(run=run, chosen=EnvironmentFilter(added=(("flagged", "any"),))) == [flagged.pk]


def test_flags_cost_the_list_the_same_for_any_number(
    flagged: Any, run: Any, viewer: Client, person: Any, kind: Any
) -> None:
    with CaptureQueriesContext(
        connection,
    ) as few:
        listed(viewer, run)
    for environment in run.environments.filter(superseded=False):
        services.place_flag(actor=person("reviewer"), kind_id=kind("trivial").pk, environment_id=environment.pk)
    with CaptureQueriesContext(connection) as many:
        listed(viewer, run)
    assert len(many) == len(few)


def test_the_pair_view_shows_flags_of_the_environment_and_of_both_plays(
    flagged: Any, run: Any, viewer: Client, person: Any, kind: Any
) -> None:
    plays = run.episodes.filter(environment=flagged, offset=0, arm="hinted").order_by("play")
    here, elsewhere = plays[0], plays[1]
    for episode, comment in ((here, "wins without a probe"), (elsewhere, "of another pair")):
        services.place_flag(
            actor=person("reviewer"), environment_id=flagged.pk, kind_id=kind("shortcut").pk, comment=comment,
            subject="turn", pointer=Pointer(episode_id=episode.pk, turn=0),
        )  # fmt: skip
    html = viewer.get(f"/runs/{run.pk}/pairs/{flagged.key}/{here.play}/").content.decode()
    section = html[html.index('class="section flags pair-flags"') :].split("</section>")[0]
    assert "wins without a probe" in section
    assert "of another pair" not in section
    assert f"/runs/{run.pk}/episodes/{here.pk}/#t1" in section
    assert "quarantine" in section
    quiet = run.environments.filter(superseded=False, flags=None).first()
    play = run.episodes.filter(environment=quiet, offset=0).first().play
    assert "pair-flags" not in viewer.get(f"/runs/{run.pk}/pairs/{quiet.key}/{play}/").content.decode()
