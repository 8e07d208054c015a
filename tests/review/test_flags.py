"""Flags: who may place them, where they point, what they do to the run, and how that is taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainer.events import EnvironmentStateChanged
from webapp.accounts.models import AuditEntry
from webapp.environments.models import Environment
from webapp.episodes.models import Episode
from webapp.review import services
from webapp.review.effects import state_of
from webapp.review.errors import ReviewRefused
from webapp.review.models import Effect, Flag, FlagKind
from webapp.review.selectors import FlagFilter, flags_of_environment, narrowed, place_of, withheld
from webapp.review.services import Pointer, Wish
from webapp.review.trained import trained_before
from webapp.runs.models import Command, Event, Run

pytestmark = pytest.mark.django_db
QUARANTINE = Wish(act="quarantine")


@pytest.fixture
def flag(environment: Any, person: Callable[[str], Any], kind: Callable[[str], Any]) -> Callable[..., Flag]:
    """``flag("reviewer", wish=…)`` places one on the environment."""

    def place(role: str = "reviewer", key: str = "answer-leaked", on: Any = None, **options: Any) -> Flag:
        target = on or environment
        return services.place_flag(actor=person(role), environment_id=target.pk, kind_id=kind(key).pk, **options)

    return place


def state(effect: Any) -> str:
    return state_of(Effect.objects.get(pk=effect.pk)).word


def detail(effect: Any) -> str:
    return state_of(Effect.objects.get(pk=effect.pk)).detail


def test_the_taxonomy_starts_with_fifteen_kinds_in_their_order(db: None) -> None:
    kinds = list(FlagKind.objects.values_list("key", flat=True))
    assert len(kinds) == 15
    assert kinds[:2] == ["answer-leaked", "shortcut"]
    assert kinds[-1] == "unreadable"
    assert not FlagKind.objects.filter(description="").exists()


def test_a_note_is_kept_with_its_author_its_audit_row_and_an_event_and_asks_nobody(flag: Any, run: Any) -> None:
    placed = flag(comment="  the goal stands in turn 3 \x00 ", severity=3)
    assert (placed.by.username, placed.comment, placed.get_severity_display()) == (
        "reviewer-person", "the goal stands in turn 3 \\u0000", "critical",
    )  # fmt: skip
    entry = AuditEntry.objects.get(action="flag.placed")
    assert (entry.actor_name, entry.detail["kind"], entry.detail["wish"]) == (
        "reviewer-person",
        "answer-leaked",
        "note",
    )
    event = Event.objects.filter(run=run, kind="flag").get()
    assert event.payload["environment"] == placed.environment.key
    assert not Command.objects.exists()
    assert not Effect.objects.exists()


@pytest.mark.parametrize(("subject", "pointer", "words"), [
    ("turn", Pointer(), "which episode"), ("lines", Pointer(), "which lines"), ("lines", Pointer(first_line=9, last_line=8), "lines 1 to"),
    ("lines", Pointer(first_line=1, last_line=9999), "lines 1 to"), ("environment", Pointer(last_line=3), "first one"),
    ("environment", Pointer(turn=0), "needs its episode"), ("environment", Pointer(episode_id=999_999), "not one of this"),
    ("planet", Pointer(), "what the flag is about"),
])  # fmt: skip
def test_a_pointer_that_leads_nowhere_is_refused(flag: Any, subject: str, pointer: Pointer, words: str) -> None:
    with pytest.raises(ReviewRefused, match=words):
        flag(subject=subject, pointer=pointer)
    assert not Flag.objects.exists()


def test_a_turn_beyond_the_end_and_an_episode_of_another_environment_are_refused(
    flag: Any, run: Any, environment: Any
) -> None:
    own = Episode.objects.filter(environment=environment).first()
    other = Episode.objects.filter(run=run).exclude(environment=environment).first()
    with pytest.raises(ReviewRefused, match=f"turns 1 to {own.turns}"):
        flag(subject="turn", pointer=Pointer(episode_id=own.pk, turn=own.turns))
    with pytest.raises(ReviewRefused, match="not one of this"):
        flag(subject="episode", pointer=Pointer(episode_id=other.pk))


def test_a_missing_hint_cannot_be_flagged(flag: Any, environment: Any) -> None:
    Environment.objects.filter(pk=environment.pk).update(hint_text=None)
    with pytest.raises(ReviewRefused, match="no hint"):
        flag(subject="hint")


def test_evidence_is_linked_at_its_place(flag: Any, run: Any, environment: Any) -> None:
    episode = Episode.objects.filter(environment=environment).first()
    base = f"/runs/{run.pk}"
    lines = flag(subject="lines", pointer=Pointer(first_line=3, last_line=5))
    line = flag(subject="lines", pointer=Pointer(first_line=7))
    turn = flag(subject="environment", pointer=Pointer(episode_id=episode.pk, turn=0))
    assert [(place_of(one).text, place_of(one).url) for one in (lines, line, turn)] == [
        ("lines 3–5", f"{base}/environments/{environment.key}/#L3"),
        ("line 7", f"{base}/environments/{environment.key}/#L7"),
        ("turn 1", f"{base}/episodes/{episode.pk}/#t1"),
    ]


def test_a_reviewers_quarantine_is_a_proposal_until_an_operator_puts_it_into_effect(
    flag: Any, person: Any, run: Any
) -> None:
    placed = flag("reviewer", wish=QUARANTINE)
    assert list(narrowed(FlagFilter(state="proposed"))) == [placed]
    assert not Command.objects.exists()
    with pytest.raises(ReviewRefused, match="role operator"):
        services.put_into_effect(actor=person("reviewer"), flag_id=placed.pk)
    effect = services.put_into_effect(actor=person("operator"), flag_id=placed.pk)
    command = Command.objects.get()
    assert (command.action, command.environment, command.by.username) == (
        "quarantine", placed.environment.key, "operator-person",
    )  # fmt: skip
    assert command.reason == f"flag {placed.pk}: answer leaked in observation, major"
    assert state(effect) == "asked"
    assert not narrowed(FlagFilter(state="proposed")).exists()
    with pytest.raises(ReviewRefused, match="nothing that could be put"):
        services.put_into_effect(actor=person("operator"), flag_id=placed.pk)
    assert Command.objects.count() == 1


def test_an_operators_quarantine_is_asked_then_in_effect_from_the_rollout_the_trainer_names(
    flag: Any, run: Any, trainer_says: Any
) -> None:
    effect = flag("operator", wish=QUARANTINE).effect
    assert state(effect) == "asked"
    assert "waits for the supervisor" in detail(effect)
    trainer_says(run, effect.command, rollout=4)
    assert state(effect) == "in effect from rollout 4"


def test_what_was_trained_before_is_counted_up_to_the_rollout_of_the_answer(run: Any, environment: Any) -> None:
    # The window of a set is two rollouts with three unhinted plays each; hinted plays and faults are not trained.
    episodes = Episode.objects.filter(environment=environment)
    episodes.filter(arm="hinted").update(trained_tokens=0)
    played = episodes.filter(arm="unhinted").order_by("offset", "play")
    assert [(one.offset, one.play) for one in played] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    for episode, tokens in zip(played, (10, 20, 0, 5, 6, 7), strict=True):  # the third one was a fault
        Episode.objects.filter(pk=episode.pk).update(trained_tokens=tokens)
    first = trained_before(environment=environment, rollout=1)
    assert (first.episodes, first.tokens, first.designs) == (2, 30, 0)
    both = trained_before(environment=environment, rollout=2)
    assert (both.episodes, both.tokens, both.designs) == (5, 48, 1)
    assert trained_before(environment=environment) == trained_before(environment=environment, rollout=run.rollouts_done)
    Run.objects.filter(pk=run.pk).update(rollouts_done=1)
    fresh = Environment.objects.select_related("run").get(pk=environment.pk)
    assert trained_before(environment=fresh).episodes == 2


def test_two_flags_share_one_effect_and_the_last_withdrawn_undoes_it(
    flag: Any, person: Any, run: Any, trainer_says: Any
) -> None:
    one, two = flag("operator", wish=QUARANTINE), flag("operator", "shortcut", wish=QUARANTINE)
    assert one.effect == two.effect
    assert Command.objects.count() == 1
    trainer_says(run, one.effect.command, rollout=4)
    services.withdraw_flag(actor=person("operator"), flag_id=one.pk, reason="seen wrong")
    assert state(one.effect) == "in effect from rollout 4"
    services.withdraw_flag(actor=person("operator"), flag_id=two.pk)
    undo = Command.objects.get(action="release")
    assert state(one.effect) == "undo asked"
    trainer_says(run, undo, rollout=6)
    assert state(one.effect) == "undone from rollout 6"
    assert not withheld(environments=Environment.objects.all()).exists()


def test_an_effect_can_be_undone_while_its_flag_stays_and_asked_for_again(flag: Any, person: Any) -> None:
    placed = flag("operator", wish=QUARANTINE)
    services.undo_effect(actor=person("operator"), effect_id=placed.effect_id, reason="a mistake")
    with pytest.raises(ReviewRefused, match="undone already"):
        services.undo_effect(actor=person("operator"), effect_id=placed.effect_id)
    placed.refresh_from_db()
    assert placed.withdrawn_at is None
    again = flag("operator", wish=QUARANTINE)
    assert again.effect_id != placed.effect_id
    assert list(Command.objects.order_by("created_at").values_list("action", flat=True)) == [
        "quarantine", "release", "quarantine",
    ]  # fmt: skip
    assert AuditEntry.objects.get(action="flag.effect_undone").detail["reason"] == "a mistake"


def test_a_refusal_of_the_trainer_is_shown_and_undoing_it_asks_nothing(
    flag: Any, person: Any, run: Any, trainer_says: Any
) -> None:
    effect = flag("operator", wish=QUARANTINE).effect
    trainer_says(run, effect.command, rollout=4, accepted=False, message="this run has no environment 'r9'")
    assert (state(effect), detail(effect)) == ("refused by the trainer", "this run has no environment 'r9'")
    services.undo_effect(actor=person("operator"), effect_id=effect.pk)
    assert state(effect) == "undone"
    assert Command.objects.count() == 1


def test_what_is_in_quarantine_already_counts_as_in_effect(
    flag: Any, run: Any, environment: Any, trainer_says: Any
) -> None:
    effect = flag("operator", wish=QUARANTINE).effect
    done = EnvironmentStateChanged(environment=environment.key, state="quarantined", reason="by hand")
    trainer_says(run, effect.command, rollout=3, accepted=False, message="already quarantined", more=(done,))
    assert state(effect) == "in effect from rollout 3"


@pytest.mark.parametrize("status", ["completed", "draft"])
def test_a_run_that_no_trainer_reads_records_the_effect_for_exports_and_queues(
    flag: Any, run: Any, environment: Any, status: str
) -> None:
    Run.objects.filter(pk=run.pk).update(status=status)
    effect = flag("operator", wish=QUARANTINE).effect
    assert not Command.objects.exists()
    assert state(effect) == "recorded"
    assert "exports and queues leave it out" in detail(effect)
    assert list(withheld(environments=Environment.objects.all())) == [environment]


def test_a_stopped_run_obeys_when_it_goes_on_and_a_run_that_completed_first_never_did(flag: Any, run: Any) -> None:
    Run.objects.filter(pk=run.pk).update(status="stopped")
    effect = flag("operator", wish=QUARANTINE).effect
    assert state(effect) == "asked"
    assert "takes effect when it goes on" in detail(effect)
    Run.objects.filter(pk=run.pk).update(status="completed")
    assert state(effect) == "recorded"
    assert "ended before the trainer read it" in detail(effect)


def test_an_environment_that_a_resume_left_behind_reaches_no_trainer(flag: Any, environment: Any) -> None:
    Environment.objects.filter(pk=environment.pk).update(superseded=True)
    effect = flag("operator", wish=QUARANTINE).effect
    assert not Command.objects.exists()
    assert "a resume left the environment behind" in detail(effect)


def test_down_weight_carries_its_weight_and_its_undo_gives_full_weight(
    flag: Any, person: Any, run: Any, trainer_says: Any
) -> None:
    effect = flag("operator", wish=Wish(act="down_weight", weight=0.25)).effect
    assert (effect.command.action, effect.command.weight) == ("down_weight", 0.25)
    trainer_says(run, effect.command, rollout=4)
    assert (state(effect), detail(effect)) == ("in effect from rollout 4", "advantages times 0.25")
    services.undo_effect(actor=person("operator"), effect_id=effect.pk)
    assert Command.objects.latest("created_at").weight == 1.0


@pytest.mark.parametrize("weight", [None, 0.0, 1.0, -0.5, float("nan")])
def test_a_weight_outside_0_and_1_is_refused(flag: Any, weight: float | None) -> None:
    with pytest.raises(ReviewRefused, match="between 0 and 1"):
        flag("operator", wish=Wish(act="down_weight", weight=weight))


def test_a_second_weight_needs_the_first_undone(flag: Any) -> None:
    flag("operator", wish=Wish(act="down_weight", weight=0.25))
    with pytest.raises(ReviewRefused, match=r"to 0\.25 already"):
        flag("operator", wish=Wish(act="down_weight", weight=0.5))
    assert Flag.objects.count() == 1


def test_a_purge_takes_the_record_out_of_memory_and_can_be_taken_back(
    flag: Any, person: Any, run: Any, environment: Any, trainer_says: Any
) -> None:
    from trainer.events import MemoryRemoved

    effect = flag("operator", wish=Wish(act="purge_memory")).effect
    assert effect.command.action == "purge_memory"
    removed = MemoryRemoved(environment=environment.key, reason="purged")
    trainer_says(run, effect.command, rollout=4, more=(removed,))
    assert (state(effect), detail(effect)) == ("in effect from rollout 4", "shown to no designer")
    services.undo_effect(actor=person("operator"), effect_id=effect.pk)
    assert Command.objects.latest("created_at").action == "restore_memory"


def test_a_purge_that_no_trainer_has_read_yet_is_taken_back_in_its_order(
    flag: Any, person: Any, run: Any, environment: Any, trainer_says: Any
) -> None:
    from trainer.events import MemoryRemoved, MemoryRestored
    from webapp.review.selectors import withheld

    type(run).objects.filter(pk=run.pk).update(status="stopped")
    chosen = type(environment).objects.filter(pk=environment.pk)
    placed = flag("operator", wish=Wish(act="purge_memory"))
    assert withheld(environments=chosen).exists()
    services.withdraw_flag(actor=person("operator"), flag_id=placed.pk)
    assert not withheld(environments=chosen).exists()
    purge, restore = Command.objects.order_by("created_at")
    assert (purge.action, restore.action) == ("purge_memory", "restore_memory")
    again = flag("operator", wish=Wish(act="purge_memory")).effect
    services.undo_effect(actor=person("operator"), effect_id=again.pk)
    effect = placed.effect
    trainer_says(run, purge, rollout=4, more=(MemoryRemoved(environment=environment.key, reason="purged"),))
    trainer_says(run, restore, rollout=4, more=(MemoryRestored(environment=environment.key),))
    assert state(effect) == "undone from rollout 4"
    assert run.memoryrecords.get(environment=environment).removed_rollout is None


def test_a_purge_of_what_memory_does_not_hold_is_refused_and_places_no_flag(
    flag: Any, run: Any, environment: Any
) -> None:
    run.memoryrecords.filter(environment=environment).update(removed_rollout=1, removed_reason="oldest")
    with pytest.raises(ReviewRefused, match="memory record"):
        flag("operator", wish=Wish(act="purge_memory"))
    assert not Flag.objects.exists()
    assert not AuditEntry.objects.filter(action__startswith="flag.").exists()


def test_a_flag_is_withdrawn_by_its_author_or_an_operator_and_nobody_else(
    flag: Any, person: Any, environment: Any
) -> None:
    placed, other = flag("reviewer"), flag("operator")
    with pytest.raises(ReviewRefused, match="Only its author"):
        services.withdraw_flag(actor=person("reviewer"), flag_id=other.pk)
    services.withdraw_flag(actor=person("operator"), flag_id=placed.pk)
    with pytest.raises(ReviewRefused, match="withdrawn already"):
        services.withdraw_flag(actor=person("reviewer"), flag_id=placed.pk)
    shown = flags_of_environment(environment=environment, reader=person("reviewer"))
    assert [(one.flag.pk, one.may_withdraw) for one in shown] == [(other.pk, False), (placed.pk, False)]


def test_a_reviewer_cannot_undo_an_effect_by_withdrawing(flag: Any, person: Any) -> None:
    placed = flag("reviewer", wish=QUARANTINE)
    services.put_into_effect(actor=person("operator"), flag_id=placed.pk)
    with pytest.raises(ReviewRefused, match="role operator"):
        services.withdraw_flag(actor=person("reviewer"), flag_id=placed.pk)
    placed.refresh_from_db()
    assert placed.withdrawn_at is None


def test_a_retired_kind_cannot_be_chosen(flag: Any, person: Any, kind: Any) -> None:
    from webapp.review import services_kinds

    services_kinds.retire_kind(actor=person("admin"), kind_id=kind("answer-leaked").pk)
    with pytest.raises(ReviewRefused, match="retired"):
        flag()
