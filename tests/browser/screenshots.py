"""Pictures of the main pages in light and dark, from real demo runs: ``python -m tests.browser.screenshots [--rollouts 8]``.

Starts its own throw-away PostgreSQL, Valkey, web server and worker, lets the trainer do short runs to compare with and some rollouts
of the main one, and writes ``docs/screenshots/<page>-<theme>.png``. Flags, a queue, a pool and a play are made first (staging.py).
``--only compare`` takes only pictures so named. With ``--url`` and ``--link`` it takes the pictures of a product that is already
running, of the pages that need nothing made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.browser.processes import ROOT, running_worker
from tests.browser_site import CHROMIUM_FLAGS, _free_port, chromium_path
from webapp.stack.throwaway import throwaway_services

FOLDER = ROOT / "docs" / "screenshots"
SIZE_LIMIT_BYTES = 200_000
START_LIMIT_S = 120.0
RUN_LIMIT_S = 1800.0
BESIDE = ("demo-no-memory", "demo-no-corpus")  # presets of the short runs the main one is compared with
HIGHEST_REGRET = """() => [...document.querySelectorAll('.section:last-of-type tbody tr')]
  .map((row) => [parseFloat(row.children[3].textContent.replace('−', '-')), row.querySelector('a').getAttribute('href')])
  .filter(([regret]) => !Number.isNaN(regret)).sort((a, b) => b[0] - a[0])[0]"""
ANSWERED = """(answers) => { const board = document.getElementById('board');
  return Number(board?.dataset.replies) > answers || (board && board.dataset.state !== 'open'); }"""
VIEWPORT = {"width": 1280, "height": 800}


def manage(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a management command; its standard output without the last newline."""
    command = [sys.executable, "manage.py", *arguments]
    answer = subprocess.run(command, cwd=ROOT, env=dict(environment), check=True, capture_output=True, text=True)
    return answer.stdout.strip()


@contextmanager
def running_site(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Services, web server and worker; yields the address and the environment. Everything is gone afterwards."""
    url = f"http://127.0.0.1:{_free_port()}"
    with throwaway_services() as services:
        environment = {
            **os.environ, **services, "DJANGO_SETTINGS_MODULE": "webapp.settings", "SPADEWORK_PUBLIC_URL": url,
            "SPADEWORK_STATIC_ROOT": str(folder / "static"), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        manage(environment, "migrate", "-v0")
        manage(environment, "collectstatic", "--noinput", "-v0")
        port = url.rsplit(":", 1)[1]
        command = [sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--port", port, "--no-proxy-headers"]
        with (folder / "web.log").open("wb") as log:
            web = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_up(url)
            with running_worker(environment, folder):
                yield url, environment
        finally:
            web.terminate()
            web.wait(timeout=30)


def wait_until_up(url: str) -> None:
    """Return when the product answers. Raises RuntimeError after START_LIMIT_S."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            with urlopen(f"{url}/healthz", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"nothing answered at {url} within {START_LIMIT_S:.0f} s")


def wait_for_rollouts(page: Any, run_url: str, rollouts: int) -> None:
    """Look at the run's page until it has done that many rollouts. Raises RuntimeError when it broke or takes too long."""
    page.goto(run_url)
    deadline = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline:
        status = page.locator("#run-head").get_attribute("data-status")
        done = int(page.locator("[data-rollouts-done]").inner_text())
        if done >= rollouts:
            return
        if status in ("failed", "lost", "stopped"):
            raise RuntimeError(
                f"the run is {status} after {done} rollouts: {page.locator('.run-failure').inner_text()}"
            )
        page.wait_for_timeout(1000)
    raise RuntimeError(f"the run did not do {rollouts} rollouts within {RUN_LIMIT_S:.0f} s")


def addresses(page: Any, run_url: str, beside: Sequence[str]) -> dict[str, str]:
    """Page name → address: an environment of the newest complete set, its most telling pair, an episode of it; runs compared."""
    page.goto(f"{run_url}environments/")
    environment = page.locator(".table .row-link").first.get_attribute("href")
    page.goto(f"{run_url}regret/")
    best = page.evaluate(HIGHEST_REGRET)
    chosen = best[1] if best else environment
    page.goto(run_url.split("/runs/")[0] + chosen)
    unhinted = page.locator(".strip-block").first.locator(".outcomes").first.locator(".pip")
    hinted = page.locator(".strip-block").first.locator(".outcomes").last.locator(".pip")
    kinds = [
        (
            ("won" in (hinted.nth(at).get_attribute("class") or "")),
            ("won" not in (unhinted.nth(at).get_attribute("class") or "")),
            at,
        )
        for at in range(min(unhinted.count(), hinted.count()))
    ]
    play = max(kinds, key=lambda kind: (kind[0] and kind[1], kind[0]))[2] if kinds else 0
    key = chosen.rstrip("/").rsplit("/", 1)[1]
    compared = urlencode([("run", number(address)) for address in (*beside, run_url)])
    return {
        "runs": "/runs/", "new-run": "/runs/new/", "run": run_url, "charts": f"{run_url}charts/", "environments": f"{run_url}environments/",
        "environment": chosen, "pair": f"{run_url}pairs/{key}/{play}/", "regret": f"{run_url}regret/", "episodes": f"{run_url}episodes/",
        "memory": f"{run_url}memory/", "compare": f"/runs/compare/?{compared}", "system": f"{run_url}system/",
        "compare-charts": f"/runs/compare/?{compared}",
        "settings": f"{run_url}config/", "transcript": f"{run_url}episodes/?environment={key}",
    }  # fmt: skip


def number(run_url: str) -> int:
    """The run of an address."""
    return int(run_url.rstrip("/").rsplit("/", 1)[1])


def shrink(path: Path) -> None:
    """Fewer colours when the file is too large; a picture of a page loses nothing one can see."""
    if path.stat().st_size <= SIZE_LIMIT_BYTES:
        return
    from PIL import Image

    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128).save(path, optimize=True)


