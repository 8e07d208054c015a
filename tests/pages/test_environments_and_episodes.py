"""Environments, candidates, memory, corpus, regret; episodes, long transcripts, and the two arms side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.environments.selectors import statistics_by_offset, with_measures
from webapp.environments.selectors_sources import regret_by_skill, uses_of
from webapp.episodes.selectors import (
    PREVIEW_CHARACTERS,
    TURNS_A_PAGE,
    Text,
    TurnView,
    align,
    pairs_of,
    read_turns,
    strip_of,
)

HINT = "\n\nHINT: look at the corner"


def turn(number: int, observation: str, reply: str) -> TurnView:
    return TurnView(
        number=number,
        observation=Text(shown=observation, characters=len(observation)),
        hint="",
        reply=Text(shown=reply, characters=len(reply)),
        action=reply,
        reward=0.0,
        terminated=False,
        truncated=False,
        observation_tokens=1,
        reply_tokens=1,
        logprob_mean=None,
    )


def transcript_of(episode: Any, turns: list[dict[str, Any]], final: str = "") -> None:
    from webapp.episodes.models import Transcript

    base = {
        "action": "x",
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
        "info": {},
        "observation_tokens": 1,
        "reply_tokens": 1,
        "logprob_mean": None,
    }
    Transcript.objects.filter(episode=episode).update(turns=[{**base, **one} for one in turns], final_observation=final)
    episode.turns = len(turns)
    episode.save()


# Environments --------------------------------------------------------------------------------------------------------


def test_the_win_rate_of_an_environment_is_over_its_whole_window(run: Any) -> None:
    environment = run.environments.filter(rollout=0).first()
    rewards = list(
        run.episodes.filter(environment=environment, arm="unhinted", reward__isnull=False).values_list(
            "reward", flat=True
        )
    )
    measured = with_measures(environments=[environment])[0].measured
    assert measured.win_unhinted == pytest.approx(sum(rewards) / len(rewards))
    assert measured.unhinted_n == len(rewards)
    assert sorted(measured.plays) == [0, 1]  # k is 2


def test_faults_have_no_reward_and_are_counted_apart(run: Any) -> None:
    environment = run.environments.filter(rollout=0).first()
    before = with_measures(environments=[environment])[0].measured
    episode = run.episodes.filter(environment=environment, arm="unhinted", offset=0, reward__isnull=False).first()
    episode.status, episode.reward = "env_error", None
    episode.save()
    after = with_measures(environments=[environment])[0].measured
    assert (after.unhinted_n, after.faults) == (before.unhinted_n - 1, before.faults + 1)
    assert statistics_by_offset(environment=environment)[0].faults == after.faults


def test_plays_that_a_resume_repeated_are_counted_once(run: Any) -> None:
    environment = run.environments.filter(rollout=2).first()
    before = with_measures(environments=[environment])[0].measured
    # A resume at rollout 3 leaves the environment in place and plays its offset 1 again.
    for episode in run.episodes.filter(environment=environment, offset=1):
        type(episode).objects.filter(pk=episode.pk).update(superseded=True)
        episode.pk, episode.attempt = None, 2
        episode.save(force_insert=True)
    measured = with_measures(environments=[environment])[0].measured
    assert measured.unhinted_n == before.unhinted_n
    assert measured.win_unhinted == pytest.approx(before.win_unhinted)
    assert [row.unhinted_n for row in statistics_by_offset(environment=environment)] == [
        before.plays[0],
        before.plays[1],
    ]
    assert len(strip_of(environment=environment)["unhinted"]) == 6


def test_a_list_of_environments_costs_the_same_for_any_number(
    ingested: Callable[..., Any], viewer: Client, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    run = ingested(environments=9, plays=2, rollouts=6)
    with django_assert_max_num_queries(16):
        assert len(viewer.get(f"/runs/{run.pk}/environments/").context["listed"]) > 20


@pytest.mark.parametrize(("query", "check"), [
    ("skill=Logical+Deduction", lambda one: one.skill == "Logical Deduction"), ("rollout=2", lambda one: one.rollout == 2),
    ("state=barred", lambda one: one.state == "barred"), ("flag=leaky", lambda one: one.hint_state == "leaky"),
    ("q=r0002", lambda one: one.key.startswith("r0002")),
])  # fmt: skip
def test_filters_narrow_the_environments(query: str, check: Callable[[Any], bool], run: Any, viewer: Client) -> None:
    run.environments.filter(slot=1).update(state="barred", hint_state="leaky")
    rows = viewer.get(f"/runs/{run.pk}/environments/?{query}").context["page"].rows
    assert rows
    assert all(check(row) for row in rows)
    assert len(rows) < run.environments.count()


@pytest.mark.parametrize("query", ["rollout=-1", "rollout=x", "rollout=99999999999", "attempt=%01"])
def test_a_filter_that_is_no_number_is_refused_not_an_error(query: str, run: Any, viewer: Client) -> None:
    environment = run.environments.first()
    assert viewer.get(f"/runs/{run.pk}/environments/?{query}").status_code in (200, 400)
    assert viewer.get(f"/runs/{run.pk}/environments/{environment.key}/?{query}").status_code in (200, 400)


def test_the_code_has_a_link_for_every_line(run: Any, viewer: Client) -> None:
    environment = run.environments.first()
    html = viewer.get(f"/runs/{run.pk}/environments/{environment.key}/").content.decode()
    assert 'id="L10"' in html
    assert 'href="#L10"' in html


def test_lineage_links_what_was_shown_and_what_it_led_to(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(rollouts=6)
    child = next(one for one in run.environments.all() if one.examples)
    parent = run.environments.get(key=child.examples[0], superseded=False)
    assert f"/environments/{parent.key}/" in viewer.get(f"/runs/{run.pk}/environments/{child.key}/").content.decode()
    assert f"/environments/{child.key}/" in viewer.get(f"/runs/{run.pk}/environments/{parent.key}/").content.decode()
    assert child.key in uses_of(run=run, keys=[parent.key])[parent.key]


def test_an_abandoned_environment_keeps_its_page_under_its_attempt(
    ingested: Callable[..., Any], viewer: Client
) -> None:
    run = ingested(rollouts=8, resume_from=4)
    old = run.environments.filter(superseded=True).first()
    new = run.environments.get(key=old.key, superseded=False)
    page = viewer.get(f"/runs/{run.pk}/environments/{old.key}/?attempt={old.attempt}")
    assert page.context["environment"] == old
    assert "superseded" in page.content.decode()
    assert viewer.get(f"/runs/{run.pk}/environments/{old.key}/").context["environment"] == new


def test_rejected_candidates_show_stage_reason_and_code(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(environments=9, rollouts=6, plays=2, seed=3)
    rejected = run.candidates.filter(accepted=False).first()
    listed = viewer.get(f"/runs/{run.pk}/candidates/").context["page"].rows
    assert rejected in listed
    assert not any(candidate.accepted for candidate in listed)
    html = viewer.get(f"/runs/{run.pk}/candidates/{rejected.key}/").content.decode()
    assert rejected.reason in html
    assert 'class="code"' in html


def test_quarantine_needs_a_reason_and_waits_for_the_trainers_answer(run: Any, operator: Client) -> None:
    key = run.environments.filter(superseded=False).first().key
    operator.post(f"/runs/{run.pk}/environments/{key}/act/quarantine/", {"reason": "  "})
    assert not run.commands.exists()
    operator.post(f"/runs/{run.pk}/environments/{key}/act/quarantine/", {"reason": "prints the answer"})
    command = run.commands.get()
    assert (command.action, command.environment, command.reason) == ("quarantine", key, "prints the answer")
    assert "waiting for the trainer" in operator.get(f"/runs/{run.pk}/environments/{key}/").content.decode()
    command.acknowledged_at, command.accepted, command.effective_rollout = run.started_at, True, 3
    command.save()
    assert "effective from rollout 3" in operator.get(f"/runs/{run.pk}/environments/{key}/").content.decode()


def test_regret_by_skill_leaves_out_what_has_none_and_counts_it(run: Any) -> None:
    from webapp.environments.models import RegretPoint

    run.regretpoints.all().delete()
    for index, (state, regret) in enumerate([("ok", 0.1), ("ok", 0.3), ("no_hint", None)]):
        RegretPoint.objects.create(
            run=run,
            attempt=1,
            rollout=0,
            environment_key=f"k{index}",
            skill="Optimization",
            state=state,
            regret=regret,
            unhinted_n=8,
            hinted_n=8,
        )
    (row,) = regret_by_skill(run=run)
    assert row.mean == pytest.approx(0.2)
    assert row.standard_error == pytest.approx(0.1)  # sqrt(((0.1)^2 + (0.1)^2) / 1 / 2)
    assert (row.n, row.states) == (2, {"ok": 2, "no_hint": 1})


def test_an_environment_that_was_just_written_opens_before_anything_is_measured(run: Any, viewer: Client) -> None:
    run.regretpoints.all().delete()
    run.designerrewards.all().delete()
    run.episodes.all().delete()
    key = run.environments.first().key
    for path in ("latest/", "environments/", f"environments/{key}/", "regret/", ""):
        assert viewer.get(f"/runs/{run.pk}/{path}").status_code == 200, path


def test_a_missing_hint_is_never_shown_as_regret_zero(run: Any, viewer: Client) -> None:
    point = run.regretpoints.first()
    point.state, point.regret, point.standard_error = "no_hint", None, None
    point.save()
    html = viewer.get(f"/runs/{run.pk}/environments/{point.environment_key}/").content.decode()
    assert "no hint, so no regret" in html


# Episodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "check"), [
    ("arm=hinted", lambda one: one.arm == "hinted"), ("status=won", lambda one: one.status == "won"),
    ("status=fault", lambda one: one.reward is None), ("environment=r0000-s00", lambda one: one.environment_key == "r0000-s00"),
    ("rollout=1", lambda one: one.rollout == 1),
])  # fmt: skip
def test_filters_narrow_the_episodes(query: str, check: Callable[[Any], bool], run: Any, viewer: Client) -> None:
    fault = run.episodes.filter(arm="unhinted").first()
    fault.status, fault.reward = "env_timeout", None
    fault.save()
    rows = viewer.get(f"/runs/{run.pk}/episodes/?{query}").context["page"].rows
    assert rows
    assert all(check(row) for row in rows)


def test_a_list_of_episodes_never_reads_a_transcript(run: Any, viewer: Client) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        viewer.get(f"/runs/{run.pk}/episodes/")
    assert not any("episodes_transcript" in query["sql"] for query in queries)


def test_case_20_a_message_of_twenty_megabytes_opens_fast_with_a_bounded_preview_and_a_whole_download(
    run: Any, viewer: Client
) -> None:
    episode = run.episodes.first()
    huge = "observation " * 1_700_000
    transcript_of(episode, [{"observation": huge, "reply": "ok"}])
    started = time.process_time()
    answer = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/")
    assert time.process_time() - started < 2
    assert len(answer.content) < PREVIEW_CHARACTERS + 60_000
    assert "characters" in answer.content.decode()
    raw = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/raw/?turn=0&part=observation")
    assert raw.content.decode() == huge


def test_five_hundred_turns_come_in_pages_without_loss(run: Any, viewer: Client) -> None:
    episode = run.episodes.first()
    transcript_of(
        episode, [{"observation": f"see {index}.", "reply": f"do {index}."} for index in range(500)], final="the end"
    )
    html = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/").content.decode()
    assert "see 199." in html
    assert "see 200." not in html
    assert "the end" not in html
    seen = [turn.number for start in (0, 200, 400) for turn in read_turns(episode=episode, start=start)]
    assert seen == list(range(500))
    last = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/turns/?from=400").content.decode()
    assert "see 499." in last
    assert "the end" in last
    assert 'id="more-turns"' in html
    assert 'id="more-turns"' not in last
    assert TURNS_A_PAGE == 200


def test_case_22_a_lone_surrogate_and_a_nul_in_a_transcript_do_not_break_its_page_or_download(
    run: Any, viewer: Client
) -> None:
    episode = run.episodes.first()
    transcript_of(episode, [{"observation": "a\u2028b\u0007", "reply": "\U0001f600\u0301" * 50}])
    assert viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/").status_code == 200
    assert (
        viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/raw/").json()["turns"][0]["observation"] == "a\u2028b\u0007"
    )


@pytest.mark.parametrize(
    "query", ["turn=99&part=reply", "turn=0&part=secret", "turn=-1&part=reply", "turn=abc&part=reply"]
)
def test_only_texts_that_exist_can_be_downloaded(query: str, run: Any, viewer: Client) -> None:
    assert viewer.get(f"/runs/{run.pk}/episodes/{run.episodes.first().pk}/raw/?{query}").status_code in (400, 404)


# Pairs ---------------------------------------------------------------------------------------------------------------


def test_pairs_are_matched_by_seed_not_by_order(run: Any) -> None:
    environment = run.environments.filter(superseded=False).first()
    for pair in pairs_of(environment=environment):
        assert pair.unhinted.seed == pair.hinted.seed
        assert (pair.unhinted.arm, pair.hinted.arm) == ("unhinted", "hinted")


def test_the_first_difference_is_marked_once_and_by_its_part() -> None:
    aligned = align(
        [turn(0, "start", "a"), turn(1, "same", "b"), turn(2, "x", "c")], [turn(0, "start", "a"), turn(1, "same", "B")]
    )
    assert [row.first_difference for row in aligned] == ["", "action", ""]
    assert aligned[2].hinted is None


def test_an_arm_that_ends_earlier_differs_where_it_ends() -> None:
    assert [row.first_difference for row in align([turn(0, "s", "a"), turn(1, "t", "b")], [turn(0, "s", "a")])] == [
        "",
        "observation",
    ]


def test_two_equal_transcripts_have_no_difference() -> None:
    assert not any(row.first_difference for row in align([turn(0, "s", "a")], [turn(0, "s", "a")]))


def test_the_injected_hint_is_shown_apart_and_is_no_difference(run: Any, viewer: Client) -> None:
    pair = pairs_of(environment=run.environments.filter(superseded=False).first())[0]
    transcript_of(pair.unhinted, [{"observation": "start", "reply": "go"}])
    transcript_of(pair.hinted, [{"observation": "start" + HINT, "reply": "go"}])
    (seen,) = read_turns(episode=pair.hinted)
    assert (seen.observation.shown, seen.hint) == ("start", "look at the corner")
    answer = viewer.get(f"/runs/{run.pk}/pairs/{pair.hinted.environment_key}/{pair.play}/")
    assert answer.context["first_difference"] is None
    assert 'class="label">HINT' in answer.content.decode()


def test_an_unhinted_transcript_that_says_hint_is_left_alone(run: Any) -> None:
    episode = run.episodes.filter(arm="unhinted").first()
    transcript_of(episode, [{"observation": "start" + HINT, "reply": "go"}])
    (seen,) = read_turns(episode=episode)
    assert (seen.observation.shown, seen.hint) == ("start" + HINT, "")


def test_keys_lead_through_the_pairs_and_to_the_difference(run: Any, viewer: Client) -> None:
    key = run.environments.filter(superseded=False).first().key
    first = viewer.get(f"/runs/{run.pk}/pairs/{key}/0/").content.decode()
    middle = viewer.get(f"/runs/{run.pk}/pairs/{key}/1/").content.decode()
    assert 'data-key="k"' not in first
    assert f'href="/runs/{run.pk}/pairs/{key}/1/" data-key="j"' in first
    assert f'href="/runs/{run.pk}/pairs/{key}/0/" data-key="k"' in middle
    assert middle.count('id="difference"') == 1


def test_the_strip_shows_every_play_of_both_arms(run: Any, viewer: Client) -> None:
    key = run.environments.filter(superseded=False).first().key
    strips = viewer.get(f"/runs/{run.pk}/pairs/{key}/0/").context["strips"]
    assert [(strip["arm"], len(strip["marks"])) for strip in strips] == [("unhinted", 3), ("hinted", 3)]


def test_a_pair_that_does_not_exist_is_not_found(run: Any, viewer: Client) -> None:
    key = run.environments.first().key
    assert viewer.get(f"/runs/{run.pk}/pairs/{key}/99/").status_code == 404
