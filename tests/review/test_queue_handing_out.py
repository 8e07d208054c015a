"""Items are handed out so that nobody gets in another's way, blind until one has judged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.review import services_queues, services_reviews
from webapp.review.errors import ReviewRefused
from webapp.review.models import Flag, Queue, QueueItem, Review
from webapp.review.selectors_queues import (
    labels_for_download,
    list_items,
    show_items,
)
from webapp.review.services_reviews import Label, claim_item, claim_next, give_review, skip_item

pytestmark = pytest.mark.django_db


def expire(queue: Queue) -> None:
    Review.objects.filter(item__queue=queue, given_at=None).update(reserved_until=timezone.now() - timedelta(seconds=1))


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
