"""A person's play beside the agent's play of the same seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.pages.test_environments_and_episodes import transcript_of


@pytest.fixture
def played(run: Any, as_role: Callable[[str], Client]) -> Any:
    """A play that is over: two actions on a seed the agent was given; the second is where the two part ways."""
    from webapp.accounts.models import User
    from webapp.environments.models import PlaySession

    as_role("reviewer")
    environment = run.environments.filter(superseded=False).first()
    episode = run.episodes.filter(environment=environment, arm="hinted", offset=0).first()
    transcript_of(
        episode,
        [
            {"observation": "Go?\n\nHINT: left", "reply": "I think. \\boxed{left}", "action": "\\boxed{left}"},
            {"observation": "And now?", "reply": "\\boxed{up}", "action": "\\boxed{up}"},
        ],
    )
    return PlaySession.objects.create(
        environment=environment, seed=episode.seed, max_turns=8, by=User.objects.get(username="reviewer-person"), state="over",
        status="won", reward=1.0, actions=["\\boxed{left}", "\\boxed{down}"],
        replies=[
            {"observation": "Go?"}, {"observation": "And now?", "reward": 0.0},
            {"observation": "Found <b>it</b>.", "reward": 1.0, "terminated": True},
        ],
    )  # fmt: skip


def address(session: Any, episode: Any) -> str:
    return f"/runs/{episode.run_id}/play/{session.pk}/beside/{episode.pk}/"


def agents(run: Any, session: Any, arm: str = "hinted") -> Any:
    return run.episodes.filter(environment=session.environment, seed=session.seed, arm=arm).first()


def test_the_two_are_aligned_and_part_ways_where_they_do_something_else(run: Any, played: Any, viewer: Client) -> None:
    episode = agents(run, played)
    page = viewer.get(address(played, episode))
    aligned = page.context["aligned"]
    assert [row.first_difference for row in aligned] == ["", "action"]  # what is said around an action is no difference
    assert page.context["first_difference"] == 1
    html = page.content.decode()
    assert len(re.findall('id="difference"', html)) == 1
    assert "reviewer-person" in html
    assert "HINT" in html
    assert (aligned[0].unhinted.reward, aligned[1].unhinted.reward, aligned[1].unhinted.terminated) == (0.0, 1.0, True)


def test_keys_lead_through_all_plays_of_the_seed(run: Any, played: Any, viewer: Client) -> None:
    board = viewer.get(f"/runs/{run.pk}/play/{played.pk}/").content.decode()
    links = re.findall(rf'href="(/runs/{run.pk}/play/{played.pk}/beside/\d+/)"', board)
    assert len(links) == run.episodes.filter(environment=played.environment, seed=played.seed).count() >= 2
    first = viewer.get(links[0]).content.decode()
    assert f'href="{links[1]}" data-key="j"' in first


def test_nothing_of_the_agents_play_is_shown_while_the_person_plays(run: Any, played: Any, viewer: Client) -> None:
    episode = agents(run, played)
    type(played).objects.filter(pk=played.pk).update(state="open")
    from django.utils import timezone

    type(played).objects.filter(pk=played.pk).update(touched_at=timezone.now())
    assert viewer.get(address(played, episode)).status_code == 404


def test_a_play_of_another_seed_is_not_found_and_only_people_with_a_role_look(
    run: Any, played: Any, viewer: Client, as_role: Callable[[str], Client]
) -> None:
    other = run.episodes.exclude(seed=played.seed).first()
    assert viewer.get(address(played, other)).status_code == 404
    episode = agents(run, played)
    assert [as_role(role).get(address(played, episode)).status_code for role in ("anonymous", "", "viewer")] == [
        302,
        403,
        200,
    ]
