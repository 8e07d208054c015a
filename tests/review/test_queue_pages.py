"""Queues on pages: who may open what, the way through a queue, what is hidden, downloads, hostile text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.pages.synthetic import ATTACKS
from webapp.environments.models import Environment
from webapp.review import services_queues, services_reviews
from webapp.review.models import Flag, Queue, QueueItem, Review
from webapp.review.services_queues import Rules
from webapp.review.services_reviews import Label

pytestmark = pytest.mark.django_db


@pytest.fixture
def reviewer(as_role: Callable[[str], Client]) -> Client:
    return as_role("reviewer")


@pytest.fixture
def queue(run: Any, person: Any) -> Callable[..., Queue]:
    """``queue(items=2)``: a queue of every environment, cut to its first items."""

    def make(items: int = 2, name: str = "everything", **rules: Any) -> Queue:
        chosen = Rules(signals=(), threshold=0.0, **rules)
        made = services_queues.create_queue(actor=person("reviewer"), run_id=run.pk, name=name, rules=chosen)
        services_queues.fill_queue(queue_id=made.pk)
        surplus = made.items.order_by("-score", "id").values_list("pk", flat=True)[items:]
        QueueItem.objects.filter(pk__in=list(surplus)).delete()
        return made

    return make


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def where(name: str, *arguments: Any) -> str:
    return reverse(f"review:{name}", args=arguments)


def test_queues_are_for_reviewers_and_up(queue: Any, as_role: Any) -> None:
    made = queue()
    item = made.items.first()
    pages = [where("queues"), where("queue_new"), where("queue", made.pk), where("item", item.pk)]  # fmt: skip
    pages += [where("labels_csv", made.pk), where("labels_jsonl", made.pk)]
    for page in pages:
        assert [as_role(role).get(page).status_code for role in ("anonymous", "", "viewer", "reviewer")] == [
            302,
            403,
            403,
            200,
        ], page
    acts = [where("queue_next", made.pk), where("queue_undo", made.pk), where("queue_fill", made.pk), where("queue_bulk", made.pk),
            where("queue_unskip", made.pk), where("queue_act", made.pk, "close"), where("item_claim", item.pk), where("item_give", item.pk),
            where("item_skip", item.pk), where("add_environment", item.environment_id)]  # fmt: skip
    for act in acts:
        assert [as_role(role).post(act).status_code for role in ("anonymous", "", "viewer")] == [302, 403, 403], act
        assert as_role("reviewer").get(act).status_code == 405


def test_a_queue_is_made_filled_and_worked_through(run: Any, reviewer: Client) -> None:
    values = {
        "name": "first look",
        "run": run.pk,
        "threshold": "0",
        "reviewers_per_item": "1",
        "reservation_minutes": "15",
        "skill": "",
    }
    answer = reviewer.post(where("queue_new"), values)
    made = Queue.objects.get()
    assert answer["Location"] == where("queue", made.pk)
    total = run.environments.count()
    assert f"Looked at {total} environments, added {total}." in text(reviewer.get(where("queue", made.pk)))
    QueueItem.objects.exclude(pk__in=list(made.items.order_by("id").values_list("pk", flat=True)[:2])).delete()
    first = reviewer.post(where("queue_next", made.pk))["Location"]
    assert "What is it?" in text(reviewer.get(first))
    item = Review.objects.exclude(reviewer=None).get().item
    second = reviewer.post(where("item_give", item.pk), {"verdict": "fine"})["Location"]
    assert second != first
    other = Review.objects.filter(given_at=None).exclude(reviewer=None).get().item
    last = reviewer.post(where("item_skip", other.pk))["Location"]
    assert last == where("queue", made.pk)
    seen = text(reviewer.get(last))
    assert "Nothing is left for you in this queue." in seen
    assert "Offer me the 1 I skipped again" in seen
    reviewer.post(where("queue_unskip", made.pk))
    assert reviewer.post(where("queue_next", made.pk))["Location"] == where("item", other.pk)


def test_a_queue_that_seems_empty_looks_at_the_run_again_first(queue: Any, run: Any, reviewer: Client) -> None:
    made = queue(items=1)
    QueueItem.objects.all().delete()
    Queue.objects.update(scanned_through=-1)
    assert reviewer.post(where("queue_next", made.pk))["Location"].startswith("/review/items/")


def test_a_bad_form_makes_no_queue_and_says_why(run: Any, reviewer: Client) -> None:
    values = {"name": "", "run": run.pk, "threshold": "-1", "reviewers_per_item": "9", "reservation_minutes": "15"}
    seen = text(reviewer.post(where("queue_new"), values))
    assert "This field is required." in seen
    assert "less than or equal to 5" in seen
    assert not Queue.objects.exists()


def test_the_kinds_that_are_used_most_have_the_first_keys(
    queue: Any, reviewer: Client, person: Any, kind: Any, environment: Any
) -> None:
    from webapp.review import services

    services.place_flag(actor=person("reviewer"), environment_id=environment.pk, kind_id=kind("unreadable").pk)
    made = queue()
    page = reviewer.get(reviewer.post(where("queue_next", made.pk))["Location"])
    assert [one.key for _, one in page.context["keyed"]][:2] == ["unreadable", "answer-leaked"]
    assert len(page.context["keyed"]) == 9
    assert len(page.context["more_kinds"]) == 6


def test_a_second_reviewer_sees_neither_the_label_nor_a_flag_before_giving_one(
    queue: Any, as_role: Any, person: Any, kind: Any, run: Any
) -> None:
    made = queue(items=1, reviewers_per_item=2)
    item = services_reviews.claim_next(actor=person("operator"), queue_id=made.pk)
    label = Label(kind_id=kind("shortcut").pk, comment="any word wins")
    services_reviews.give_review(actor=person("operator"), item_id=item.pk, label=label)
    reviewer = as_role("reviewer")
    page = reviewer.post(where("queue_next", made.pk))["Location"]
    for address in (
        page,
        where("queue", made.pk),
        reverse("runs:environment", args=[run.pk, item.environment.key]),
        where("labels_csv", made.pk),
    ):
        assert "any word wins" not in text(reviewer.get(address))
    reviewer.post(
        where("item_give", item.pk), {"verdict": str(kind("crash").pk), "severity": "1", "comment": "div by zero"}
    )
    seen = text(reviewer.get(page))
    assert "any word wins" in seen
    assert "div by zero" in seen
    assert {flag.kind.key for flag in Flag.objects.all()} == {"shortcut", "crash"}


def test_undo_goes_back_to_the_item(queue: Any, reviewer: Client) -> None:
    made = queue()
    first = reviewer.post(where("queue_next", made.pk))["Location"]
    reviewer.post(f"{first}give/", {"verdict": "fine"})
    assert reviewer.post(where("queue_undo", made.pk))["Location"] == first
    assert "What is it?" in text(reviewer.get(first))
    reviewer.post(where("queue_undo", made.pk))
    assert "There is no label of yours to take back" in text(reviewer.get(where("queue", made.pk)))


@pytest.mark.parametrize("values", [{}, {"verdict": "999999"}, {"verdict": "planet"}])
def test_a_label_that_does_not_exist_is_not_given(values: dict[str, str], queue: Any, reviewer: Client) -> None:
    page = reviewer.post(where("queue_next", queue().pk))["Location"]
    assert reviewer.post(f"{page}give/", values)["Location"] == page
    assert "Choose what is wrong, or fine." in text(reviewer.get(page))
    assert not Review.objects.exclude(given_at=None).exists()


def test_ticked_items_get_one_label(queue: Any, reviewer: Client) -> None:
    made = queue(items=3)
    ids = list(made.items.order_by("id").values_list("pk", flat=True))
    reviewer.post(
        where("queue_bulk", made.pk),
        {"item": [str(ids[0]), str(ids[1]), "x"], "verdict": "fine", "severity": "2", "wish": "note"},
    )
    assert set(Review.objects.exclude(given_at=None).values_list("item_id", flat=True)) == set(ids[:2])
    assert "2 items labelled." in text(reviewer.get(where("queue", made.pk)))
    reviewer.post(where("queue_bulk", made.pk), {"verdict": "fine"})
    assert "Tick items and choose a label." in text(reviewer.get(where("queue", made.pk)))


def test_agreement_of_nothing_is_a_dash(queue: Any, reviewer: Client) -> None:
    made = queue(reviewers_per_item=2)
    seen = text(reviewer.get(where("queue", made.pk)))
    assert '<span class="label">agreement, Fleiss&#x27; κ</span><span class="value">–</span>' in seen
    assert "no item is done yet" in seen


def test_labels_for_download_are_safe_cells_and_whole_json(
    queue: Any, reviewer: Client, person: Any, kind: Any
) -> None:
    formula = '=HYPERLINK("http://x","y")'
    made = queue(items=2, name="-2+3")
    first, second = made.items.order_by("id")
    Environment.objects.filter(pk=first.environment_id).update(class_name=formula)
    reason = {"signal": "leak", "strength": 1.0, "text": "t", "episode": None, "turn": None}
    QueueItem.objects.filter(pk=first.pk).update(reasons=[reason, {**reason, "signal": "quick_win"}], score=2.5)
    services_reviews.claim_item(actor=person("reviewer"), item_id=first.pk)
    label = Label(kind_id=kind("crash").pk, severity=3, comment="@cmd\nsecond line, with \u202e")
    services_reviews.give_review(actor=person("reviewer"), item_id=first.pk, label=label)
    services_reviews.claim_item(actor=person("reviewer"), item_id=second.pk)
    services_reviews.give_review(actor=person("reviewer"), item_id=second.pk, label=Label())

    answer = reviewer.get(where("labels_csv", made.pk))
    assert answer["Content-Disposition"] == f'attachment; filename="queue-{made.pk}-labels.csv"'
    one, two = csv.DictReader(io.StringIO(answer.content.decode(), newline=""))
    assert (one["queue"], one["class_name"], one["comment"]) == (
        "'-2+3",
        f"'{formula}",
        "'@cmd\nsecond line, with \u202e",
    )
    assert (one["suspicion"], one["signals"], one["label"], one["severity"]) == (
        "2.5",
        "leak quick_win",
        "crash",
        "critical",
    )
    assert (two["label"], two["severity"], two["effect"], two["item_done"]) == ("fine", "", "", "True")

    lines = reviewer.get(where("labels_jsonl", made.pk)).content.decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[0]["class_name"] == formula
    assert rows[0]["signals"] == ["leak", "quick_win"]
    assert (rows[1]["severity"], rows[1]["effect"]) == (None, None)


def test_an_environment_page_offers_the_open_queues_of_its_run(
    run: Any, queue: Any, environment: Any, reviewer: Client, viewer: Client
) -> None:
    made = queue(items=0)
    page = reverse("runs:environment", args=[run.pk, environment.key])
    assert "Add to it" in text(reviewer.get(page))
    assert "Add to it" not in text(viewer.get(page))
    reviewer.post(where("add_environment", environment.pk), {"queue": made.pk})
    assert made.items.get().environment == environment
    reviewer.post(where("add_environment", environment.pk), {"queue": "x"})
    assert "Choose a queue." in text(reviewer.get(page))
    services_queues.close_queue(actor=made.created_by, queue_id=made.pk)
    assert "Add to it" not in text(reviewer.get(page))


def test_hostile_names_are_text_on_every_queue_page(ingested: Any, reviewer: Client, person: Any) -> None:
    run = ingested(hostile=True)
    for attack in ATTACKS:
        made = services_queues.create_queue(
            actor=person("reviewer"), run_id=run.pk, name=attack, rules=Rules(signals=(), threshold=0.0)
        )
    services_queues.fill_queue(queue_id=made.pk)
    reason = {"signal": "leak", "strength": 1.0, "text": " ".join(ATTACKS), "episode": None, "turn": None}
    QueueItem.objects.update(reasons=[reason])
    item = reviewer.post(where("queue_next", made.pk))["Location"]
    for page in (where("queues"), where("queue_new"), where("queue", made.pk), item):
        seen = text(reviewer.get(page))
        assert "<img src=x" not in seen
        assert "<script>alert" not in seen
        assert "<svg/onload" not in seen


def test_empty_states_say_what_to_do_next(reviewer: Client, run: Any, person: Any) -> None:
    assert "Make a queue" in text(reviewer.get(where("queues")))
    made = services_queues.create_queue(actor=person("reviewer"), run_id=run.pk, name="q", rules=Rules(threshold=99.0))
    assert "Nothing to review" in text(reviewer.get(where("queue", made.pk)))


def test_queues_of_a_deleted_run_are_gone(queue: Any, run: Any, reviewer: Client) -> None:
    made = queue()
    type(run).objects.filter(pk=run.pk).update(deleted_at=run.created_at)
    assert reviewer.get(where("queue", made.pk)).status_code == 404
    assert reviewer.get(where("item", made.items.first().pk)).status_code == 404
    assert "No open queue" in text(reviewer.get(where("queues")))


def test_a_list_of_items_costs_the_same_for_any_number(
    ingested: Any, reviewer: Client, person: Any, django_assert_max_num_queries: Any
) -> None:
    run = ingested(environments=9, plays=2, rollouts=6)
    made = services_queues.create_queue(
        actor=person("reviewer"), run_id=run.pk, name="q", rules=Rules(signals=(), threshold=0.0)
    )
    services_queues.fill_queue(queue_id=made.pk)
    with django_assert_max_num_queries(24):
        assert len(reviewer.get(where("queue", made.pk)).context["items"]) > 20
