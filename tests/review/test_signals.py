"""Signs of reward without solving: each on episodes made for it, and absent where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.environments.models import Environment, RegretPoint
from webapp.episodes.models import Episode, Transcript
from webapp.review.signals import BY_KEY, SIGNALS, Reason, reasons_for, spread_of, suspicion_of

pytestmark = pytest.mark.django_db
Play = tuple[list[str], list[str]]  # observations and actions, one of each a turn


@pytest.fixture
def plays(environment: Any) -> Callable[..., list[Episode]]:
    """``plays(([observations], [actions]), …)``: the environment's unhinted episodes are these, all won; the rest is lost."""
    Environment.objects.filter(pk=environment.pk).update(hint_state="ok", measures={})
    RegretPoint.objects.filter(environment=environment).update(unhinted_mean=0.5)

    def make(*given: Play) -> list[Episode]:
        unhinted = list(Episode.objects.filter(environment=environment, arm="unhinted").order_by("id"))
        Episode.objects.filter(environment=environment).update(status="lost")
        for episode, (observations, actions) in zip(unhinted, given, strict=False):
            Episode.objects.filter(pk=episode.pk).update(status="won", turns=len(actions))
            turns = [{"observation": seen, "action": done} for seen, done in zip(observations, actions, strict=True)]
            Transcript.objects.filter(episode=episode).update(turns=turns)
        return unhinted[: len(given)]

    return make


def signs(environment: Any) -> dict[str, Reason]:
    fresh = Environment.objects.get(pk=environment.pk)
    return {reason.signal: reason for reason in reasons_for(run=fresh.run, environments=[fresh])[fresh.pk]}


def play(*actions: str, seen: str = "Find it.") -> Play:
    return [seen] * len(actions), list(actions)


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def test_honest_wins_show_nothing(plays: Any, environment: Any) -> None:
    plays(
        play(boxed("up"), boxed("probe 1 2")),
        play(boxed("up"), boxed("probe 3 4")),
        play(boxed("up"), boxed("probe 0 1")),
    )
    assert signs(environment) == {}


def test_a_win_by_a_reply_without_an_action_is_found_with_its_turn(plays: Any, environment: Any) -> None:
    _, second = plays(play(boxed("go"), boxed("east")), play(boxed("go"), "please let me win"))
    sign = signs(environment)["invalid_win"]
    assert (sign.episode, sign.turn, sign.strength) == (second.pk, 1, 0.5)
    assert sign.text == "1 of 2 wins ended with a reply that holds no action"


def test_one_winning_action_for_three_seeds_is_found_whatever_its_case_and_spaces(plays: Any, environment: Any) -> None:
    plays(play("x", boxed("Open  door")), play("x", boxed("open door")), play("x", boxed("OPEN DOOR")))
    assert signs(environment)["same_action"].text.startswith("3 seeds were all won by")


def test_two_seeds_or_two_actions_prove_no_constant_answer(plays: Any, environment: Any) -> None:
    plays(play("x", boxed("a1")), play("x", boxed("a1")))
    assert "same_action" not in signs(environment)
    plays(play("x", boxed("a1")), play("x", boxed("a1")), play("x", boxed("a2")))
    assert "same_action" not in signs(environment)


def test_three_plays_of_one_seed_prove_no_constant_answer(plays: Any, environment: Any) -> None:
    for episode in plays(play("x", boxed("a1")), play("x", boxed("a1")), play("x", boxed("a1"))):
        Episode.objects.filter(pk=episode.pk).update(seed=5)
    assert "same_action" not in signs(environment)


def test_an_answer_that_stood_in_an_observation_is_found_at_its_turn(plays: Any, environment: Any) -> None:
    first, *_ = plays(
        (["Find the word.", "It is not MAPLE."], [boxed("oak"), boxed("maple")]),
        (["The word is birch.", "No."], [boxed("elm"), boxed("birch")]),
        (["Find the word.", "No."], [boxed("fir"), boxed("hazel")]),
    )
    sign = signs(environment)["answer_visible"]
    assert (sign.episode, sign.turn) == (first.pk, 1)
    assert sign.strength == pytest.approx(2 / 3)


@pytest.mark.parametrize("answer", ["7", "go"])
def test_short_answers_stand_there_by_chance(answer: str, plays: Any, environment: Any) -> None:
    plays(*[play("x", boxed(answer), seen="17 goats") for _ in range(3)])
    assert "answer_visible" not in signs(environment)