def on_stage(environment: Mapping[str, str], call: str) -> Any:
    """What a function of staging.py answers when it is called where the product's database is."""
    said = manage(environment, "shell", "-v0", "-c", f"from tests.browser import staging; print(staging.{call})")
    return json.loads(said.splitlines()[-1])


def staged(page: Any, environment: Mapping[str, str], pages: Mapping[str, str], run_url: str) -> dict[str, str]:
    """What people do, done (staging.py); addresses of its pages. The play has its first answers when this returns."""
    key = pages["environment"].rstrip("/").rsplit("/", 1)[1]
    page.goto(pages["pair"])
    seed = int(page.locator(".object-head .mono").last.inner_text())
    made: dict[str, str] = on_stage(environment, f"stage({number(run_url)}, {key!r}, {seed})")
    page.goto(made["play"])
    page.wait_for_function(ANSWERED, arg=0)
    for answers in (1, 2):
        if not page.locator("#action").count():
            break  # it is over already
        option = page.locator("[data-fill]").first
        page.locator("#action").fill((option.get_attribute("data-fill") or "1") if option.count() else "1")
        page.keyboard.press("Enter")
        page.wait_for_function(ANSWERED, arg=answers)
    page.goto(made["try-play"])
    page.wait_for_selector("#try-board[data-state=ready]:not([data-waiting])")
    page.locator("#environment").select_option(key)
    page.locator("#seed").fill(str(seed))
    page.get_by_role("button", name="Let it play").click()
    page.wait_for_selector(".play-over")
    return made


def take(
    url: str,
    link: str,
    runs: Sequence[tuple[str, int]],
    only: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[Path]:
    """All pictures (or ``only`` some) of the product at ``url``; ``link`` signs in.

    ``runs``: address and rollouts to wait for, the main one last, the others to compare with it. ``environment`` reaches the database:
    then the pages of what people do are made and shown too.
    """
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(parents=True, exist_ok=True)
    made = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM_FLAGS)
        context = browser.new_context(base_url=url, viewport=VIEWPORT)
        context.set_default_timeout(300_000)
        page = context.new_page()
        page.goto(link)
        page.get_by_role("button", name="Open Spadework").click()
        page.wait_for_url("**/runs/**")
        for run, rollouts in runs:
            wait_for_rollouts(page, run, rollouts)
        main_run = runs[-1][0]
        pages = addresses(page, main_run, [run for run, _ in runs[:-1]])
        page.goto(pages.pop("transcript"))
        pages["episode"] = f"{page.locator('.table .row-link').first.get_attribute('href')}?view=rendered"
        if environment is not None and not (only and set(only) <= set(pages)):
            pages |= staged(page, environment, pages, main_run)
        if only:
            pages = {name: address for name, address in pages.items() if name in only}
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for name, address in pages.items():
                page.goto(address)
                page.wait_for_load_state("networkidle")
                if name.endswith("-charts"):
                    page.locator(".chart-tools").evaluate("tools => tools.scrollIntoView()")
                    page.wait_for_load_state("networkidle")  # panels are drawn when in view
                page.wait_for_timeout(500)
                made.append(FOLDER / f"{name}-{theme}.png")
                page.screenshot(path=made[-1])
                shrink(made[-1])
                print(json.dumps({"picture": str(made[-1].relative_to(ROOT)), "bytes": made[-1].stat().st_size}))
        browser.close()
    return made


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts the run does first (default: 8)")
    parser.add_argument("--preset", default="demo")
    parser.add_argument(
        "--beside-rollouts", type=int, default=6, help="rollouts of each run it is compared with (default: 6)"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PAGE", help="names of the pictures to take (default: all)"
    )
    parser.add_argument("--url", help="a product that is already running; needs --link and --run")
    parser.add_argument("--link", help="its one-time sign-in link")
    parser.add_argument("--run", nargs="+", help="addresses of runs to compare, the main one last")
    given = parser.parse_args()
    if given.url:
        take(
            given.url, given.link, [(run, 1) for run in given.run[:-1]] + [(given.run[-1], given.rollouts)], given.only
        )
        return
    with (
        tempfile.TemporaryDirectory(prefix="spadework-pictures-") as folder,
        running_site(Path(folder)) as (url, environment),
    ):
        link = manage(environment, "demo_link")
        short = {"schedule.rollouts": str(given.beside_rollouts)}
        wanted: list[tuple[str, dict[str, str]]] = [*((preset, short) for preset in BESIDE), (given.preset, {})]
        runs = on_stage(environment, f"start_runs({wanted!r})")
        take(
            url,
            link,
            [*((run, given.beside_rollouts) for run in runs[:-1]), (runs[-1], given.rollouts)],
            given.only,
            environment,
        )


if __name__ == "__main__":
    main()
