"""Cases 18 and 20: a closed tab, and transcripts too large for any page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_a_run import wait_for_points
from tests.pages.test_environments_and_episodes import transcript_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

MEGABYTES = 20
BLOCK_MS = 200


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def longest_task_ms(browser: Any, page: Any, act: Callable[[], None]) -> float:
    """The longest task of the page's main thread while ``act`` runs, in ms of its own time: a busy machine does not count."""
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline", "__metadata"])
    act()
    events = json.loads(browser.stop_tracing())["traceEvents"]
    mains = {
        (one["pid"], one["tid"])
        for one in events
        if one["name"] == "thread_name" and one["args"].get("name") == "CrRendererMain"
    }
    tasks = [
        one["tdur"] / 1000
        for one in events
        if one["name"] in ("RunTask", "ThreadControllerImpl::RunTask")
        and (one["pid"], one["tid"]) in mains
        and "tdur" in one
    ]
    assert tasks, "the trace holds no task of the page"
    return max(tasks)


def test_case_18_closing_the_tab_ends_nothing_and_all_of_it_is_there_later(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(2)
    page.goto(run.url)
    wait_for_points(page, 2)
    page.goto("about:blank")  # the tab is gone, and its socket with it
    run.go_on(2, 6)
    page.goto(run.url)
    wait_for_points(page, 6)
    expect(page.locator("#run-state")).to_contain_text("running")
    expect(page.locator("#live-chip")).to_have_text("live")
    run.go_on(6, 8)
    wait_for_points(page, 8)


@pytest.mark.parametrize("shape", ["one text", "a million JSON nodes"])
@pytest.mark.parametrize("view", ["raw", "rendered"])
def test_case_20_a_message_of_twenty_megabytes_never_freezes_the_page(
    shape: str, view: str, page: Any, browser: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(1)
    episode = run.run.episodes.first()
    huge = "observation " * (MEGABYTES * 2**20 // 12) if shape == "one text" else json.dumps([{"a": 1}] * 1_000_000)
    transcript_of(episode, [{"observation": huge, "reply": "ok"}])

    def read() -> None:
        page.goto(f"{run.url}episodes/{episode.pk}/?view={view}")
        page.locator(".transcript .cut-note").first.wait_for()
        page.mouse.wheel(0, 4_000)
        page.wait_for_timeout(300)

    assert longest_task_ms(browser, page, read) <= BLOCK_MS
    expect(page.locator(".transcript .cut-note").first).to_contain_text(f"of {len(huge):,}".replace(",", "\u202f"))
    with page.expect_download() as raw:
        page.locator(".transcript .cut-note a").first.click()
    assert raw.value.path().stat().st_size == len(huge)


def test_case_20_five_thousand_turns_scroll_without_a_freeze(
    page: Any, browser: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(1)
    episode = run.run.episodes.first()
    transcript_of(episode, [{"observation": f"see {at}.", "reply": f"**do** {at}."} for at in range(5_000)], "the end")
    type(episode).objects.filter(pk=episode.pk).update(turns=5_000)

    def read() -> None:
        page.goto(f"{run.url}episodes/{episode.pk}/")
        expect(page.locator("#t1")).to_be_visible()
        for turns in range(200, 1_400, 200):  # more come while one scrolls, and cost no more than the first
            page.wait_for_function(f"() => document.querySelectorAll('.turn.observation').length >= {turns}")
            page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight)")

    assert longest_task_ms(browser, page, read) <= BLOCK_MS
    page.goto(f"{run.url}episodes/{episode.pk}/?turn=4990#t4990")  # any turn is one address away
    expect(page.locator("#t4990")).to_be_visible()
    expect(page.locator("#t4990")).to_contain_text("see 4989.")
