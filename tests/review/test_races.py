"""Two people at the same instant, on real transactions: each item goes to one of them, each effect is asked for once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest

from tests.review.kinds import seed_kinds
from webapp.review import services, services_queues, services_reviews
from webapp.review.errors import ReviewRefused
from webapp.review.models import Effect, Review, Skip
from webapp.review.services import Wish
from webapp.review.services_queues import Rules
from webapp.review.services_reviews import Label
from webapp.runs.models import Command

pytestmark = pytest.mark.django_db(transaction=True)
PEOPLE = 4


@pytest.fixture
def people(transactional_db: None) -> list[Any]:
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User

    seed_kinds()
    group = Group.objects.get_or_create(name="operator")[0]
    made = [User.objects.create_user(f"person-{number}") for number in range(PEOPLE)]
    for one in made:
        one.groups.add(group)
    return made


def at_once(people: list[Any], act: Callable[[Any], Any]) -> list[Any]:
    """What ``act`` gave for everybody, all started together."""
    from django.db import connections

    barrier = Barrier(len(people))

    def one(person: Any) -> Any:
        try:
            barrier.wait(timeout=30)
            return act(person)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(people)) as pool:
        return list(pool.map(one, people))


def test_four_people_who_ask_at_once_get_four_items_and_finish_them(people: list[Any], run: Any) -> None:
    queue = services_queues.create_queue(
        actor=people[0], run_id=run.pk, name="q", rules=Rules(signals=(), threshold=0.0, reviewers_per_item=2)
    )
    services_queues.fill_queue(queue_id=queue.pk)
    items = queue.items.count()

    def work(person: Any) -> int:
        given = 0
        while (item := services_reviews.claim_next(actor=person, queue_id=queue.pk)) is not None:
            services_reviews.give_review(actor=person, item_id=item.pk, label=Label())
            given += 1
        return given

    assert sum(at_once(people, work)) == 2 * items
    assert queue.items.exclude(completed_at=None).count() == items
    pairs = list(Review.objects.values_list("item_id", "reviewer_id"))
    assert len(pairs) == len(set(pairs)) == 2 * items


def test_one_person_who_skips_and_labels_an_item_at_once_has_skipped_it(
    people: list[Any], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import connections, transaction

    ana = people[0]
    queue = services_queues.create_queue(
        actor=ana, run_id=run.pk, name="q", rules=Rules(signals=(), threshold=0.0, reviewers_per_item=1)
    )
    services_queues.fill_queue(queue_id=queue.pk)
    item = services_reviews.claim_next(actor=ana, queue_id=queue.pk)
    skipped, locked = Event(), Event()
    lock = services_reviews._locked_item

    def skip() -> None:
        try:
            with transaction.atomic():
                services_reviews.skip_item(actor=ana, item_id=item.pk)
                skipped.set()
                assert locked.wait(timeout=60)  # whoever labels it holds the item that the skip refers to
        finally:
            connections.close_all()

    def lock_and_tell(item_id: int) -> Any:
        found = lock(item_id)
        locked.set()
        return found

    monkeypatch.setattr(services_reviews, "_locked_item", lock_and_tell)
    with ThreadPoolExecutor(1) as threads:
        skipping = threads.submit(skip)
        assert skipped.wait(timeout=60)
        with pytest.raises(ReviewRefused, match="your label was not kept"):
            services_reviews.give_review(actor=ana, item_id=item.pk, label=Label())
        skipping.result()
    assert list(Skip.objects.values_list("item", "reviewer")) == [(item.pk, ana.pk)]


def test_four_people_who_quarantine_at_once_ask_the_trainer_once(people: list[Any], run: Any) -> None:
    from webapp.review.models import FlagKind

    environment, kind = run.environments.first(), FlagKind.objects.get(key="crash")

    def place(person: Any) -> int:
        flag = services.place_flag(
            actor=person, environment_id=environment.pk, kind_id=kind.pk, wish=Wish(act="quarantine")
        )
        return int(flag.effect_id or 0)

    assert len(set(at_once(people, place))) == 1
    assert Command.objects.count() == Effect.objects.count() == 1
