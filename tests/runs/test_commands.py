"""Management commands of runs."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.runs.eventwriter import EventWriter
from trainer.config import RunConfig
from webapp.episodes.models import Episode
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path


def address_printed(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def test_start_demo_run_queues_one_run_and_finds_it_again(operator: Any) -> None:
    first = address_printed("start_demo_run")
    run = Run.objects.get()
    assert (run.status, run.preset, run.owner) == ("queued", "demo", operator)
    assert first == f"http://127.0.0.1:8400/runs/{run.pk}/"
    assert address_printed("start_demo_run") == first
    assert Run.objects.count() == 1


def test_start_demo_run_takes_other_settings(operator: Any) -> None:
    address_printed("start_demo_run", "--preset", "tiny", "--set", "schedule.rollouts=2")
    assert Run.objects.get().total_rollouts == 2


def test_start_demo_run_says_who_is_missing(db: None) -> None:
    with pytest.raises(CommandError, match="Create the first admin"):
        address_printed("start_demo_run")


def make_directory(root: Path) -> EventWriter:
    root.mkdir()
    config = RunConfig().model_dump(mode="json")
    (root / "config.json").write_text(json.dumps({"config": config, "format_version": 1}))
    writer = EventWriter(root)
    writer.start()
    writer.rollouts(range(2))
    return writer


def test_import_run_takes_a_directory_in_once(db: None, tmp_path: Path) -> None:
    writer = make_directory(tmp_path / "cluster-run")
    address = address_printed("import_run", str(tmp_path / "cluster-run"))
    run = Run.objects.get()
    assert (run.name, run.status, run.rollouts_done) == ("cluster-run", "lost", 2)
    writer.rollouts(range(2, 4))
    writer.emit("run_state", state="completed")
    assert address_printed("import_run", str(tmp_path / "cluster-run")) == address
    run.refresh_from_db()
    assert (run.status, run.rollouts_done) == ("completed", 4)
    assert Episode.objects.filter(run=run).count() == 16


def test_import_run_refuses_what_is_no_run(db: None, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no run directory"):
        address_printed("import_run", str(tmp_path))
    assert not Run.objects.exists()
