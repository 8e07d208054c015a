"""The command palette in a real browser: opened and left by keys, a run found on the server and opened, what goes wrong said in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_every_page import serious
from tests.pages.test_run_pages import new_run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def chosen(page: Any) -> Any:
    return page.locator('#palette [role="option"][aria-selected="true"]')


def test_ctrl_k_finds_a_run_and_enter_opens_it(page: Any) -> None:
    wanted = new_run(name="reactor valves", slug="valves-1")
    new_run(name="other", slug="other-1")
    page.goto("/pools/")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Go to")
    expect(field).to_be_focused()
    expect(page.locator("#palette")).to_contain_text("Newest runs")
    page.keyboard.type("valv")
    expect(page.locator("#palette-status")).to_have_text("1 found")
    expect(chosen(page)).to_contain_text("reactor valves")
    expect(field).to_have_attribute("aria-activedescendant", "palette-1-1")
    expect(field).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{wanted.pk}/")


def test_enter_right_after_typing_waits_for_the_answer_to_what_was_typed(page: Any) -> None:
    wanted = new_run(name="reactor valves", slug="valves-1")
    page.goto("/pools/")
    page.keyboard.press("Meta+k")
    expect(chosen(page)).to_contain_text("reactor valves")
    page.keyboard.type("nothing of the kind")
    expect(page.locator("#palette-status")).to_have_text(
        "Nothing found for “nothing of the kind”: no page you may open, no run in use."
    )
    expect(page.get_by_role("combobox", name="Go to")).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")  # nothing to open
    page.keyboard.press("Control+a")
    page.keyboard.type("valves")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{wanted.pk}/")


def test_an_answer_to_an_earlier_text_is_not_shown(page: Any) -> None:
    new_run(name="valves", slug="valves-1")
    page.goto("/pools/")
    held: list[Any] = []
    page.route("**/palette/?q=valv", lambda route: held.append(route))
    page.keyboard.press("Control+k")
    expect(chosen(page)).to_be_visible()
    page.keyboard.type("valv")
    while not held:
        page.wait_for_timeout(50)
    page.keyboard.type("x")
    expect(page.locator("#palette-status")).to_contain_text("Nothing found for “valvx”")
    for route in held:
        route.fulfill(status=200, body='<a role="option" href="/runs/" aria-selected="false">too late</a>')
    page.wait_for_timeout(500)
    expect(page.locator("#palette-status")).to_contain_text("Nothing found for “valvx”")
    expect(page.locator('#palette [role="option"]')).to_have_count(0)


def test_arrows_go_round_escape_closes_and_the_focus_returns(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    key = run.run.environments.filter(superseded=False).first().key
    page.goto(f"{run.url}environments/")
    search = page.locator('main input[type="search"]').first
    search.focus()
    page.keyboard.press("Control+k")  # a chord: typing does not stand in its way
    expect(chosen(page)).to_have_text("Overview")
    page.keyboard.press("ArrowDown")
    expect(chosen(page)).to_have_text("Charts")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(chosen(page)).to_have_attribute("id", page.locator('#palette [role="option"]').last.get_attribute("id"))
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).not_to_be_visible()
    expect(search).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.press("Control+k")  # again closes it
    expect(page.locator("#palette")).not_to_be_visible()
    page.get_by_role("button", name="Go to a page").click()
    page.keyboard.type(key)
    expect(page.locator("#palette-status")).to_have_text("1 found")
    chosen(page).click()
    page.wait_for_url(f"**{run.url}environments/{key}/")


def test_it_stays_shut_over_another_dialog_and_leads_to_the_sheet_of_keys(page: Any) -> None:
    page.goto("/pools/")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet).to_contain_text("go to a page, a run or an environment")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).not_to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("shortcuts")
    expect(chosen(page)).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Enter")
    expect(sheet).to_be_visible()
    expect(page.locator("#palette")).not_to_be_visible()


def test_what_goes_wrong_is_said_in_the_palette_and_typing_on_asks_again(page: Any) -> None:
    page.expected_statuses = {502}
    page.goto("/pools/")
    page.route("**/palette/?q=al", lambda route: route.fulfill(status=502, body="gone"))
    page.keyboard.press("Control+k")
    expect(chosen(page)).to_be_visible()
    page.keyboard.type("al")
    status = page.locator("#palette-status")
    expect(status).to_contain_text("The server refused: 502")
    expect(page.locator('#palette [role="option"]')).to_have_count(0)
    expect(page.locator("#messages")).to_be_empty()
    page.keyboard.type("erts")
    expect(chosen(page)).to_contain_text("Alerts")
    expect(status).not_to_have_class("bad-text")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_open_palette_has_nothing_axe_calls_serious(page: Any, synthetic: Callable[..., Any], scheme: str) -> None:
    run = synthetic()
    run.begin(2)
    page.emulate_media(color_scheme=scheme)
    page.goto(run.url)
    page.keyboard.press("Control+k")
    expect(chosen(page)).to_be_visible()
    assert serious(page) == []
    page.keyboard.type("r000")
    expect(page.locator("#palette")).to_contain_text("Environments of this run")
    assert serious(page) == []
    page.keyboard.type("zzz")
    expect(page.locator("#palette-status")).to_contain_text("Nothing found")
    assert serious(page) == []
