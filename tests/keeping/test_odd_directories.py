# ruff: noqa: F811 - pytest finds the fixtures of test_imports.py by their names
"""Run directories that hold what no run writes: each is refused in words or taken in, and none of them holds up the others."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.keeping.test_imports import PAGE, ask, root, sent, small_run  # noqa: F401
from tests.pages.make_run import START, make_run
from webapp.environments.models import Environment
from webapp.keeping import disk, importing, tasks
from webapp.keeping.models import DiskUse, ImportJob
from webapp.runs import housekeeping
from webapp.runs.models import Retention, Run

pytestmark = pytest.mark.django_db


def done(job: ImportJob) -> ImportJob:
    tasks.import_directory(job.pk)
    job.refresh_from_db()
    return job


def with_setting(run: Path, name: str, value: str) -> None:
    config = json.loads((run / "config.json").read_text())
    config["config"][name] = value
    (run / "config.json").write_text(json.dumps(config))


def event_text(run: Run) -> str:
    return "".join(path.read_text() for path in sorted(Path(run.directory).glob("attempts/*/events/*.jsonl")))


def test_somebodys_own_copy_of_an_attempt_is_not_taken_along(operator: Client, root: Path, sent: list[int]) -> None:
    small_run(root / "tanks")
    shutil.copytree(root / "tanks" / "attempts" / "1", root / "tanks" / "attempts" / "1-backup")
    job = done(ask(operator, "tanks", copying="records"))
    assert job.run is not None, job.failure
    assert [path.name for path in (Path(job.run.directory) / "attempts").iterdir()] == ["1"]


def test_one_odd_run_does_not_keep_the_texts_of_the_others(
    operator: Client,
    root: Path,
    sent: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []
    for number, name in enumerate(("first", "second")):
        make_run(root / name, rollouts=2, environments=2, plays=2, start=START + number)  # else they are one run
        job = done(ask(operator, name, copying="records"))
        assert job.run is not None, job.failure
        runs.append(job.run)
    Run.objects.update(finished_at=timezone.now() - timedelta(days=100))
    Retention.objects.update_or_create(pk=1, defaults={"transcript_days": 1, "log_days": 1})
    # Put there after the import: what is in an attempt of this name is nobody's, and stays.
    shutil.copytree(Path(runs[0].directory) / "attempts" / "1", Path(runs[0].directory) / "attempts" / "1-backup")
    housekeeping.purge()
    for run in runs:
        run.refresh_from_db()
        assert run.text_removed_at is not None
        assert '"observation":""' in event_text(run)

    Run.objects.update(text_removed_at=None)
    real = housekeeping.remove_texts

    def failing(*, run: Run, **more: Any) -> Any:
        if run.pk == runs[0].pk:
            raise ValueError("odd")
        return real(run=run, **more)

    monkeypatch.setattr(housekeeping, "remove_texts", failing)
    housekeeping.purge()
    for run in runs:
        run.refresh_from_db()
    assert [run.text_removed_at is not None for run in runs] == [False, True]


@pytest.mark.parametrize("name", ["description", "preset"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_settings_with_characters_a_database_cannot_hold_are_taken_in_without_them(
    operator: Client,
    root: Path,
    sent: list[int],
    name: str,
    text: str,
) -> None:
    small_run(root / "tanks")
    with_setting(root / "tanks", name, text)
    job = done(ask(operator, "tanks"))
    assert (job.state, job.failure) == ("done", "")
    assert job.run is not None and "\0" not in job.run.config[name]


def test_an_import_that_meets_a_bug_has_failed_and_can_be_asked_for_again(
    operator: Client,
    root: Path,
    sent: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_run(root / "tanks")
    job = ask(operator, "tanks")

    def broken(**_: Any) -> Run:
        raise RuntimeError("boom")

    with monkeypatch.context() as patched:
        patched.setattr(importing, "import_run", broken)
        with pytest.raises(RuntimeError, match="boom"):
            tasks.import_directory(job.pk)
    job.refresh_from_db()
    assert (job.state, job.failure) == ("failed", "Something went wrong here (RuntimeError: boom); the log has more.")
    assert done(ask(operator, "tanks")).state == "done"


@pytest.mark.parametrize("key", ["r0000/s00", ""])
def test_a_log_whose_environments_no_page_could_show_is_refused(
    operator: Client,
    root: Path,
    sent: list[int],
    key: str,
) -> None:
    small_run(root / "tanks")
    for path in (root / "tanks").glob("attempts/1/events/*.jsonl"):
        path.write_text(path.read_text().replace("r0000-s00", key))
    job = done(ask(operator, "tanks"))
    assert job.state == "failed"
    assert f"{key!r} is no key of an environment" in job.failure
    assert not Run.objects.exists() and not Environment.objects.exists()


def test_one_folder_is_one_import_however_it_is_spelled(operator: Client, root: Path, sent: list[int]) -> None:
    small_run(root / "tanks")
    for path in ("tanks", "./tanks", "tanks/"):
        operator.post(PAGE, {"path": path})
    assert [job.path for job in ImportJob.objects.all()] == ["tanks"]


def test_a_file_among_the_checkpoints_is_copied_and_left_alone(operator: Client, root: Path, sent: list[int]) -> None:
    small_run(root / "tanks")
    (root / "tanks" / "checkpoints").mkdir(exist_ok=True)
    (root / "tanks" / "checkpoints" / ".DS_Store").write_text("x")
    for _ in range(2):
        job = done(ask(operator, "tanks", copying="everything"))
        assert (job.state, job.failure) == ("done", "")
    assert Run.objects.count() == 1


def test_what_was_never_measured_is_measured_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_run(name: str) -> Run:
        return Run.objects.create(
            name=name, slug=name, directory=f"/nowhere/{name}", config={}, seed=0, total_rollouts=1
        )

    nothing = dict.fromkeys(("total_bytes", "checkpoint_bytes", "tensor_bytes", "log_bytes"), 0)
    DiskUse.objects.create(run=a_run("old"), is_ours=False, measured_at=timezone.now() - timedelta(days=3), **nothing)
    new = a_run("new")
    monkeypatch.setattr(disk, "RUNS_A_ROUND", 1)
    assert disk.measure() == 1
    assert DiskUse.objects.filter(run=new).exists()
