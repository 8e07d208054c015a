"""A checkpoint of the built-in model is tried in a real browser: one message, one play, held by a real worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.trainer.starter_run import make, program

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


def test_a_checkpoint_answers_a_message_and_plays_an_environment(
    page: Any, worker: Any, synthetic: Callable[..., Any], patience: int
) -> None:
    from webapp.runs.models import Run

    expect.set_options(timeout=patience)
    made = synthetic()
    made.begin(2)
    run, folder = made.run, Path(made.run.directory)
    environment = run.environments.filter(superseded=False).first()
    environment.code, environment.hint_text = program("r0000-s00")
    environment.save()
    shutil.rmtree(folder)
    run.config = json.loads(make(folder).config.read_text())["config"]
    run.save(update_fields=["config"])

    page.goto(f"{made.url}checkpoints/")
    page.get_by_role("link", name="Try 000001", exact=False).click()
    page.wait_for_url("**/checkpoints/000001/try/")
    page.get_by_role("button", name="Load the checkpoint").click()
    page.wait_for_url("**/try/*/")
    expect(page.locator("#compact-notice")).to_contain_text("does not chat")
    expect(page.locator("#try-board")).to_have_attribute("data-state", "ready")
    page.evaluate("() => { window.neverReloaded = true; }")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()

    page.get_by_label("New tokens").fill("8")
    page.get_by_label("Message", exact=True).fill("Hello <b>there</b>")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator("#try-board .turn.observation")).to_contain_text("Hello <b>there</b>")
    expect(page.locator("#try-board .turn.action")).to_have_count(1)
    expect(page.locator("#try-board")).to_contain_text("after a prompt of")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    assert page.evaluate("() => window.neverReloaded === true")
    page.reload()
    expect(page.locator("#try-board .turn.action")).to_have_count(1)

    page.get_by_role("link", name="Play", exact=True).click()
    page.wait_for_url("**?mode=play")
    page.get_by_label("Environment", exact=True).select_option(environment.key)
    page.get_by_label("Seed", exact=True).fill("7")
    page.get_by_label("Hint", exact=True).select_option("hinted")
    page.get_by_role("button", name="Let it play").click()
    expect(page.locator(".play-over")).to_contain_text("reward")
    assert page.locator("#try-board .turn.action").count() >= 1
    expect(page.locator("#try-board .turn .hint").first).to_contain_text("HINT")

    # An environment of another run, under the same key.
    other = Run.objects.create(
        name="other tanks",
        slug="other-tanks",
        config=run.config,
        preset="demo",
        seed=7,
        status="stopped",
        total_rollouts=2,
        directory="",
    )
    environment.pk, environment.run, environment.candidate, environment.document = None, other, None, None
    environment.class_name = "OtherTankEnv"
    environment.save(force_insert=True)
    page.get_by_label("Environments of").fill("other tanks")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**from=other*tanks*")
    page.get_by_label("Environment", exact=True).select_option(f"{other.pk}/{environment.key}")
    page.get_by_label("Seed", exact=True).fill("9")
    page.get_by_role("button", name="Let it play").click()
    expect(page.locator("#try-board h3").first).to_have_text("OtherTankEnv")
    expect(page.locator(".play-over")).to_contain_text("reward")
    expect(page.locator("#try-board")).to_contain_text("of run other tanks")
    expect(page.get_by_label("Environments of")).to_have_value("other-tanks")
    page.get_by_role("link", name="OtherTankEnv of other tanks").wait_for()

    page.get_by_role("button", name="End the session").click()
    expect(page.locator("#trial-state")).to_contain_text("ended")
