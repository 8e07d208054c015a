"""What a page costs: the bytes of its first load as they are sent, and how much of it jumps while a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.test_a_run import wait_for_points
from tests.browser.test_live_pages import wait_for_state

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

FIRST_LOAD_BYTES = 300_000
SHIFT_LIMIT = 0.1  # what the web vitals call good
#: Remembers every jump since the page began to load that no input of the person explains, with what moved.
WATCH = """() => { window.shifts = []; new PerformanceObserver((list) => { for (const entry of list.getEntries()) {
  if (!entry.hadRecentInput) window.shifts.push([entry.value, entry.sources.map(({ node }) =>
    node ? `${node.nodeName} ${node.id || node.className || node.textContent.slice(0, 40)}` : "gone").join(", ")]);
  } }).observe({ type: "layout-shift", buffered: true }); }"""
JUMP = """() => { const box = document.createElement("div"); document.querySelector("main").prepend(box);
  box.append(...Array.from({ length: 20 }, () => Object.assign(document.createElement("p"), { textContent: "x" }))); }"""


class Transfers:
    """What the browser is sent, without its cache: bytes of each answer with its headers, and how it was compressed."""

    def __init__(self, page: Any) -> None:
        self.bytes = 0
        self.encodings: dict[str, str] = {}
        session = page.context.new_cdp_session(page)
        session.on("Network.loadingFinished", self._note_size)
        session.on("Network.responseReceived", self._note_encoding)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})

    def _note_size(self, event: dict[str, Any]) -> None:
        self.bytes += int(event["encodedDataLength"])

    def _note_encoding(self, event: dict[str, Any]) -> None:
        answer = event["response"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        self.encodings[answer["url"]] = headers.get("content-encoding", "")


def test_the_first_load_of_a_page_is_light(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(8)
    environment = run.run.environments.order_by("pk").first()
    episode = run.run.episodes.filter(environment=environment, arm="hinted").first()
    transfers = Transfers(page)
    found = {}
    for address in (
        run.url, f"{run.url}charts/", f"{run.url}environments/", f"{run.url}environments/{environment.key}/",
        f"{run.url}environments/{environment.key}/lineage/", f"{run.url}episodes/{episode.pk}/",
        f"{run.url}pairs/{environment.key}/{episode.play}/", f"/runs/compare/?run={run.run.pk}", "/runs/", "/review/",
    ):  # fmt: skip
        transfers.bytes = 0
        transfers.encodings.clear()
        page.goto(address)
        if address == run.url:
            wait_for_points(page, 8)
            wait_for_state(page, "live")
        page.wait_for_load_state("networkidle")
        found[address] = transfers.bytes
        static = {url: kind for url, kind in transfers.encodings.items() if url.endswith((".css", ".js"))}
        assert len(static) > 5, static  # the cache was not asked
        assert set(static.values()) <= {"br", "gzip"}, static
    assert {address: size for address, size in found.items() if not 60_000 < size <= FIRST_LOAD_BYTES} == {}


@pytest.mark.parametrize(("tab", "width"), [("", 1280), ("", 820), ("charts/", 1280), ("environments/", 820)])
def test_a_live_page_does_not_jump_while_rollouts_come(
    tab: str, width: int, page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(0)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{run.url}{tab}")
    wait_for_state(page, "live")
    page.wait_for_load_state("networkidle")
    page.evaluate(WATCH)
    for rollout in range(4):
        run.go_on(rollout, rollout + 1)
        page.wait_for_function(
            f"() => document.querySelector('[data-rollouts-done]')?.textContent.trim() === '{rollout + 1}'"
        )
        page.wait_for_timeout(1200)  # tables are fetched again within a second
    shifts = page.evaluate("() => window.shifts")
    assert sum(value for value, _ in shifts) <= SHIFT_LIMIT, shifts
    page.evaluate(JUMP)  # the watch sees one: what it did not report did not happen
    total = "window.shifts.reduce((sum, [value]) => sum + value, 0)"
    page.wait_for_function(f"() => {total} > {SHIFT_LIMIT}")


def test_what_is_new_is_told_without_moving_the_list(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(1)
    done = 1
    page.set_viewport_size({"width": 820, "height": 900})
    for tab in ("environments/", "episodes/", "memory/"):
        page.goto(f"{run.url}{tab}")
        wait_for_state(page, "live")
        pill, list_top = (
            page.locator("[data-new-pill]"),
            "() => document.querySelector('main table').getBoundingClientRect().y",
        )
        assert not pill.is_visible()
        before = page.evaluate(list_top)
        run.go_on(done, done + 3)  # a rollout that plays its set again has no new environment
        done += 3
        pill.wait_for(state="visible")
        assert pill.inner_text().endswith(" new")
        assert page.evaluate(list_top) == before
        pill.click()
        page.wait_for_function("() => document.querySelector('[data-new-pill]')?.hidden")  # loaded again
