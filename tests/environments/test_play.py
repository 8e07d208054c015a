"""Playing an environment oneself: in the real sandbox, rebuilt by replay, with typed faults and limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.environments.conftest import GUESS, person

BREAKS = GUESS.replace("number = int(action[7:-1])", "number = 1 // 0")
HANGS = GUESS.replace("number = int(action[7:-1])", "\n            while True: pass")
ENDS_BY_ITSELF = GUESS.replace(
    '"larger" if number < self.goal else "smaller", 0.0, False, False', '"no", 0.0, False, True'
)


def play(session: Any, *texts: str) -> Any:
    """What the person types, each answered by a worker."""
    from webapp.environments.sandboxing.playing import drive
    from webapp.environments.services import act_in_play

    drive(session_id=session.pk)
    for text in texts:
        act_in_play(actor=session.by, session_id=session.pk, text=text)
        drive(session_id=session.pk)
    session.refresh_from_db()
    return session


@pytest.fixture
def begin(program: Callable[..., Any], reviewer: Any) -> Callable[..., Any]:
    from webapp.environments.services import start_play

    return lambda source=GUESS, seed=42: start_play(actor=reviewer, environment=program(source), seed=seed)


def test_a_person_plays_in_the_sandbox_and_wins(begin: Callable[..., Any]) -> None:
    session = play(begin(seed=142), "110", "150", "132")
    assert [reply["observation"] for reply in session.replies] == [
        "Game 142. Guess a number from 100 to 199: \\boxed{N}", "larger", "smaller", "Right.",
    ]  # fmt: skip
    assert session.actions == ["\\boxed{110}", "\\boxed{150}", "\\boxed{132}"]
    assert (session.state, session.status, session.reward) == ("over", "won", 1.0)
    assert session.replies[0]["options"] == ["N"]
    assert session.sandbox_tier


def test_what_is_boxed_already_is_passed_as_it_is(begin: Callable[..., Any]) -> None:
    assert play(begin(), "\\boxed{7}").actions == ["\\boxed{7}"]


def test_another_worker_rebuilds_the_play_from_seed_and_actions(begin: Callable[..., Any]) -> None:
    from webapp.environments.sandboxing import playing
    from webapp.environments.sandboxing.bench import BENCH

    session = play(begin(), "110", "150")
    before = list(session.replies)
    playing._kept.clear()
    BENCH.close()
    session = play(session, "172")
    assert session.replies[:3] == before
    assert (session.status, session.replies[3]["observation"]) == ("won", "Right.")


def test_a_program_that_replays_differently_is_a_fault_and_not_a_result(begin: Callable[..., Any]) -> None:
    from webapp.environments.sandboxing import playing

    session = play(begin(), "110")
    session.replies[1]["observation"] = "something else"
    session.save()
    playing._kept.clear()
    session = play(session, "42")
    assert (session.state, session.status, session.reward) == ("over", "env_error", None)
    assert session.fault["kind"] == "nondeterministic"


def test_a_program_that_raises_gives_a_typed_fault_with_its_line_and_no_reward(begin: Callable[..., Any]) -> None:
    session = play(begin(BREAKS), "110")
    assert (session.state, session.status, session.reward) == ("over", "env_error", None)
    assert (session.fault["kind"], session.fault["stage"], session.fault["line"]) == ("exception", "step", 13)
    assert "ZeroDivisionError" in session.fault["message"]


def test_a_program_that_hangs_is_a_timeout(begin: Callable[..., Any], run: Any) -> None:
    run.config["sandbox"]["step_timeout_s"] = 0.3
    run.save(update_fields=["config"])
    session = play(begin(HANGS), "110")
    assert (session.status, session.fault["kind"], session.reward) == ("env_timeout", "timeout", None)


def test_a_play_ends_at_the_turn_limit_of_the_run_with_reward_zero(begin: Callable[..., Any], run: Any) -> None:
    run.config["agent"]["max_turns"] = 2
    run.save(update_fields=["config"])
    session = play(begin(), "1", "2")
    assert (session.state, session.status, session.reward) == ("over", "turn_limit", 0.0)


def test_an_end_by_the_environment_is_neither_won_nor_lost(begin: Callable[..., Any]) -> None:
    assert play(begin(ENDS_BY_ITSELF), "1").status == "truncated_by_env"


def test_a_broken_sandbox_is_no_fault_of_the_program_and_can_be_tried_again(
    begin: Callable[..., Any], run: Any
) -> None:
    from webapp.environments.services import retry_play

    run.config["sandbox"]["minimum_tier"] = "vault"
    run.save(update_fields=["config"])
    session = play(begin())
    assert (session.state, session.fault, session.replies) == ("open", None, [])
    assert "vault" in session.failure
    run.config["sandbox"]["minimum_tier"] = "sealed"
    run.save(update_fields=["config"])
    retry_play(actor=session.by, session_id=session.pk)
    assert len(play(session).replies) == 1


def test_two_workers_never_answer_the_same_action(begin: Callable[..., Any]) -> None:
    from webapp.environments.jobs import claim
    from webapp.environments.models import PlaySession

    session = begin()
    assert claim(PlaySession, session.pk) is not None
    assert claim(PlaySession, session.pk) is None
    assert play(session).replies == []  # the other one holds it


def test_an_answer_after_the_person_gave_up_is_not_stored(begin: Callable[..., Any]) -> None:
    from webapp.environments.services import close_play

    session = begin()
    close_play(actor=session.by, session_id=session.pk)
    session = play(session)
    assert (session.state, session.replies) == ("closed", [])


def test_the_next_action_waits_for_the_answer(begin: Callable[..., Any]) -> None:
    from webapp.environments.services import act_in_play
    from webapp.runs.errors import ActRefused

    session = begin()
    with pytest.raises(ActRefused, match="has not answered"):
        act_in_play(actor=session.by, session_id=session.pk, text="1")


@pytest.mark.parametrize("text", ["", "  ", "x" * 2001])
def test_an_action_is_neither_empty_nor_endless(text: str, begin: Callable[..., Any]) -> None:
    from webapp.environments.services import act_in_play
    from webapp.runs.errors import ActRefused

    session = play(begin())
    with pytest.raises(ActRefused, match="1 to 2000"):
        act_in_play(actor=session.by, session_id=session.pk, text=text)


def test_nobody_plays_on_in_somebody_elses_play(begin: Callable[..., Any]) -> None:
    from webapp.environments.services import act_in_play
    from webapp.runs.errors import ActRefused

    session = play(begin())
    with pytest.raises(ActRefused, match="somebody else"):
        act_in_play(actor=person("theo"), session_id=session.pk, text="1")


def test_three_plays_may_be_open_and_an_expired_one_is_not_open(begin: Callable[..., Any]) -> None:
    from webapp.environments.models import PlaySession
    from webapp.runs.errors import ActRefused

    first, *_ = [begin() for _ in range(3)]
    with pytest.raises(ActRefused, match="3 plays open"):
        begin()
    PlaySession.objects.filter(pk=first.pk).update(touched_at=first.touched_at - timedelta(minutes=31))
    assert begin().state == "open"


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_is_one_the_trainer_could_draw(seed: int, begin: Callable[..., Any]) -> None:
    from webapp.runs.errors import ActRefused

    with pytest.raises(ActRefused, match="seed"):
        begin(seed=seed)


def test_the_sweep_expires_old_plays_and_sends_forgotten_ones_again(
    begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.environments import jobs
    from webapp.environments.models import PlaySession

    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(jobs, "send", lambda task, job_id: sent.append((task, job_id)))
    old, waiting, answered, fresh = begin(), begin(), begin(), None
    ago = waiting.touched_at - timedelta(seconds=20)
    play(answered)
    PlaySession.objects.filter(pk__in=[waiting.pk, answered.pk]).update(touched_at=ago)
    PlaySession.objects.filter(pk=old.pk).update(touched_at=ago - timedelta(minutes=31))
    fresh = begin()
    jobs.sweep()
    old.refresh_from_db()
    assert old.state == "expired"
    assert sent == [(jobs.PLAY_TASK, waiting.pk)]
    assert fresh.state == "open"


def test_plays_wake_the_pages_of_their_run(begin: Callable[..., Any], run: Any) -> None:
    session = play(begin(), "110")
    events = run.events.filter(kind="play").order_by("cursor").values_list("payload", flat=True)
    assert list(events) == [{"session": session.pk, "replies": 1}, {"session": session.pk, "replies": 2}]


def test_a_play_changes_nothing_in_the_run(begin: Callable[..., Any], run: Any) -> None:
    before = (
        run.episodes.count(),
        run.commands.count(),
        list(run.environments.order_by("key").values("key", "state", "code_digest")),
    )
    play(begin(), "42")
    assert (
        run.episodes.count(),
        run.commands.count(),
        list(run.environments.order_by("key").values("key", "state", "code_digest")),
    ) == before
