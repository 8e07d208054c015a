"""Environments without a learning signal, win rates against the band, and the capture ledger."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client


def outcomes(
    run: Any, key: str, offset: int, *rewards: float | None, arm: str = "unhinted", status: str = "lost"
) -> None:
    """Replace the environment's episodes of that offset and arm."""
    from django.utils import timezone

    from webapp.episodes.models import Episode

    environment = run.environments.get(key=key, superseded=False)
    run.episodes.filter(environment=environment, offset=offset, arm=arm).delete()
    for play, reward in enumerate(rewards):
        Episode.objects.create(
            run=run, attempt=1, rollout=environment.rollout + offset, environment=environment, environment_key=key,
            key=f"{key}/o{offset}/{arm[0]}/{play:02d}", arm=arm, offset=offset, play=play, seed=play,
            status=status if reward is not None else "env_error", reward=reward, turns=1, prompt_tokens=1, total_tokens=2,
            trained_tokens=1, elapsed_s=0.1, at=timezone.now(),
        )  # fmt: skip


@pytest.fixture
def first_set(run: Any) -> list[str]:
    """Keys of the first set, whose episodes are gone."""
    run.episodes.all().delete()
    return list(run.environments.filter(superseded=False, rollout=0).order_by("slot").values_list("key", flat=True))


def test_groups_are_all_won_all_lost_or_mixed(run: Any, first_set: list[str]) -> None:
    from webapp.environments.selectors_signals import group_keys

    won, lost, *_ = first_set
    outcomes(run, won, 0, 1.0, 1.0)
    outcomes(run, won, 1, 1.0, 0.0)
    outcomes(run, lost, 0, 0.0, -1.0, None)
    assert group_keys(run=run, flag="allwon") == {won}
    assert group_keys(run=run, flag="alllost") == {lost}
    assert group_keys(run=run, flag="zerospread") == {won}


def test_one_episode_is_no_group_and_a_fault_is_no_loss(run: Any, first_set: list[str]) -> None:
    from webapp.environments.selectors_signals import group_keys

    outcomes(run, first_set[0], 0, 0.0, None, None)
    assert group_keys(run=run, flag="alllost") == set()


def test_truncated_means_half_of_the_episodes_or_more(run: Any, first_set: list[str]) -> None:
    from webapp.environments.selectors_signals import truncated_keys

    half, less, *_ = first_set
    outcomes(run, half, 0, 0.0, status="turn_limit")
    outcomes(run, half, 1, 0.0)
    outcomes(run, less, 0, 0.0, status="length")
    outcomes(run, less, 1, 0.0, 0.0)
    assert truncated_keys(run=run) == {half}


def test_each_number_of_the_panel_opens_exactly_that_many_environments(run: Any, viewer: Client) -> None:
    from webapp.environments.selectors_signals import SIGNALS, signals_by_set, unhinted_groups

    run.environments.filter(slot=1).update(hint_state="leaky")
    run.environments.filter(slot=0).update(hint_state="none")
    run.episodes.filter(rollout=0, arm="unhinted").update(reward=0.0, status="lost")
    rows = signals_by_set(run=run, groups=unhinted_groups(run=run))
    assert sum(row.counts["leaky"] for row in rows) == run.environments.filter(slot=1, superseded=False).count()
    for row in rows:
        for flag in SIGNALS:
            page = viewer.get(f"/runs/{run.pk}/environments/?rollout={row.rollout}&flag={flag}").context["page"]
            assert len(page.rows) == row.counts[flag], (row.rollout, flag)
    assert rows[-1].counts["alllost"] > 0


def test_the_histogram_counts_environments_by_win_rate_and_band(run: Any, first_set: list[str]) -> None:
    from webapp.environments.selectors_signals import unhinted_groups, win_rate_histogram

    outcomes(run, first_set[0], 0, 1.0, 0.0)  # 0.5: learnable, in bin 10
    outcomes(run, first_set[1], 0, 1.0, 1.0)  # 1: in the last bin
    outcomes(run, first_set[2], 0, 0.0, None)  # 0
    found = win_rate_histogram(run=run, groups=unhinted_groups(run=run))
    assert (found.total, found.in_band, found.highest) == (3, 1, 1)
    assert [index for index, count in enumerate(found.bins) if count] == [0, 10, 19]
    assert (found.learnable, found.anchor) == ((0.2, 0.8), (0.4, 0.6))
    assert win_rate_histogram(run=run, groups=unhinted_groups(run=run), rollout=2).total == 0


