"""The main job, end to end in a real browser: a demo run on the real trainer, sampler, learner and sandbox."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.processes import elsewhere

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1500)]

CHART = '[data-chart="win-rate"]'


def points(page: Any, chart: str = CHART) -> int:
    return int(page.locator(chart).get_attribute("data-points") or 0)


def wait_for_points(page: Any, count: int) -> None:
    page.wait_for_function(f"() => Number(document.querySelector('{CHART}')?.dataset.points || 0) >= {count}")


def wait_for_status(page: Any, *wanted: str) -> None:
    page.wait_for_function(f"() => {list(wanted)}.includes(document.getElementById('run-head')?.dataset.status)")


def newest_run() -> Any:
    from webapp.runs.models import Run

    return Run.objects.latest("pk")


def test_a_person_starts_a_run_watches_it_and_stops_it(page: Any, worker: Any, patience: int) -> None:
    expect.set_options(timeout=patience)
    # From the empty list to a running run, through the form.
    page.get_by_role("link", name="Start a run").click()
    page.get_by_role("link", name=re.compile(r"^demo\s")).click()
    page.get_by_label("Name").fill("first run")
    page.locator('[name="schedule.rollouts"]').fill("500")
    expect(page.locator("[data-changed-total]")).to_have_text("1")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    expect(page.locator("h1")).to_have_text("first run")

    # It goes through its states and two rollouts without a reload.
    page.evaluate("() => { window.neverReloaded = true; }")
    wait_for_status(page, "running")
    wait_for_points(page, 1)
    first = page.locator("[data-rollouts-done]").inner_text()
    wait_for_points(page, 3)
    assert int(page.locator("[data-rollouts-done]").inner_text()) >= int(first) + 1
    expect(page.locator("#live-chip")).to_have_text("live")
    expect(page.locator('[data-figure="win_rate/unhinted"] [data-value]')).not_to_have_text("–")
    assert page.evaluate("() => window.neverReloaded === true")

    # An environment of it, and the two arms of one of its seeds side by side.
    page.locator("#latest .row-link").last.click()
    page.wait_for_url(re.compile(r"/environments/r\d{4}-s\d\d/$"))
    expect(page.locator(".code .line").first).to_be_visible()
    page.get_by_role("link", name="side by side").click()
    page.wait_for_url(re.compile(r"/pairs/r\d{4}-s\d\d/\d+/$"))
    assert page.locator(".pair-cell-head.unhinted").is_visible()
    assert page.locator(".pair-cell-head.hinted").is_visible()
    before = page.url
    page.keyboard.press("j")
    page.wait_for_url(lambda url: url != before)

    # Stop: asks first, then says what is proven.
    page.goto(f"/runs/{newest_run().pk}/")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("#confirm-stop").click()
    wait_for_status(page, "stopped")
    expect(page.locator("#run-state .chip").first).to_have_text("stopped")
    run = newest_run()
    assert run.status == "stopped"
    assert run.attempts.get().exit_code == 0


def test_a_killed_trainer_shows_and_a_resume_goes_on(page: Any, worker: Any, patience: int) -> None:
    from webapp.accounts.models import User
    from webapp.runs import services
    from webapp.runs.configuration import read_config

    expect.set_options(timeout=patience)
    actor = User.objects.get()
    config = read_config(preset="tiny", overrides={"schedule.rollouts": 500})
    draft = services.create_run(actor=actor, config=config, name="to be killed")
    run = elsewhere(lambda: services.start_run(actor=actor, run_id=draft.pk))
    page.goto(f"/runs/{run.pk}/")
    wait_for_status(page, "running")
    wait_for_points(page, 2)

    os.kill(run.attempts.get().pid, signal.SIGKILL)
    wait_for_status(page, "failed", "lost")
    expect(page.locator(".run-failure")).to_be_visible()
    done = newest_run().rollouts_done

    page.get_by_role("button", name="Resume from checkpoint").click()
    wait_for_status(page, "running")
    wait_for_points(page, done + 2)
    expect(page.locator(".run-sub")).to_contain_text("attempt 2")
    # What attempt 1 did before its last checkpoint stands; nothing is there twice.
    values = list(
        run.metricpoints.filter(name="loss/total", superseded=False)
        .order_by("rollout")
        .values_list("rollout", flat=True)
    )
    assert values == list(range(len(values)))
