"""Keys on every page: none stands for two things, what is heavy is in the sheet, and typing triggers nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_every_page import addresses, review_addresses

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

BOUND = """() => [...document.querySelectorAll('[data-key]')].filter((one) => one.getClientRects().length)
  .map((one) => ({ key: one.dataset.key, label: one.dataset.keyLabel, isHeavy: 'keyHeavy' in one.dataset,
    goes: one.href || one.closest('form')?.action || one.dataset.open || '' }))"""
SHEET = "() => [...document.querySelectorAll('#keys [data-page-keys] dt')].map((one) => one.textContent.trim())"


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def test_no_key_is_bound_twice_on_any_page_and_heavy_ones_are_in_the_sheet(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(4)
    wrong: dict[str, list[str]] = {}
    inside = 0
    for address in [*addresses(run.run), *review_addresses()]:
        page.goto(address)
        bound = page.evaluate(BOUND)
        keys = [one["key"] for one in bound]
        assert len(keys) >= 3, address  # the top bar's at least
        # The same thing offered twice (a button in the header and in an empty state) is one thing.
        meanings = {(one["key"], one["label"], one["goes"]) for one in bound}
        twice = sorted({key for key in keys if sum(key == meaning[0] for meaning in meanings) > 1})
        page.keyboard.press("Escape")  # out of a field that has the focus from the start
        page.keyboard.press("?")
        sheet = {text.replace("\\u00a0", " ") for text in page.evaluate(SHEET)}
        missing = sorted(one["key"] for one in bound if one["isHeavy"] and one["key"] not in sheet)
        if twice or missing:
            wrong[address] = [*twice, *(f"{key} is not in the sheet" for key in missing)]
        if f"/runs/{run.run.pk}/" in page.url:  # addresses of other apps begin there too and climb out
            inside += 1
            assert keys.count("p") == 1, address  # pausing is within reach wherever one is in a run
    assert wrong == {}
    assert inside > 20


def test_p_pauses_the_run_where_one_plays_but_not_while_one_types(page: Any, synthetic: Callable[..., Any]) -> None:
    from webapp.environments.models import PlaySession
    from webapp.runs.models import Command

    run = synthetic()
    run.begin(2)
    environment = run.run.environments.filter(superseded=False).first()
    user_id = type(run.run)._meta.get_field("owner").related_model.objects.first().pk
    session = PlaySession.objects.create(
        environment=environment, seed=7, max_turns=8, by_id=user_id, replies=[{"observation": "Go?", "options": []}]
    )
    page.goto(f"{run.url}play/{session.pk}/")
    field = page.locator("#action")
    expect(field).to_be_focused()
    page.keyboard.type("p gp S")
    expect(field).to_have_value("p gp S")
    assert not Command.objects.filter(run=run.run).exists()
    page.keyboard.press("Escape")
    expect(field).not_to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("y")  # a slip after "g" is not a clone, and not a pause either
    page.wait_for_timeout(200)
    assert page.url.endswith(f"/play/{session.pk}/")
    page.keyboard.press("p")
    expect(page.locator("#run-state")).to_contain_text("pausing")
    assert Command.objects.get(run=run.run).action == "pause"


def test_s_asks_before_it_stops(page: Any, synthetic: Callable[..., Any]) -> None:
    from webapp.runs.models import Command

    run = synthetic()
    run.begin(1)
    page.goto(f"{run.url}episodes/")
    page.keyboard.press("Shift+S")
    expect(page.locator("#stop-dialog")).to_be_visible()
    page.keyboard.press("p")  # a dialog is open: the page's keys are off
    page.keyboard.press("Escape")
    expect(page.locator("#stop-dialog")).not_to_be_visible()
    assert not Command.objects.filter(run=run.run).exists()
