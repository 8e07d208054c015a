"""A person plays an environment in a real browser: answers come from the sandbox in a real worker, over the socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.environments.conftest import GUESS

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


def test_a_person_plays_by_keyboard_wins_and_sees_the_agents_play(
    page: Any, worker: Any, synthetic: Callable[..., Any], patience: int
) -> None:
    expect.set_options(timeout=patience)
    run = synthetic()
    run.begin(2)
    environment = run.run.environments.filter(superseded=False).first()
    environment.code = GUESS
    environment.save()
    episode = run.run.episodes.filter(environment=environment, arm="unhinted", offset=0).first()
    goal = 130 + episode.seed % 70

    page.goto(f"{run.url}environments/{environment.key}/")
    page.keyboard.press("o")
    page.wait_for_url("**/play/")
    page.get_by_label("Seed", exact=True).fill(str(episode.seed))
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*/play/*/")
    expect(page.locator("#board")).to_contain_text(f"Game {episode.seed}.")
    page.evaluate("() => { window.neverReloaded = true; }")

    expect(page.locator("#action")).to_be_focused()
    page.keyboard.type("100")
    page.keyboard.press("Enter")
    expect(page.locator("#board .turn.observation")).to_have_count(2)
    expect(page.locator("#board")).to_contain_text("larger")
    expect(page.locator("#action")).to_be_focused()
    page.keyboard.type(str(goal))
    page.keyboard.press("Enter")
    expect(page.locator(".play-over")).to_contain_text("won")
    expect(page.locator(".play-over")).to_contain_text("reward 1")
    assert page.evaluate("() => window.neverReloaded === true")
    expect(page.locator(".agent-plays li").first).to_contain_text("unhinted")
    page.get_by_role("link", name="beside yours").first.click()
    page.wait_for_url(f"**/beside/{episode.pk}/")
    page.go_back()
    page.locator(f'.agent-plays a[href$="/episodes/{episode.pk}/"]').click()
    page.wait_for_url(f"**/episodes/{episode.pk}/")


def test_an_edited_variant_goes_through_the_gates_while_one_looks(
    page: Any, worker: Any, synthetic: Callable[..., Any], patience: int
) -> None:
    expect.set_options(timeout=patience)
    run = synthetic()
    run.begin(1)
    environment = run.run.environments.filter(superseded=False).first()
    environment.code = GUESS
    environment.save()
    page.goto(f"{run.url}environments/{environment.key}/")
    page.keyboard.press("e")
    page.wait_for_url("**/variants/new/")
    page.get_by_label("Program").fill(GUESS.replace("def step(self, action):", "def step(self, action:"))
    page.get_by_role("button", name="Save and judge").click()
    page.wait_for_url("**/variants/1/")
    expect(page.locator(".gate-run .chip").first).to_contain_text("rejected")
    expect(page.locator(".gate.failed")).to_contain_text("parse")
    assert page.locator(".diff .line.added").count() == 1
