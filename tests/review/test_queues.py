"""Queues: filled by rules, handed out so that nobody gets in another's way, blind until one has judged, counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.accounts.models import AuditEntry
from webapp.environments.models import Environment
from webapp.review import services, services_queues, services_reviews
from webapp.review.errors import ReviewRefused
from webapp.review.models import Flag, Queue, QueueItem, Review
from webapp.review.selectors_queues import (
    agreement_in,
    free_items,
    labels_for_download,
    list_items,
    progress_of,
    show_items,
)
from webapp.review.services import Wish
from webapp.review.services_queues import Rules
from webapp.review.services_reviews import Label, claim_item, claim_next, give_review, skip_item, take_back
from webapp.runs.models import Attempt, Command, Run

pytestmark = pytest.mark.django_db
EVERYTHING = Rules(signals=(), threshold=0.0)


@pytest.fixture
def people(person: Callable[[str], Any]) -> list[Any]:
    """Three reviewers."""
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User

    group = Group.objects.get_or_create(name="reviewer")[0]
    made = [User.objects.create_user(name) for name in ("ana", "ben", "cem")]
    for one in made:
        one.groups.add(group)
    return made


@pytest.fixture
def queue(run: Any, people: list[Any]) -> Callable[..., Queue]:
    """``queue(items=2, reviewers=2)``: every environment of a run is an item; only the first ``items`` stay."""

    def make(items: int = 3, reviewers: int = 1, blind: bool = True, **rules: Any) -> Queue:
        chosen = Rules(signals=(), threshold=0.0, reviewers_per_item=reviewers, blind=blind, **rules)
        made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="all", rules=chosen)
        services_queues.fill_queue(queue_id=made.pk)
        surplus = made.items.order_by("-score", "id").values_list("pk", flat=True)[items:]
        QueueItem.objects.filter(pk__in=list(surplus)).delete()
        return made

    return make


def expire(queue: Queue) -> None:
    Review.objects.filter(item__queue=queue, given_at=None).update(reserved_until=timezone.now() - timedelta(seconds=1))


# Filling -----------------------------------------------------------------------------------------------------------------


def test_a_queue_takes_in_what_its_rules_find_and_says_why(run: Any, people: list[Any]) -> None:
    Environment.objects.filter(run=run).update(hint_state="ok", measures={})
    one = run.environments.filter(rollout=0).first()
    Environment.objects.filter(pk=one.pk).update(hint_state="leaky", hint_reason="names it")
    made = services_queues.create_queue(
        actor=people[0], run_id=run.pk, name=" leaks ", rules=Rules(signals=("leak",), threshold=2.0)
    )
    filled = services_queues.fill_queue(queue_id=made.pk, actor=people[0])
    assert (filled.looked_at, filled.added, filled.rollouts_left) == (run.environments.count(), 1, 0)
    item = made.items.get()
    assert (item.environment, item.score, item.reasons[0]["text"]) == (one, 2.0, "the hint leaks: names it")
    assert [review.place for review in item.reviews.order_by("place")] == [0]
    again = services_queues.fill_queue(queue_id=made.pk, actor=people[0])
    assert (again.looked_at, again.added) == (0, 0)
    assert list(AuditEntry.objects.filter(action__startswith="queue.").order_by("id").values_list("action", flat=True)) == [
        "queue.created", "queue.filled",
    ]  # fmt: skip


def test_a_sign_below_the_least_suspicion_is_left_out(run: Any, people: list[Any]) -> None:
    Environment.objects.filter(run=run).update(hint_state="leaky")
    made = services_queues.create_queue(
        actor=people[0], run_id=run.pk, name="q", rules=Rules(signals=("leak",), threshold=2.1)
    )
    assert services_queues.fill_queue(queue_id=made.pk).added == 0


def test_rollouts_still_under_way_are_looked_at_when_they_have_finished(run: Any, people: list[Any]) -> None:
    Run.objects.filter(pk=run.pk).update(rollouts_done=2)
    made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="q", rules=EVERYTHING)
    services_queues.fill_queue(queue_id=made.pk)
    assert set(made.items.values_list("environment__rollout", flat=True)) == {0}
    Run.objects.filter(pk=run.pk).update(rollouts_done=4)
    services_queues.fill_queue(queue_id=made.pk)
    assert set(made.items.values_list("environment__rollout", flat=True)) == {0, 2}


def test_one_look_is_bounded_and_the_next_goes_on_after_it(
    run: Any, people: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_queues, "SCAN_ENVIRONMENTS", 1)
    made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="q", rules=EVERYTHING)
    assert services_queues.fill_queue(queue_id=made.pk).rollouts_left == 1
    assert services_queues.fill_queue(queue_id=made.pk).rollouts_left == 0
    assert made.items.count() == run.environments.count()


def test_what_a_resume_wrote_anew_is_looked_at_again(run: Any, people: list[Any]) -> None:
    made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="q", rules=EVERYTHING)
    services_queues.fill_queue(queue_id=made.pk)
    old = run.environments.filter(rollout=2).first()
    Environment.objects.filter(run=run, rollout=2).update(superseded=True)
    fields = {
        name: getattr(old, name)
        for name in ("key", "slot", "skill", "class_name", "code", "code_digest", "candidate_key")
    }
    new = Environment.objects.create(run=run, attempt=2, rollout=2, added_at=old.added_at, **fields)
    Attempt.objects.create(run=run, number=2, start_rollout=2)
    Run.objects.filter(pk=run.pk).update(attempt=2)
    assert services_queues.fill_queue(queue_id=made.pk).added == 1
    assert made.items.filter(environment=new).exists()


def test_quarantined_environments_are_neither_taken_in_nor_offered(
    run: Any, people: list[Any], person: Any, kind: Any
) -> None:
    out, later = run.environments.filter(rollout=0)[:2]
    quarantine = {"kind_id": kind("crash").pk, "wish": Wish(act="quarantine")}
    services.place_flag(actor=person("operator"), environment_id=out.pk, **quarantine)
    made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="q", rules=EVERYTHING)
    services_queues.fill_queue(queue_id=made.pk)
    assert made.items.count() == run.environments.count() - 1
    before = free_items(queue=made, reader=people[0])
    services.place_flag(actor=person("operator"), environment_id=later.pk, **quarantine)
    assert free_items(queue=made, reader=people[0]) == before - 1


def test_an_environment_is_added_by_hand_once_and_only_to_a_queue_of_its_run(
    run: Any, people: list[Any], ingested: Any
) -> None:
    made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="q", rules=Rules(threshold=99.0))
    one = run.environments.first()
    item = services_queues.add_by_hand(actor=people[0], queue_id=made.pk, environment_id=one.pk)
    assert (item.added_by, item.reviews.count()) == (people[0], 1)
    with pytest.raises(ReviewRefused, match="already"):
        services_queues.add_by_hand(actor=people[0], queue_id=made.pk, environment_id=one.pk)
    other = ingested(seed=11).environments.first()
    with pytest.raises(ReviewRefused, match="only"):
        services_queues.add_by_hand(actor=people[0], queue_id=made.pk, environment_id=other.pk)


@pytest.mark.parametrize("rules", [
    Rules(signals=("astrology",)), Rules(reviewers_per_item=0), Rules(reviewers_per_item=6), Rules(reservation_minutes=0),
    Rules(threshold=-1.0), Rules(threshold=float("nan")),
])  # fmt: skip
def test_rules_that_make_no_sense_are_refused(rules: Rules, run: Any, people: list[Any]) -> None:
    with pytest.raises(ReviewRefused):
        services_queues.create_queue(actor=people[0], run_id=run.pk, name="q", rules=rules)
    assert not Queue.objects.exists()


# Handing out -------------------------------------------------------------------------------------------------------------


def test_case_24_two_people_get_different_items_and_one_who_leaves_blocks_nobody(queue: Any, people: list[Any]) -> None:
    ana, ben, cem = people
    made = queue(items=2)
    first, second = claim_next(actor=ana, queue_id=made.pk), claim_next(actor=ben, queue_id=made.pk)
    assert first != second
    assert claim_next(actor=cem, queue_id=made.pk) is None
    expire(made)  # Ana and Ben have closed their tabs
    assert claim_next(actor=cem, queue_id=made.pk) == first
    give_review(actor=cem, item_id=first.pk, label=Label())
    assert claim_next(actor=cem, queue_id=made.pk) == second
    assert [shown.item for shown in list_items(queue=made, reader=ana, state="done")[1]] == [first]


def test_case_24_an_item_that_needs_two_labels_goes_to_a_second_person_who_sees_none(
    queue: Any, people: list[Any], kind: Any
) -> None:
    ana, ben, cem = people
    made = queue(items=1, reviewers=2)
    item = claim_next(actor=ana, queue_id=made.pk)
    give_review(actor=ana, item_id=item.pk, label=Label(kind_id=kind("shortcut").pk, comment="any word wins"))
    assert claim_next(actor=ana, queue_id=made.pk) is None  # nobody gives both labels
    assert claim_next(actor=ben, queue_id=made.pk) == item
    blind = show_items(queue=made, items=[item], reader=ben)[0]
    assert (blind.labels, blind.given, blind.wanted) == (None, 1, 2)
    assert not Flag.objects.exists()  # a flag would give Ana's judgement away
    assert labels_for_download(queue=made, reader=ben) == ([], 1)
    give_review(actor=ben, item_id=item.pk, label=Label())
    item.refresh_from_db()
    seen = show_items(queue=made, items=[item], reader=ben)[0]
    assert [(one.reviewer, one.label) for one in seen.labels] == [(ana, "shortcut"), (ben, "fine")]
    flag = Flag.objects.get()
    assert (flag.by, flag.kind.key, flag.comment) == (ana, "shortcut", "any word wins")
    assert show_items(queue=made, items=[item], reader=cem)[0].labels is not None


def test_whoever_comes_back_to_an_expired_reservation_still_has_it_until_somebody_takes_it(
    queue: Any, people: list[Any]
) -> None:
    ana, ben, _ = people
    made = queue(items=1)
    item = claim_next(actor=ana, queue_id=made.pk)
    expire(made)
    assert claim_next(actor=ana, queue_id=made.pk) == item
    expire(made)
    assert claim_next(actor=ben, queue_id=made.pk) == item
    with pytest.raises(ReviewRefused, match="somebody else took the item"):
        give_review(actor=ana, item_id=item.pk, label=Label())
    give_review(actor=ben, item_id=item.pk, label=Label())
    with pytest.raises(ReviewRefused, match="not kept"):
        give_review(actor=ben, item_id=item.pk, label=Label())
    assert Review.objects.filter(given_at__isnull=False).count() == 1


def test_coming_back_gives_the_same_item_with_a_fresh_reservation(queue: Any, people: list[Any]) -> None:
    made = queue(items=2, reservation_minutes=30)
    item = claim_next(actor=people[0], queue_id=made.pk)
    Review.objects.filter(item=item).update(reserved_until=timezone.now() + timedelta(seconds=5))
    assert claim_next(actor=people[0], queue_id=made.pk) == item
    until = Review.objects.get(item=item).reserved_until
    assert timedelta(minutes=29) < until - timezone.now() <= timedelta(minutes=30)


def test_a_place_is_taken_by_one_of_two_who_saw_it_free(queue: Any, people: list[Any]) -> None:
    made = queue(items=1)
    place = services_reviews.free_for(queue=made, reviewer=people[0]).get()
    assert services_reviews._take(place, people[0], made) is True
    assert services_reviews._take(place, people[1], made) is False
    assert Review.objects.get().reviewer == people[0]


def test_nobody_takes_two_places_of_one_item(queue: Any, people: list[Any]) -> None:
    made = queue(items=1, reviewers=2)
    first, second = services_reviews.free_for(queue=made, reviewer=people[0]).order_by("place")
    assert services_reviews._take(first, people[0], made) is True
    assert services_reviews._take(second, people[0], made) is False


def test_the_most_suspicious_comes_first(queue: Any, people: list[Any]) -> None:
    made = queue(items=3)
    last = made.items.order_by("id").last()
    QueueItem.objects.filter(pk=last.pk).update(score=5.0)
    assert claim_next(actor=people[0], queue_id=made.pk) == last


def test_a_skipped_item_comes_back_only_when_asked_for_and_is_free_for_others(queue: Any, people: list[Any]) -> None:
    ana, ben, _ = people
    made = queue(items=1)
    item = claim_next(actor=ana, queue_id=made.pk)
    skip_item(actor=ana, item_id=item.pk)
    assert claim_next(actor=ana, queue_id=made.pk) is None
    assert services_reviews.forget_skips(actor=ana, queue_id=made.pk) == 1
    assert claim_next(actor=ana, queue_id=made.pk) == item
    skip_item(actor=ana, item_id=item.pk)
    assert claim_next(actor=ben, queue_id=made.pk) == item
    with pytest.raises(ReviewRefused, match="do not hold"):
        skip_item(actor=ana, item_id=item.pk)


def test_a_chosen_item_can_be_claimed_when_it_is_free(queue: Any, people: list[Any]) -> None:
    ana, ben, _ = people
    made = queue(items=2)
    item = made.items.order_by("id").last()
    assert claim_item(actor=ana, item_id=item.pk) == item
    with pytest.raises(ReviewRefused, match="taken or done"):
        claim_item(actor=ben, item_id=item.pk)
    give_review(actor=ana, item_id=item.pk, label=Label())
    with pytest.raises(ReviewRefused, match="reviewed this item already"):
        claim_item(actor=ana, item_id=item.pk)


def test_a_closed_queue_hands_nothing_out_until_it_is_open_again(queue: Any, people: list[Any]) -> None:
    made = queue()
    services_queues.close_queue(actor=people[0], queue_id=made.pk)
    with pytest.raises(ReviewRefused, match="closed"):
        claim_next(actor=people[0], queue_id=made.pk)
    with pytest.raises(ReviewRefused, match="closed"):
        services_queues.fill_queue(queue_id=made.pk)
    services_queues.reopen_queue(actor=people[0], queue_id=made.pk)
    assert claim_next(actor=people[0], queue_id=made.pk) is not None


# Labels ------------------------------------------------------------------------------------------------------------------


def test_an_operators_label_with_an_effect_asks_the_trainer_and_points_at_the_evidence(
    queue: Any, person: Any, kind: Any, run: Any
) -> None:
    made = queue(items=1)
    item = claim_next(actor=person("operator"), queue_id=made.pk)
    episode = run.episodes.filter(environment=item.environment).first()
    reason = {"signal": "quick_win", "strength": 1.0, "text": "", "episode": episode.pk, "turn": 0}
    QueueItem.objects.filter(pk=item.pk).update(reasons=[reason])
    label = Label(kind_id=kind("answer-leaked").pk, severity=3, wish=Wish(act="quarantine"))
    review = give_review(actor=person("operator"), item_id=item.pk, label=label)
    assert (review.flag.episode, review.flag.turn, review.flag.severity) == (episode, 0, 3)
    assert Command.objects.get().environment == item.environment.key


def test_an_effect_that_cannot_be_had_leaves_a_note_that_says_so(queue: Any, person: Any, kind: Any, run: Any) -> None:
    made = queue(items=1)
    item = claim_next(actor=person("operator"), queue_id=made.pk)
    run.memoryrecords.filter(environment=item.environment).delete()
    label = Label(kind_id=kind("crash").pk, comment="twice", wish=Wish(act="purge_memory"))
    review = give_review(actor=person("operator"), item_id=item.pk, label=label)
    assert (review.flag.wish, review.flag.effect) == ("note", None)
    assert review.flag.comment.startswith("twice (purge from memory was wanted: ")


def test_fine_with_an_effect_is_refused(queue: Any, people: list[Any]) -> None:
    made = queue(items=1)
    item = claim_next(actor=people[0], queue_id=made.pk)
    with pytest.raises(ReviewRefused, match="fine needs no effect"):
        give_review(actor=people[0], item_id=item.pk, label=Label(wish=Wish(act="quarantine")))


def test_a_label_is_taken_back_with_its_flag_and_given_again(queue: Any, people: list[Any], kind: Any) -> None:
    ana = people[0]
    made = queue(items=2)
    item = claim_next(actor=ana, queue_id=made.pk)
    give_review(actor=ana, item_id=item.pk, label=Label(kind_id=kind("crash").pk))
    assert take_back(actor=ana, queue_id=made.pk) == item
    assert Flag.objects.get().withdrawn_reason == "the label was taken back"
    item.refresh_from_db()
    assert item.completed_at is None
    assert claim_next(actor=ana, queue_id=made.pk) == item
    give_review(actor=ana, item_id=item.pk, label=Label())
    with pytest.raises(ReviewRefused, match="no label of yours"):
        take_back(actor=people[1], queue_id=made.pk)


def test_a_label_cannot_be_changed_after_the_others_could_be_seen(queue: Any, people: list[Any]) -> None:
    ana, ben, _ = people
    made = queue(items=1, reviewers=2)
    for one in (ana, ben):
        give_review(actor=one, item_id=claim_next(actor=one, queue_id=made.pk).pk, label=Label())
    with pytest.raises(ReviewRefused, match="can be seen"):
        take_back(actor=ben, queue_id=made.pk)


def test_an_open_queue_of_two_shows_labels_and_flags_at_once(queue: Any, people: list[Any], kind: Any) -> None:
    ana, ben, _ = people
    made = queue(items=1, reviewers=2, blind=False)
    item = claim_next(actor=ana, queue_id=made.pk)
    give_review(actor=ana, item_id=item.pk, label=Label(kind_id=kind("crash").pk))
    assert Flag.objects.count() == 1
    assert [one.label for one in show_items(queue=made, items=[item], reader=ben)[0].labels] == ["crash"]
    give_review(actor=ben, item_id=claim_next(actor=ben, queue_id=made.pk).pk, label=Label(kind_id=kind("crash").pk))
    assert Flag.objects.count() == 2


def test_many_items_get_one_label_and_those_that_are_not_free_are_named(queue: Any, people: list[Any]) -> None:
    ana, ben, _ = people
    made = queue(items=3)
    taken = claim_next(actor=ben, queue_id=made.pk)
    ids = list(made.items.values_list("pk", flat=True))
    bulk = services_reviews.review_many(actor=ana, queue_id=made.pk, item_ids=ids, label=Label(comment="checked"))
    assert bulk.given == 2
    assert bulk.refused == [f"{taken.environment}: Every place of this item is taken or done; take the next one."]
    assert set(Review.objects.filter(given_at__isnull=False).values_list("comment", flat=True)) == {"checked"}
    with pytest.raises(ReviewRefused, match="At most 200"):
        services_reviews.review_many(actor=ana, queue_id=made.pk, item_ids=range(201), label=Label())


# Counting ----------------------------------------------------------------------------------------------------------------


def test_agreement_counts_done_items_of_two_people(queue: Any, people: list[Any], kind: Any) -> None:
    ana, ben, _ = people
    made = queue(items=4, reviewers=2)
    crash = kind("crash").pk
    answers = {ana: [crash, None, crash, None], ben: [crash, None, None, None]}
    for person, labels in answers.items():
        for label in labels[:-1] if person is ben else labels:
            item = claim_next(actor=person, queue_id=made.pk)
            give_review(actor=person, item_id=item.pk, label=Label(kind_id=label))
    # Three done items: crash/crash, fine/fine, crash/fine. Observed 2/3; expected (2·1 + 1·2)/9 = 4/9; κ = (2/3 − 4/9) / (5/9).
    agreement, pairs = agreement_in(queue=made)
    assert (agreement.name, agreement.items) == ("Cohen's κ", 3)
    assert agreement.value == pytest.approx(0.4)
    assert [(pair.first, pair.second, pair.items, pair.value) for pair in pairs] == [
        ("ana", "ben", 3, pytest.approx(0.4))
    ]


def test_three_reviewers_are_compared_by_fleiss_and_one_alone_by_nothing(
    queue: Any, people: list[Any], kind: Any
) -> None:
    made = queue(items=2, reviewers=3)
    answers = {0: ["crash", "fine"], 1: ["crash", "fine"], 2: ["fine", "fine"]}
    for index, labels in answers.items():
        for label in labels:
            item = claim_next(actor=people[index], queue_id=made.pk)
            chosen = Label(kind_id=None if label == "fine" else kind(label).pk)
            give_review(actor=people[index], item_id=item.pk, label=chosen)
    # Items ccf and fff: observed (1/3 + 1)/2 = 2/3; shares 1/3 and 2/3: expected 5/9; κ = (1/9) / (4/9).
    agreement, pairs = agreement_in(queue=made)
    assert (agreement.name, agreement.value) == ("Fleiss' κ", pytest.approx(0.25))
    assert len(pairs) == 3
    alone = queue(items=1)
    give_review(actor=people[0], item_id=claim_next(actor=people[0], queue_id=alone.pk).pk, label=Label())
    assert agreement_in(queue=alone)[0].value is None


def test_progress_counts_labels_and_skips_of_everybody(queue: Any, people: list[Any], kind: Any) -> None:
    ana, ben, _ = people
    made = queue(items=3)
    give_review(actor=ana, item_id=claim_next(actor=ana, queue_id=made.pk).pk, label=Label())
    give_review(actor=ana, item_id=claim_next(actor=ana, queue_id=made.pk).pk, label=Label(kind_id=kind("crash").pk))
    skip_item(actor=ben, item_id=claim_next(actor=ben, queue_id=made.pk).pk)
    assert [(one.reviewer, one.given, one.fine, one.skipped) for one in progress_of(queue=made)] == [
        ("ana", 2, 1, 0), ("ben", 0, 0, 1),
    ]  # fmt: skip