def test_wins_in_one_turn_count_when_they_are_half_of_them_and_two(plays: Any, environment: Any) -> None:
    plays(play(boxed("a1")), play(boxed("b2")), play("x", boxed("c3")), play("x", boxed("d4")))
    assert (signs(environment)["quick_win"].text, signs(environment)["quick_win"].strength) == (
        "2 of 4 wins took one turn",
        0.5,
    )
    plays(play(boxed("a1")), play("x", boxed("c3")))
    assert "quick_win" not in signs(environment)


def test_texts_that_retention_removed_accuse_nobody(plays: Any, environment: Any) -> None:
    from django.utils import timezone

    from webapp.episodes.texts import remove_texts

    plays(play(boxed("a1")), play(boxed("b2")), play(boxed("c3")))
    assert list(signs(environment)) == ["quick_win"]
    assert remove_texts(run=environment.run, kept=[], at=timezone.now())
    assert list(signs(environment)) == ["quick_win"]  # counted from turns, which are kept
    assert signs(environment)["quick_win"].text == "3 of 3 wins took one turn"


def test_hinted_and_superseded_wins_say_nothing(plays: Any, environment: Any) -> None:
    episodes = plays(play("no action"), play("no action"))
    Episode.objects.filter(pk=episodes[0].pk).update(arm="hinted")
    Episode.objects.filter(pk=episodes[1].pk).update(superseded=True)
    assert signs(environment) == {}


def test_both_arms_winning_everything_is_found(plays: Any, environment: Any) -> None:
    plays()
    RegretPoint.objects.filter(environment=environment).update(
        unhinted_mean=1.0, hinted_mean=1.0, unhinted_n=3, hinted_n=3
    )
    assert signs(environment)["arms_all_won"].text == "all 3 unhinted and 3 hinted plays won"
    RegretPoint.objects.filter(environment=environment).update(hinted_mean=0.99)
    assert signs(environment) == {}


def test_a_leaky_hint_counts_in_full_and_the_gates_measure_by_its_share(plays: Any, environment: Any) -> None:
    plays()
    Environment.objects.filter(pk=environment.pk).update(measures={"observation_shows_answer": 0.75})
    assert (signs(environment)["leak"].strength, signs(environment)["leak"].text) == (
        0.75, "the gates saw the answer in observations of 75% of seeds",
    )  # fmt: skip
    Environment.objects.filter(pk=environment.pk).update(hint_state="leaky", hint_reason="it names 'oak'")
    assert (signs(environment)["leak"].strength, signs(environment)["leak"].text) == (
        1.0,
        "the hint leaks: it names 'oak'",
    )
    Environment.objects.filter(pk=environment.pk).update(hint_state="ok", measures={"observation_shows_answer": 0.4})
    assert signs(environment) == {}


def test_the_robust_z_is_not_moved_by_the_outlier_itself() -> None:
    # Median 3, absolute deviations 2 2 1 1 0 0 1 1 97, their median 1: (100 − 3) / 1.4826.
    spread = spread_of([1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 100.0, 3.0])
    assert spread.median == 3.0
    assert spread.z(100.0) == pytest.approx(97 / 1.4826)


def test_lengths_that_are_all_alike_or_few_have_no_outlier() -> None:
    assert spread_of([3.0] * 8 + [5.0]).z(5.0) is None
    assert spread_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0]) is None


def test_a_program_far_longer_than_the_others_is_found(ingested: Callable[..., Any]) -> None:
    run = ingested(rollouts=6, environments=4)
    one = run.environments.filter(superseded=False).first()
    assert "outlier_length" not in signs(one)
    Environment.objects.filter(pk=one.pk).update(code="x = 1\n" * 5000)
    sign = signs(one)["outlier_length"]
    assert sign.strength == 1.0
    assert sign.text.startswith("its program has 30000 characters, the median is ")


def test_suspicion_is_the_sum_of_weight_times_strength() -> None:
    reasons = [Reason(signal="quick_win", strength=0.5, text=""), Reason(signal="leak", strength=1.0, text="")]
    assert suspicion_of(reasons) == 0.5 * 2.0 + 1.0 * 2.0
    assert suspicion_of([]) == 0
    assert len(BY_KEY) == len(SIGNALS) == 7


def test_the_heaviest_reason_comes_first(plays: Any, environment: Any) -> None:
    plays(play("win me"), play("win me"), play("win me"))
    assert list(signs(environment)) == ["invalid_win", "same_action", "quick_win"]
