"""Queues are filled by rules, which say why."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.accounts.models import AuditEntry
from webapp.environments.models import Environment
from webapp.review import services, services_queues
from webapp.review.errors import ReviewRefused
from webapp.review.models import Queue
from webapp.review.selectors_queues import (
    free_items,
)
from webapp.review.services import Wish
from webapp.review.services_queues import Rules
from webapp.runs.models import Attempt, Run

pytestmark = pytest.mark.django_db
EVERYTHING = Rules(signals=(), threshold=0.0)


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
