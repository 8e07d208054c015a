"""One person with many tabs: ``python -m tests.benchmarks.tabs [--tabs 50] [--rollouts 20]``.

All tabs follow a run in one window of a real Chromium, so that one is visible and the others are hidden, which is asked of each of them
(``document.visibilityState``). The run grows by a rollout at a time, as in live.py. Measured: from the moment a rollout was on disk until
the visible tab shows its number, and then, for ``--fronts`` hidden tabs one after the other, from the moment a tab is brought to the
front until it is visible with the newest number and has fetched what it left out while it was hidden. Chromium is driven by its own
protocol: Playwright makes it believe that every page is visible. Exit code 1 when the visible tab is slower than asked. Run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.live import DELAY_S, Growing, bench_site, web_server

PATIENCE_S = 300.0
#: In each tab: what live.py watches, and when a tab that was hidden has caught up after it came to the front.
_WATCH = """(() => { window.shown = {}; window.front = window.painted = window.caught = 0;
  const now = () => Date.now() / 1000;
  const look = () => { window.shown[document.querySelector('[data-rollouts-done]').textContent.trim()] ??= now(); };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
  document.addEventListener('visibilitychange', () => { if (document.hidden) return;
    const old = document.getElementById('latest'); window.front = now();
    const frame = () => { window.painted ||= now();
      if (document.getElementById('latest') !== old) window.caught = now(); else requestAnimationFrame(frame); };
    requestAnimationFrame(frame); }); })()"""


class Chrome:
    """The protocol's end of one Chromium: commands and their answers, by number."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Give answers to those who wait for them, until the connection ends."""
        async for message in self._socket:
            answer = json.loads(message)
            if waiting := self._waiting.pop(answer.get("id", 0), None):
                waiting.set_result(answer)

    async def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """What a command answers. Raises RuntimeError when it is refused."""
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        to = {"sessionId": session} if session else {}
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params, **to}))
        answer = await asyncio.wait_for(waiting, PATIENCE_S)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        found: dict[str, Any] = answer["result"]
        return found


