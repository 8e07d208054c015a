"""Reviewing in a real browser: flags placed by keyboard at their place, and what the trainer answers shown without a reload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.processes import elsewhere
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
