"""Whose environments a session plays: the run's, another run's, a pool's; what is not there or deleted is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.trying.test_pages import act, trial_url


@pytest.fixture
def other(saved: Any, ingested: Callable[..., Any]) -> Any:
    """Another run with environments of the same keys, whose name is hostile."""
    return ingested(name="tanks <b>two</b>")


def board(client: Client, trial: Any, source: str) -> str:
    return client.get(trial_url(trial), {"mode": "play", "from": source}).content.decode()


def test_the_environments_of_another_run_are_offered_and_played(
    held: Callable[..., Any], other: Any, operator: Client
) -> None:
    from webapp.trying.holding import _request

    trial = held()
    theirs = other.environments.filter(superseded=False).first()
    value = f"{other.pk}/{theirs.key}"
    assert f'value="{value}"' not in board(operator, trial, "")
    for named in (str(other.pk), other.slug, "tanks <b>TWO</b>"):
        html = board(operator, trial, named)
        assert f'value="{value}"' in html
        assert "<b>two" not in html.lower()
    html = act(operator, trial, do="play", mode="play", environment=value, seed="7", **{"from": other.slug})
    play = trial.exchanges.get()
    assert (play.environment, play.seed) == (theirs, 7)
    request = _request(play)
    assert (request["code"], request["environment"]) == (theirs.code, theirs.key)
    assert f'href="/runs/{other.pk}/environments/{theirs.key}/"' in html
    assert f'&amp;from={other.slug}"' in html  # the board that is looked at again keeps the choice


def test_the_play_of_another_run_stands_beside_that_runs_plays(
    held: Callable[..., Any], other: Any, operator: Client
) -> None:
    from webapp.trying.models import Exchange

    trial = held()
    theirs = other.environments.filter(superseded=False).first()
    episode = theirs.episodes.filter(arm="unhinted").first()
    answer = {"status": "lost", "reward": 0.0, "total_tokens": 9, "elapsed_s": 1.0, "sandbox_tier": "namespaces"}
    turn = {"observation": "Somewhere else", "reply": "1", "action": "1", "reward": 0.0}
    play = Exchange.objects.create(
        trial=trial,
        kind="play",
        environment=theirs,
        seed=episode.seed,
        arm="unhinted",
        state="done",
        answer=answer,
        turns=[turn],
    )
    html = operator.get(trial_url(trial), {"mode": "play"}).content.decode()
    beside = reverse("runs:trial_beside", args=[trial.run_id, trial.pk, play.pk, episode.pk])
    assert f'href="{beside}"' in html
    assert f'href="/runs/{other.pk}/episodes/{episode.pk}/"' in html
    assert f'value="{other.pk}/{theirs.key}" selected' in html  # its run is still the one chosen from
    html = operator.get(beside).content.decode()
    assert "Somewhere else" in html
    assert f'href="/runs/{other.pk}/episodes/{episode.pk}/"' in html
    assert f'href="/runs/{trial.run_id}/episodes/{episode.pk}/"' not in html


def test_the_environments_of_a_pool_are_offered_whatever_run_they_are_of(
    held: Callable[..., Any], other: Any, operator: Client
) -> None:
    from webapp.pools.services import add_environments, create_pool

    trial = held()
    mine, theirs = (run.environments.filter(superseded=False).first() for run in (trial.run, other))
    pool = create_pool(actor=trial.by, name="first pool", licence="MIT")
    add_environments(actor=trial.by, pool_id=pool.pk, environment_ids=[mine.pk, theirs.pk])
    for named in (f"pool {pool.pk}", "Pool First Pool"):
        html = board(operator, trial, named)
        assert f'<option value="{mine.key}"' in html
        assert f'<option value="{other.pk}/{theirs.key}"' in html
        assert "first pool, 2 to play" in html
    act(operator, trial, do="play", mode="play", environment=f"{other.pk}/{theirs.key}", seed="7")
    assert trial.exchanges.get().environment == theirs


def test_a_source_that_is_not_there_is_said_and_the_runs_own_are_offered(
    held: Callable[..., Any], operator: Client
) -> None:
    trial = held()
    own = trial.run.environments.filter(superseded=False).first()
    for named in ("no such <i>run</i>", "pool 999", "pool"):
        html = board(operator, trial, named)
        assert f'value="{own.key}"' in html
        assert "There is no run or pool called" in html
        assert "<i>run</i>" not in html


def test_deleted_runs_and_addresses_that_are_none_are_refused(
    held: Callable[..., Any], other: Any, operator: Client
) -> None:
    from webapp.pools.services import add_environments, create_pool
    from webapp.runs.models import Run

    trial = held()
    theirs = other.environments.filter(superseded=False).first()
    pool = create_pool(actor=trial.by, name="theirs", licence="")
    add_environments(actor=trial.by, pool_id=pool.pk, environment_ids=[theirs.pk])
    Run.objects.filter(pk=other.pk).update(deleted_at=timezone.now())
    assert "has been deleted" in act(
        operator, trial, do="play", mode="play", environment=f"{other.pk}/{theirs.key}", seed="7"
    )
    assert f'value="{other.pk}/{theirs.key}"' not in board(operator, trial, f"pool {pool.pk}")
    assert "There is no run or pool called" in board(operator, trial, other.slug)
    for value in (f"x/{theirs.key}", "999999/r0000-s00", f"{trial.run_id}/nothing", f"{'9' * 30}/k", "/"):
        answer = operator.post(trial_url(trial, "trial_act"), {"do": "play", "environment": value, "seed": "7"})
        assert answer.status_code == 404, value
    assert not trial.exchanges.exists()
