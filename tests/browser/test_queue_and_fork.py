"""Before a run starts: differences, a dry run, its place in the queue, a fork. Afterwards: what it takes of its machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from tests.pages.test_run_pages import new_run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def test_differences_are_listed_while_one_types_and_a_dry_run_starts_nothing(page: Any) -> None:
    from webapp.runs.models import Run

    page.goto("/runs/new/?preset=tiny")
    page.locator('[name="schedule.rollouts"]').fill("8")
    expect(page.locator("[data-changes] li")).to_have_text(["schedule.rollouts 6 8"])
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#estimate")).to_contain_text("these settings are valid")
    expect(page.locator("[data-changes] li")).to_have_count(1)
    expect(page.locator('[name="schedule.rollouts"]')).to_have_value("8")
    assert not Run.objects.exists()


def test_a_waiting_run_is_moved_to_the_front(page: Any) -> None:
    now = timezone.now()
    first, second = (
        new_run(name=name, slug=name, status="queued", queued_at=now, queue_rank=rank)
        for rank, name in enumerate(("one", "two"))
    )
    page.goto("/runs/")
    page.get_by_role("link", name="Queue").click()
    rows = page.locator("[data-waiting] .row-link")
    expect(rows).to_have_text(["one", "two"])
    page.get_by_role("button", name="Move two to the front").click()
    expect(page.locator("[data-waiting] .row-link")).to_have_text(["two", "one"])
    expect(page.locator("#messages")).to_contain_text("two is number 1 of the queue.")
    first.refresh_from_db()
    second.refresh_from_db()
    assert (second.queue_rank, first.queue_rank) == (1, 2)


def test_a_run_is_forked_from_one_of_its_checkpoints(page: Any, synthetic: Callable[..., Any]) -> None:
    from webapp.runs.models import Run

    run = synthetic()
    run.begin(3)
    name = run.run.checkpoints.latest("id").name
    folder = Path(run.run.directory) / "checkpoints" / name
    folder.mkdir(parents=True)
    (folder / "COMPLETE").touch()
    page.goto(run.url)
    page.get_by_label("More").click()
    page.get_by_role("link", name="Fork from a checkpoint").click()
    page.get_by_role("link", name=f"Fork at {name}").click()
    expect(page.locator("h1")).to_have_text(f"Fork tanks at {name}")
    page.locator("#section-optim summary").click()
    page.locator('[name="optim.learning_rate"]').fill("0.00002")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    expect(page.locator(".run-sub")).to_contain_text(f"forked at {name} of tanks")
    made = Run.objects.get(parent=run.run)
    assert (made.fork_checkpoint, made.config["optim"]["learning_rate"]) == (name, 2e-5)


def test_the_system_tab_draws_what_was_measured_over_time(page: Any, synthetic: Callable[..., Any]) -> None:
    from webapp.runs.models import SystemSample

    run = synthetic()
    run.begin(1)
    now = timezone.now()
    for number in range(20):
        SystemSample.objects.create(
            run=run.run,
            attempt=1,
            at=now + timedelta(seconds=15 * number),
            processes=4,
            cpu_cores=1.5,
            memory_bytes=2**30,
        )
    page.goto(f"{run.url}system/")
    page.wait_for_function("() => Spadework.charts.range('system/cpu_cores')?.[1] === 285")
    expect(page.locator('[data-chart="system/cpu_cores"] [data-legend] strong')).to_have_text("1.50")
    expect(page.locator('[data-chart="system/disk_gib"] .chart-empty')).to_be_visible()
    assert page.locator('[data-chart="system/gpu_busy_percent"]').count() == 0