class Tab:
    """One page of the window."""

    def __init__(self, chrome: Chrome, target: str, session: str) -> None:
        self._chrome, self._target, self._session = chrome, target, session

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page. Raises RuntimeError when it throws."""
        answer = await self._chrome.send("Runtime.evaluate", self._session, expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression[:60]}: {answer['exceptionDetails'].get('text')}")
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until it is true; a page that is being left for the next has no answer yet. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self._is(expression):
                await asyncio.sleep(0.1)

    async def _is(self, expression: str) -> bool:
        try:
            return bool(await self.evaluate(expression))
        except RuntimeError as error:
            if "execution context" not in str(error):
                raise
            return False

    async def to_front(self) -> None:
        """Make it the one that is seen."""
        await self._chrome.send("Target.activateTarget", targetId=self._target)


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Chrome]:
    """A Chromium with a profile of its own."""
    from websockets.asyncio.client import connect

    from tests.browser_site import CHROMIUM_FLAGS, chromium_path

    command = [
        chromium_path(),
        "--headless=new",
        *CHROMIUM_FLAGS,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file = folder / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not (port_file.exists() and port_file.read_text().count("\n")):
                await asyncio.sleep(0.1)
        port, path = port_file.read_text().split("\n")[:2]
        async with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
            chrome = Chrome(socket)
            listening = asyncio.create_task(chrome.listen())
            yield chrome
            listening.cancel()
    finally:
        process.terminate()
        process.wait(timeout=30)


async def open_tabs(chrome: Chrome, address: str, cookie: tuple[str, str], page: str, tabs: int) -> list[Tab]:
    """That many tabs of the page, live; the first one is in front."""
    await chrome.send("Storage.setCookies", cookies=[{"name": cookie[0], "value": cookie[1], "url": address}])
    opened = []
    for _ in range(tabs):
        target = (await chrome.send("Target.createTarget", url=f"{address}{page}"))["targetId"]
        session = (await chrome.send("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = Tab(chrome, target, session)
        await tab.until("document.getElementById('live-chip')?.dataset.state === 'live'")
        await tab.evaluate(_WATCH)
        opened.append(tab)
    await opened[0].to_front()
    await opened[0].until("document.visibilityState === 'visible'")
    return opened


async def follow(
    folder: Path, address: str, cookie: tuple[str, str], growing: Growing, tabs: int, fronts: int
) -> dict[str, list[float]]:
    """Seconds by what was measured."""
    async with chromium(folder / "profile") as chrome:
        opened = await open_tabs(chrome, address, cookie, f"/runs/{growing.run.pk}/", tabs)
        seen = [await tab.evaluate("document.visibilityState") for tab in opened]
        if seen != ["visible"] + ["hidden"] * (tabs - 1):
            raise RuntimeError(f"{seen.count('visible')} tabs are visible, one should be")
        growing.start()
        await asyncio.to_thread(growing.written_out)
        last = max(growing.written)
        for tab in opened:
            await tab.until(f"window.shown[{last}] !== undefined")
        await asyncio.to_thread(growing.finish)
        shown = [await tab.evaluate("window.shown") for tab in opened]
        delays = [[page[str(done)] - at for done, at in growing.written.items() if str(done) in page] for page in shown]
        found = {
            "the visible tab shows it": delays[0],
            "hidden tabs know it": [one for page in delays[1:] for one in page],
        }
        catching: dict[str, list[float]] = {
            "is visible": [],
            "paints the newest figures": [],
            "has fetched what it left out": [],
        }
        for tab in opened[1 : fronts + 1]:
            began = time.time()
            await tab.to_front()
            await tab.until("window.caught > 0")
            front, painted, caught = await tab.evaluate("[window.front, window.painted, window.caught]")
            for kind, at in zip(catching, (front, painted, caught), strict=True):
                catching[kind].append(at - began)
        return found | {f"brought to the front, it {kind}": times for kind, times in catching.items()}


def measure(folder: Path, tabs: int, fronts: int, rollouts: int, every_s: float) -> dict[str, list[float]]:
    """Fill a run, open the tabs, let it grow."""
    from django.conf import settings
    from django.test import Client

    from webapp.accounts.models import User

    client = Client()
    client.force_login(User.objects.get(username="bench"), backend="django.contrib.auth.backends.ModelBackend")
    cookie = (settings.SESSION_COOKIE_NAME, client.cookies[settings.SESSION_COOKIE_NAME].value)
    growing = Growing(folder / "live", rollouts, every_s)
    with web_server(folder) as address:
        return asyncio.run(follow(folder, address, cookie, growing, tabs, fronts))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tabs", type=int, default=50)
    parser.add_argument("--fronts", type=int, default=20, help="hidden tabs that are brought to the front afterwards")
    parser.add_argument("--rollouts", type=int, default=20)
    parser.add_argument(
        "--every", type=float, default=4.0, help="seconds between rollouts (default: 4, as in the demo)"
    )
    given = parser.parse_args()
    missed = 0
    with bench_site() as folder:
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {given.tabs} tabs, one of them visible")
        print(f"{'event on disk, until':<52}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}{'asked ms':>10}")
        for kind, delays in measure(folder, given.tabs, given.fronts, given.rollouts, given.every).items():
            if len(delays) < 2:
                continue
            p95 = quantiles(delays, n=20, method="inclusive")[-1]
            is_asked = kind.startswith("the visible")
            missed += is_asked and p95 > DELAY_S
            verdict = f"{1000 * DELAY_S:>10.0f}{'   MISSED' if p95 > DELAY_S else ''}" if is_asked else f"{'–':>10}"
            print(f"{kind:<52}{1000 * median(delays):>9.0f}{1000 * p95:>9.0f}{1000 * max(delays):>9.0f}{verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