def test_the_ledger_of_a_complete_run_is_complete(run: Any) -> None:
    from webapp.environments.selectors_signals import capture_ledger, coverage_of

    rows = capture_ledger(run=run)
    assert [row.rollout for row in rows] == [3, 2, 1, 0]
    assert [row.short for row in rows] == [[], [], [], []]
    assert rows[-1].expected == {"unhinted": 9, "hinted": 9, "environments": 3, "hints": 3, "regret": 3}
    assert rows[-1].stored == {"unhinted": 9, "hinted": 9, "environments": 3, "hints": 3, "regret": 3}
    assert coverage_of(rows) == 1.0


def test_what_is_missing_without_a_reason_is_called_lost(run: Any, viewer: Client) -> None:
    from webapp.environments.selectors_signals import capture_ledger, coverage_of

    gone = list(run.episodes.filter(rollout=1, arm="unhinted").values_list("pk", flat=True)[:2])
    run.episodes.filter(pk__in=gone).delete()
    run.environmenttransitions.all().delete()
    rows = capture_ledger(run=run)
    assert {row.rollout: row.short for row in rows if row.short} == {1: ["unhinted"]}
    assert coverage_of(rows) == pytest.approx(52 / 54)  # 9 + 9 in two regenerations, 9 in two others
    html = viewer.get(f"/runs/{run.pk}/ledger/").content.decode()
    assert "lost" in html


def test_an_unfilled_slot_explains_its_episodes(run: Any) -> None:
    from webapp.environments.selectors_signals import capture_ledger

    environment = run.environments.get(key="r0000-s02", superseded=False)
    run.regretpoints.filter(environment=environment).delete()
    environment.delete()
    (row,) = [row for row in capture_ledger(run=run) if row.rollout == 0]
    assert row.stored["unhinted"] == 6
    assert "1 of 3 slots unfilled" in row.reasons
    assert row.short == []


def test_an_environment_without_a_hint_has_no_hinted_plays_to_lose(run: Any) -> None:
    from webapp.environments.selectors_signals import capture_ledger

    run.environments.filter(key="r0000-s00").update(hint_state="none")
    run.episodes.filter(environment_key="r0000-s00", arm="hinted").delete()
    (row,) = [row for row in capture_ledger(run=run) if row.rollout == 0]
    assert (row.stored["hinted"], row.short) == (6, [])


def test_a_rollout_under_way_is_not_short(run: Any) -> None:
    from webapp.environments.selectors_signals import capture_ledger, coverage_of

    run.events.filter(kind="rollout_finished", rollout=3).delete()
    run.episodes.filter(rollout=3).delete()
    rows = capture_ledger(run=run)
    assert (rows[0].rollout, rows[0].is_open, rows[0].short) == (3, True, [])
    assert coverage_of(rows) == 1.0


def test_what_a_resume_left_behind_is_not_missing(run: Any) -> None:
    from webapp.environments.selectors_signals import capture_ledger, coverage_of
    from webapp.runs.supersede import supersede_older_attempts

    supersede_older_attempts(
        run=run, attempt=2, start_rollout=2
    )  # four rollouts were captured; 2 and 3 are to be done again
    rows = capture_ledger(run=run)
    assert [(row.rollout, row.is_open, row.short) for row in rows] == [(1, False, []), (0, False, [])]
    assert coverage_of(rows) == 1.0
    started = run.events.get(kind="rollout_started", rollout=2)
    run.events.create(
        kind="rollout_started", rollout=2, attempt=2, cursor=run.last_cursor + 1, at=started.at, payload=started.payload
    )
    rows = capture_ledger(run=run)
    assert [(row.rollout, row.is_open) for row in rows] == [(2, True), (1, False), (0, False)]
    assert coverage_of(rows) == 1.0


@pytest.mark.parametrize("path", ["signals/", "rewards/", "ledger/"])
def test_pages_open_before_anything_is_there(path: str, run: Any, viewer: Client) -> None:
    run.events.all().delete()
    run.designerrewards.all().delete()
    run.environments.all().delete()
    assert viewer.get(f"/runs/{run.pk}/{path}").status_code == 200


def test_a_designer_reward_is_shown_with_its_parts(run: Any, viewer: Client) -> None:
    reward = run.designerrewards.first()
    type(reward).objects.filter(pk=reward.pk).update(
        win_rate=0.3, anchor=0.6, regret=0.03, regret_term=0.2, raw=0.44, skill_mean=0.4, weight=2.0, reward=None
    )
    html = viewer.get(f"/runs/{run.pk}/rewards/").content.decode()
    assert "masked" in html
    lineage = viewer.get(f"/runs/{run.pk}/environments/{reward.environment_key}/lineage/").content.decode()
    for part in ("0.300", "0.600", "0.0300", "0.200", "0.440", "0.400", "masked"):
        assert part in lineage, part
