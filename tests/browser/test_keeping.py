"""Importing a run, the disk and the retention settings in a real browser, in both themes."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.browser.processes import elsewhere
from tests.browser.test_every_page import serious
from tests.pages.make_run import make_run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture
def root() -> Path:
    """The import folder of the web server, which is another process: that of the session's home."""
    folder = Path(os.environ["SPADEWORK_HOME"]) / "import"
    make_run(folder / "cluster" / "tanks", rollouts=2, environments=2, plays=2, finish="completed")
    return folder


def clean(page: Any, shots: Path, name: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=shots / f"{name}-{scheme}.png", full_page=True)
        assert serious(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_run_is_imported_and_the_disk_and_retention_pages_follow(page: Any, root: Path, tmp_path: Path) -> None:
    from webapp.keeping import tasks
    from webapp.keeping.models import ImportJob
    from webapp.runs.models import Run

    page.goto("/runs/")
    page.get_by_role("link", name="Import").click()
    page.get_by_role("link", name="cluster").click()
    clean(page, tmp_path, "imports")
    page.get_by_role("link", name="Import tanks").click()
    page.get_by_label("Copy into this server").select_option("everything")
    clean(page, tmp_path, "import-form")
    page.get_by_role("button", name="Check and import").click()
    page.wait_for_url(re.compile(r"/keeping/imports/\d+/"))
    assert page.get_by_text("Waiting for a worker").is_visible()
    (job,) = ImportJob.objects.values_list("pk", flat=True)
    elsewhere(lambda: tasks.import_directory(job))
    page.get_by_role("link", name="Open tanks").wait_for()
    clean(page, tmp_path, "import-done")
    page.get_by_role("link", name="Open tanks").click()
    page.get_by_role("heading", name="tanks").wait_for()
    assert Run.objects.get().status == "completed"

    elsewhere(tasks.measure_disk)
    page.locator("summary").filter(has_text=re.compile("admin")).last.click()
    page.get_by_role("link", name="Disk").click()
    page.get_by_role("link", name="tanks").wait_for()
    clean(page, tmp_path, "disk")
    Run.objects.update(deleted_at="2020-01-01T00:00:00Z")
    page.get_by_role("link", name="Retention").click()
    page.get_by_label("Token files").fill("30")
    page.get_by_role("button", name="Set").click()
    page.get_by_text("would remove for good").wait_for()
    clean(page, tmp_path, "retention")
    page.get_by_role("button", name="Set, and remove these").click()
    page.get_by_text("hold from now on").wait_for()


def test_an_episode_whose_text_retention_removed_says_so(page: Any, tmp_path: Path) -> None:
    from django.utils import timezone

    from webapp.episodes.models import Episode
    from webapp.runs.housekeeping import purge
    from webapp.runs.import_copy import Copying
    from webapp.runs.importing import import_run
    from webapp.runs.models import Retention, Run

    make_run(tmp_path / "tanks", rollouts=2, environments=2, plays=2, finish="completed")
    elsewhere(lambda: import_run(actor=None, directory=tmp_path / "tanks", copying=Copying.RECORDS))
    run = Run.objects.get()
    (Path(run.directory) / "log.txt").write_text("rollout 0\n")
    Run.objects.update(finished_at=timezone.now() - timedelta(days=20))
    Retention.objects.create(pk=1, transcript_days=14, log_days=14)
    elsewhere(purge)
    episode = Episode.objects.filter(run=run, offset=0, turns__gt=0).order_by("pk")[0]
    page.goto(f"/runs/{run.pk}/episodes/{episode.pk}/")
    page.get_by_text("was removed by retention").wait_for()
    clean(page, tmp_path, "episode-without-text")
    page.goto(f"/runs/{run.pk}/pairs/{episode.environment_key}/{episode.play}/")
    assert page.get_by_text("was removed by retention").count() == 2
    clean(page, tmp_path, "pair-without-text")
    page.goto(f"/runs/{run.pk}/log/")
    page.get_by_text("The log was removed by retention").wait_for()
    clean(page, tmp_path, "log-removed")
