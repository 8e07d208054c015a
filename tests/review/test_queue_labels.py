"""Labels: what they ask of the trainer, taking them back, many at once, agreement and progress."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.review import services_reviews
from webapp.review.errors import ReviewRefused
from webapp.review.models import Flag, QueueItem, Review
from webapp.review.selectors_queues import (
    agreement_in,
    labels_for_download,
    progress_of,
    show_items,
)
from webapp.review.services import Wish
from webapp.review.services_reviews import Label, claim_next, give_review, skip_item, take_back
from webapp.runs.models import Command

pytestmark = pytest.mark.django_db


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


def test_a_blind_label_can_be_changed_only_while_the_others_are_hidden(
    queue: Any, people: list[Any], kind: Any
) -> None:
    ana, ben, cem = people
    made = queue(items=1, reviewers=3)
    item = claim_next(actor=ana, queue_id=made.pk)
    give_review(actor=ana, item_id=item.pk, label=Label(kind_id=kind("crash").pk, comment="it hangs"))
    give_review(actor=ben, item_id=claim_next(actor=ben, queue_id=made.pk).pk, label=Label())
    assert show_items(queue=made, items=[item], reader=ben)[0].labels is None  # his own is in; another is to come
    rows, hidden = labels_for_download(queue=made, reader=ben)
    assert ([(row["reviewer"], row["label"]) for row in rows], hidden) == ([("ben", "fine")], 1)
    assert take_back(actor=ben, queue_id=made.pk) == item
    for one in (ben, cem):
        give_review(actor=one, item_id=claim_next(actor=one, queue_id=made.pk).pk, label=Label())
    item.refresh_from_db()
    assert [one.label for one in show_items(queue=made, items=[item], reader=ben)[0].labels] == [
        "crash",
        "fine",
        "fine",
    ]
    with pytest.raises(ReviewRefused, match="can be seen"):
        take_back(actor=ben, queue_id=made.pk)


def test_a_queue_closed_meanwhile_takes_no_label(queue: Any, people: list[Any], kind: Any) -> None:
    from webapp.review.services_queues import close_queue, reopen_queue

    made = queue(items=1)
    item = claim_next(actor=people[0], queue_id=made.pk)
    close_queue(actor=people[1], queue_id=made.pk)
    with pytest.raises(ReviewRefused, match="is closed"):
        give_review(actor=people[0], item_id=item.pk, label=Label(kind_id=kind("crash").pk))
    assert not Review.objects.filter(given_at__isnull=False).exists()
    assert not Flag.objects.exists()
    reopen_queue(actor=people[1], queue_id=made.pk)
    assert give_review(actor=people[0], item_id=item.pk, label=Label()).given_at is not None


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
