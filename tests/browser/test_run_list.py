"""Choosing runs in the list and acting on them, views that are saved, and a run that is deleted and restored, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.pages.test_run_pages import new_run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def made() -> list[Any]:
    states = {"alpha": "completed", "beta": "failed", "gamma": "running", "delta": "draft"}
    return [new_run(name=name, slug=name, status=status, gpu_set=name) for name, status in states.items()]


def test_chosen_rows_say_what_each_act_would_change_and_an_act_changes_just_that(page: Any) -> None:
    alpha, beta, gamma, _ = made()
    page.goto("/runs/")
    bar = page.locator("#bulk-form")
    expect(bar).to_be_hidden()
    for run in (alpha, beta, gamma):
        page.locator(f"#run-{run.pk} [data-pick]").check()
    expect(bar.locator("[data-picked-count]")).to_have_text("3 chosen")
    expect(bar.get_by_role("button", name="Archive")).to_have_text("Archive (2 of 3)")
    expect(bar.get_by_role("button", name="Stop")).to_have_text("Stop (1 of 3)")
    bar.get_by_role("button", name="Archive").click()
    expect(page.locator("#messages")).to_contain_text("2 runs archived")
    expect(page.locator("#messages")).to_contain_text("1 live or in the queue")
    expect(page.locator("#runs-table tbody tr")).to_have_count(2)


def test_shift_click_chooses_the_rows_between(page: Any) -> None:
    made()
    page.goto("/runs/")
    picks = page.locator("[data-pick]")
    picks.nth(0).click()
    picks.nth(3).click(modifiers=["Shift"])
    expect(page.locator("[data-picked-count]")).to_have_text("4 chosen")
    page.locator("[data-pick-page]").uncheck()
    expect(page.locator("#bulk-form")).to_be_hidden()


def test_the_whole_filter_is_confirmed_with_its_count(page: Any) -> None:
    for index in range(60):
        new_run(name=f"old {index}", slug=f"old-{index}", status="completed")
    page.goto("/runs/?q=old")
    page.locator("[data-pick]").first.check()
    page.locator("[data-whole-filter]").check()
    expect(page.locator("[data-picked-count]")).to_have_text("the whole list")
    page.get_by_label("Tag to add or remove").fill("sweep")
    page.get_by_role("button", name="Add tag").click()
    expect(page.locator("h1")).to_have_text("Add the tag “sweep” to 60 runs")
    page.locator("#confirm-bulk").click()
    page.wait_for_url(re.compile(r"/runs/\?q=old$"))
    expect(page.locator("#messages")).to_contain_text("60 runs tagged")
    page.goto("/runs/?tag=sweep")
    expect(page.locator(".list-foot")).to_contain_text("60 match")


def test_a_view_is_saved_opened_and_deleted(page: Any) -> None:
    made()
    page.goto("/runs/?status=failed&group=preset")
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name="Save this view").click()
    page.locator("#view-name").fill("what broke")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#messages")).to_contain_text("The view what broke is saved.")
    page.goto("/runs/")
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("link", name="what broke").click()
    page.wait_for_url(re.compile(r"status=failed&group=preset$"))
    expect(page.locator("#runs-table .row-link")).to_have_text(["beta"])
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name="Delete the view what broke").click()
    page.get_by_text("Views", exact=True).click()
    expect(page.locator(".views-list")).to_contain_text("None saved yet")


def test_a_pattern_is_searched_and_a_wrong_one_is_told(page: Any) -> None:
    page.expected_statuses = {400}
    made()
    page.goto("/runs/")
    page.keyboard.press("/")
    page.keyboard.type("^(alp|bet)")
    page.locator(".pattern").click()
    page.get_by_placeholder("Search name").press("Enter")
    expect(page.locator("#runs-table .row-link")).to_have_text(["beta", "alpha"])
    page.get_by_placeholder("Search name").fill("(")
    page.get_by_placeholder("Search name").press("Enter")
    expect(page.locator("#search-problem")).to_contain_text("not a regular expression")


def test_a_run_is_deleted_from_its_page_and_restored(page: Any) -> None:
    alpha, *_ = made()
    page.goto(f"/runs/{alpha.pk}/")
    page.get_by_label("More").click()
    page.locator(".menu-list").get_by_role("button", name="Delete").click()
    page.locator("#confirm-delete").click()
    expect(page.locator("#run-head")).to_contain_text("It can be restored until")
    page.goto("/runs/")
    expect(page.locator("#runs-table .row-link")).to_have_text(["delta", "gamma", "beta"])
    page.goto("/runs/?show=deleted")
    page.locator("#runs-table .row-link").click()
    page.get_by_role("button", name="Restore").click()
    expect(page.locator("#messages")).to_contain_text("alpha is restored.")
    page.goto("/runs/")
    expect(page.locator("#runs-table .row-link")).to_have_count(4)
