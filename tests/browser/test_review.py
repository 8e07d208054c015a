"""Reviewing in a real browser: flags placed where they point, the trainer's answer shown live, queues worked by keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.processes import elsewhere
from tests.browser.test_every_page import serious
from tests.review.kinds import seed_kinds
from tests.review.trainer import answer_command

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def kinds(transactional_db: None) -> None:
    seed_kinds()


def environment_of(run: Any) -> Any:
    return run.environments.filter(superseded=False, rollout=2).order_by("slot").first()


def test_lines_are_flagged_by_keyboard_and_the_quarantine_shows_when_the_trainer_obeys(
    page: Any, synthetic: Callable[..., Any], patience: int
) -> None:
    expect.set_options(timeout=min(patience, 60_000))
    made = synthetic()
    made.begin(4)
    environment = environment_of(made.run)
    page.goto(f"{made.url}environments/{environment.key}/")
    expect(page.locator("#live-chip")).to_have_text("live")

    page.locator("#L3 .no").click()
    page.locator("#L5 .no").click(modifiers=["Shift"])
    assert page.url.endswith("#L3-L5")
    expect(page.locator(".line.selected")).to_have_count(3)
    page.keyboard.press("f")
    dialog = page.locator("#flag-dialog")
    expect(dialog.get_by_label("first line")).to_have_value("3")
    expect(dialog.get_by_label("last line")).to_have_value("5")
    expect(dialog.get_by_label("About")).to_have_value("lines")
    expect(dialog.get_by_label("What is wrong")).to_be_focused()
    dialog.get_by_label("What is wrong").select_option(label="reward without solving")
    expect(dialog.get_by_label("Weight of its samples")).to_be_hidden()
    dialog.get_by_label("Effect").select_option("quarantine")
    dialog.get_by_label("Comment").fill("any text wins")
    dialog.get_by_role("button", name="Flag", exact=True).click()

    expect(page.locator(".line.flagged")).to_have_count(3)
    expect(page.locator(".flag-effect .chip")).to_have_text("asked")
    expect(page.locator("#live-chip")).to_have_text("live")
    page.evaluate("() => { window.neverReloaded = true; }")
    from webapp.runs.models import Command, Run

    run = Run.objects.get(pk=made.run.pk)
    elsewhere(lambda: answer_command(run, Command.objects.get(), rollout=4))
    expect(page.locator(".flag-effect .chip")).to_have_text("in effect from rollout 4")
    expect(page.locator(".line.flagged")).to_have_count(3)
    assert page.evaluate("() => window.neverReloaded") is True

    page.get_by_role("button", name="Undo the quarantine").click()
    expect(page.locator(".flag-effect .chip")).to_have_text("undo asked")


def test_a_turn_is_flagged_at_its_own_button_and_marked_in_the_transcript(
    page: Any, synthetic: Callable[..., Any], patience: int
) -> None:
    expect.set_options(timeout=min(patience, 60_000))
    made = synthetic()
    made.begin(4)
    episode = made.run.episodes.filter(environment=environment_of(made.run), turns__gte=3).first()
    page.goto(f"{made.url}episodes/{episode.pk}/")
    page.locator("#t2").hover()
    page.get_by_role("button", name="Flag turn 2").click()
    dialog = page.locator("#flag-dialog")
    expect(dialog.get_by_label("About")).to_have_value("turn")
    dialog.get_by_label("Effect").select_option("down_weight")
    dialog.get_by_label("Weight of its samples").fill("0.5")
    dialog.get_by_role("button", name="Flag", exact=True).click()
    expect(page.locator("#t2 .flag-mark")).to_have_text("answer leaked in observation")
    expect(page.locator(".flag-effect")).to_contain_text("down-weight to 0.5")


@pytest.fixture
def queue(synthetic: Callable[..., Any]) -> Any:
    """A queue of every environment of a run."""
    from webapp.accounts.models import User
    from webapp.review import services_queues
    from webapp.review.services_queues import Rules

    made = synthetic()
    made.begin(4)
    rules = Rules(signals=(), threshold=0.0)
    queue = services_queues.create_queue(actor=User.objects.get(), run_id=made.run.pk, name="everything", rules=rules)
    services_queues.fill_queue(queue_id=queue.pk)
    return queue


def test_a_queue_is_worked_through_by_keyboard_alone(page: Any, queue: Any, patience: int) -> None:
    from webapp.review.models import Review

    expect.set_options(timeout=min(patience, 60_000))
    page.goto(f"/review/queues/{queue.pk}/")
    page.keyboard.press("Enter")
    page.wait_for_url("**/review/items/**")
    first = page.url
    page.keyboard.press("?")
    sheet = page.locator("#keys")
    for words in (
        "fine",
        "answer leaked in observation",
        "commit, next item",
        "skip",
        "quarantine, on and off",
        "comment",
    ):
        expect(sheet.get_by_text(words, exact=True)).to_be_visible()
    page.keyboard.press("Escape")

    page.keyboard.press(
        "2"
    )  # reward without solving: nothing has been flagged yet, so the kinds stand in their own order
    page.keyboard.press("p")
    page.keyboard.press("x")
    expect(page.get_by_label("Effect")).to_have_value("quarantine")
    page.keyboard.press("x")
    expect(page.get_by_label("Effect")).to_have_value("note")
    page.keyboard.press("c")
    page.keyboard.type("2 wins it s u")  # keys are off while one types
    page.keyboard.press("Control+Enter")
    page.wait_for_url(lambda url: url != first)
    given = Review.objects.exclude(given_at=None).get()
    assert (given.kind.key, given.get_severity_display(), given.comment) == ("shortcut", "critical", "2 wins it s u")
    assert given.flag is not None

    second = page.url
    page.keyboard.press("s")
    page.wait_for_url(lambda url: url != second)
    third = page.url
    page.keyboard.press("0")
    expect(page.get_by_label("Effect")).to_be_disabled()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != third)
    page.keyboard.press("u")
    page.wait_for_url(third)
    page.keyboard.press("m")
    expect(page.get_by_text("unreadable")).to_be_visible()
    assert Review.objects.exclude(given_at=None).count() == 1


def test_many_items_are_labelled_by_keyboard(page: Any, queue: Any, patience: int) -> None:
    from webapp.review.models import Review

    expect.set_options(timeout=min(patience, 60_000))
    page.goto(f"/review/queues/{queue.pk}/")
    expect(page.locator("[data-bulk]")).to_be_hidden()
    page.keyboard.press("a")
    total = queue.items.count()
    expect(page.locator("[data-bulk-count]")).to_have_text(str(total))
    page.keyboard.press("c")
    page.keyboard.type("looked at them all")
    page.get_by_label("Comment for all ticked").blur()
    page.keyboard.press("b")
    expect(page.get_by_text(f"{total} items labelled.")).to_be_visible()
    assert set(Review.objects.values_list("comment", flat=True)) == {"looked at them all"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_review_pages_with_something_on_them_are_clean_and_accessible(scheme: str, page: Any, queue: Any) -> None:
    from webapp.accounts.models import User
    from webapp.review import services
    from webapp.review.models import FlagKind
    from webapp.review.services import Pointer, Wish

    page.emulate_media(color_scheme=scheme)
    item = queue.items.order_by("-score", "id").first()
    actor, kind, pointer = User.objects.get(), FlagKind.objects.get(key="shortcut"), Pointer(first_line=3, last_line=5)
    for wish, subject in ((Wish(act="quarantine"), "lines"), (Wish(), "environment")):
        options = {"wish": wish, "subject": subject, "pointer": pointer, "comment": "any word wins"}
        elsewhere(
            lambda given=options: services.place_flag(
                actor=actor, environment_id=item.environment_id, kind_id=kind.pk, **given
            )
        )
    environment = f"/runs/{queue.run_id}/environments/{item.environment.key}/"
    found: dict[str, list[str]] = {}
    queues = ("/review/queues/", "/review/queues/new/", f"/review/queues/{queue.pk}/", f"/review/items/{item.pk}/")
    for address in ("/review/", "/review/flags/", *queues, environment):
        page.goto(address)
        page.wait_for_load_state("networkidle")
        if address.startswith("/review/items/"):
            page.keyboard.press("Enter")  # reserve it, so that the label form is there
            page.get_by_text("What is it?").wait_for()
        if address == environment:
            page.keyboard.press("f")
            page.locator("#flag-dialog").wait_for()
        for width in (820, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("() => document.documentElement.scrollWidth - innerWidth") > 0:
                found.setdefault(address, []).append(f"scrolls sideways at {width}")
        if problems := serious(page):
            found.setdefault(address, []).extend(problems)
    assert found == {}
