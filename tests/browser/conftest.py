"""Fixtures of browser tests: the real web server, a real worker, a real Chromium, and synthetic runs taken in by the real ingest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.processes import elsewhere, running_worker
from tests.browser_site import browser, browser_page, live_site
from tests.pages.make_run import Maker
from tests.pages.synthetic import synthetic_config
from tests.runs.processes import environment_of_tests

__all__ = ["browser", "browser_page", "live_site"]

#: Far above what anything takes on an idle machine; the tests wait for conditions, never for time.
PATIENCE_MS = 300_000


@pytest.fixture
def page(browser_page: Any) -> Any:
    """A page signed in by the printed link, as the first admin."""
    from webapp.accounts.services import demo_link

    browser_page.set_default_timeout(PATIENCE_MS)
    _, address = demo_link()
    browser_page.goto(urlsplit(address).path)
    browser_page.get_by_role("button", name="Open Spadework").click()
    browser_page.wait_for_url("**/runs/")
    return browser_page


@pytest.fixture
def worker(transactional_db: None, live_site: str, tmp_path: Path) -> Iterator[Any]:
    """The product's worker with the real trainer, in the same home as the web server."""
    from celery import current_app

    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge("gpu")
        broker.default_channel.queue_purge("default")
    with running_worker(environment_of_tests(), tmp_path) as process:
        yield process


class SyntheticRun:
    """A run whose log grows when the test says so."""

    def __init__(self, directory: Path, *, rollouts: int, hostile: bool = False) -> None:
        from django.utils import timezone

        from webapp.runs.ingest import Ingester
        from webapp.runs.models import Run

        config = synthetic_config(rollouts=rollouts, environments=4, plays=4)
        self.maker = Maker(directory, config, seed=7, hostile=hostile, start=timezone.now().timestamp() - 60)
        values = json.loads((directory / "config.json").read_text())["config"]
        self.run = Run.objects.create(
            name="tanks", slug="tanks-1", config=values, preset="demo", seed=7, status="running", total_rollouts=rollouts,
            directory=str(directory), gpu_set="synthetic", started_at=timezone.now(),
        )  # fmt: skip
        self.ingester = Ingester(run_id=self.run.pk, directory=directory)

    @property
    def url(self) -> str:
        return f"/runs/{self.run.pk}/"

    def begin(self, rollouts: int, attempt: int = 1, start: int = 0) -> None:
        """A new attempt that does these rollouts."""
        self.maker.attempt(attempt, start, start + rollouts, finish=None)
        elsewhere(self.ingester.drain)

    def go_on(self, start: int, end: int, attempt: int = 1) -> None:
        """More rollouts of the attempt."""
        self.maker.more(attempt, start, end)
        elsewhere(self.ingester.drain)


@pytest.fixture
def synthetic(transactional_db: None, tmp_path: Path) -> Callable[..., SyntheticRun]:
    """``synthetic(rollouts=20)``: a run that the test lets grow."""
    return lambda **options: SyntheticRun(tmp_path / "synthetic", **{"rollouts": 20, **options})


@pytest.fixture
def patience() -> int:
    return PATIENCE_MS
