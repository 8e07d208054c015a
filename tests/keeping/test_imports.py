"""Importing in the browser: below the guarded folder only, by operators, done by a worker that may die."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.pages.make_run import make_run
from webapp.accounts.models import AuditEntry
from webapp.keeping import tasks
from webapp.keeping.folders import inside, list_folder
from webapp.keeping.models import ImportJob
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db

PAGE = "/keeping/imports/"


@pytest.fixture(autouse=True)
def root(settings: Any, tmp_path: Path) -> Path:
    settings.SPADEWORK_HOME = tmp_path / "home"
    settings.SPADEWORK_IMPORT_ROOT = tmp_path / "import"
    settings.SPADEWORK_IMPORT_ROOT.mkdir()
    return settings.SPADEWORK_IMPORT_ROOT


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any) -> list[int]:
    """Imports that a worker was told of."""
    told: list[int] = []
    monkeypatch.setattr("webapp.keeping.services.send", lambda _task, job_id: told.append(job_id))
    monkeypatch.setattr("webapp.keeping.tasks.send", lambda _task, job_id: told.append(job_id))
    return told


def small_run(place: Path) -> None:
    make_run(place, rollouts=2, environments=2, plays=2)


def ask(client: Client, path: str, **data: str) -> ImportJob:
    answer = client.post(PAGE, {"path": path, **data})
    job = ImportJob.objects.order_by("-id").first()
    assert job is not None, answer.content.decode()
    return job


def test_a_run_is_chosen_imported_and_all_its_pages_work(operator: Client, root: Path) -> None:
    small_run(root / "cluster" / "tanks")
    assert "cluster" in operator.get(PAGE).content.decode()
    inner = operator.get(PAGE, {"path": "cluster"}).content.decode()
    assert "Import tanks" in inner
    job = ask(operator, "cluster/tanks", copying="nothing")
    assert "Waiting for a worker" in operator.get(f"{PAGE}{job.pk}/").content.decode()
    tasks.import_directory(job.pk)
    job.refresh_from_db()
    run = job.run
    assert run is not None
    assert (job.state, run.status, run.name, run.directory) == (
        "done", "lost", "tanks", str(root / "cluster" / "tanks"),
    )  # fmt: skip
    assert job.done == job.total > 0
    entry = AuditEntry.objects.get(action="run.imported")
    assert entry.actor == job.by
    base = f"/runs/{run.pk}/"
    environment = run.environments.first()
    for page in ("", "charts/", "environments/", "memory/", "corpus/", "regret/", "episodes/", "checkpoints/", "config/",
                 "log/", "system/", "signals/", "ledger/", f"environments/{environment.key}/"):  # fmt: skip
        assert operator.get(base + page).status_code == 200, page
    assert "done" in operator.get(f"{PAGE}{job.pk}/").content.decode()
    listed = operator.get(PAGE, {"path": "cluster"}).content.decode()
    assert "Import what is new" in listed
    assert base in listed
    again = ask(operator, "cluster/tanks")
    tasks.import_directory(again.pk)
    assert "Nothing new" in operator.get(f"{PAGE}{again.pk}/").content.decode()
    assert Run.objects.count() == 1


def test_a_refusal_is_shown_with_the_import(operator: Client, root: Path) -> None:
    small_run(root / "linked")
    (root / "linked" / "log.txt").unlink()
    (root / "linked" / "log.txt").symlink_to("/etc/passwd")
    job = ask(operator, "linked")
    tasks.import_directory(job.pk)
    page = operator.get(f"{PAGE}{job.pk}/").content.decode()
    assert "is a symbolic link" in page
    assert not Run.objects.exists()


@pytest.mark.parametrize("path", ["../outside", "/etc", "a/../../outside", "link", "link/run", "a\x00b", "x" * 2000])
def test_nothing_outside_the_folder_is_listed_or_imported(
    operator: Client, root: Path, tmp_path: Path, path: str
) -> None:
    small_run(tmp_path / "outside" / "run")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "a").mkdir()
    with pytest.raises(ActRefused):
        inside(path)
    assert operator.get(PAGE, {"path": path}).status_code == 400
    operator.post(PAGE, {"path": path})
    assert not ImportJob.objects.exists()


def test_a_folder_that_becomes_a_link_between_choice_and_import_is_refused(
    operator: Client, root: Path, tmp_path: Path
) -> None:
    small_run(root / "tanks")
    job = ask(operator, "tanks")
    (root / "tanks").rename(tmp_path / "elsewhere")
    (root / "tanks").symlink_to(tmp_path / "elsewhere")
    tasks.import_directory(job.pk)
    job.refresh_from_db()
    assert job.state == "failed"
    assert "link" in job.failure
    assert not Run.objects.exists()


def test_links_and_unreadable_names_are_counted_not_shown(root: Path, tmp_path: Path) -> None:
    (root / "good").mkdir()
    (root / ".hidden").mkdir()
    (root / "link").symlink_to(tmp_path)
    Path(str(root) + "/bad\udcff").mkdir()
    (root / "new\nline").mkdir()
    listing = list_folder(path="")
    assert [folder.name for folder in listing.folders] == ["good"]
    assert listing.left_out == 3


def test_a_missing_import_folder_says_how_to_make_it(operator: Client, root: Path) -> None:
    root.rmdir()
    page = operator.get(PAGE)
    assert page.status_code == 200
    assert f"mkdir -p {root}" in page.content.decode()


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("reviewer", 403), ("operator", 200), ("admin", 200)])
def test_operators_import(as_role: Callable[[str], Client], root: Path, role: str, status: int) -> None:
    small_run(root / "tanks")
    client = as_role(role)
    assert client.get(PAGE).status_code == status
    answer = client.post(PAGE, {"path": "tanks"})
    assert answer.status_code == (302 if status == 200 else 403)
    assert ImportJob.objects.count() == (1 if status == 200 else 0)
    assert ("Import" in client.get("/runs/").content.decode().split("<main")[1].split("</header>")[0]) == (
        status == 200
    )


def test_one_import_of_a_folder_at_a_time(operator: Client, root: Path) -> None:
    small_run(root / "tanks")
    ask(operator, "tanks")
    answer = operator.post(PAGE, {"path": "tanks"}, follow=True)
    assert "is being imported already" in answer.content.decode()
    assert ImportJob.objects.count() == 1


def test_a_folder_without_a_run_is_not_imported(operator: Client, root: Path) -> None:
    (root / "empty").mkdir()
    for path in ("", ".", "empty"):
        answer = operator.post(PAGE, {"path": path}, follow=True)
        assert "holds no config.json" in answer.content.decode()
    assert not ImportJob.objects.exists()


def test_an_import_whose_worker_died_is_sent_again_and_one_in_work_is_not(
    operator: Client, root: Path, sent: list[int]
) -> None:
    small_run(root / "tanks")
    job = ask(operator, "tanks")
    old = timezone.now() - timedelta(minutes=1)
    ImportJob.objects.update(touched_at=old, lease=uuid.uuid4(), leased_until=timezone.now() + timedelta(seconds=30))
    tasks.sweep()
    assert sent == []
    tasks.import_directory(job.pk)  # somebody else holds it
    assert not Run.objects.exists()
    ImportJob.objects.update(leased_until=timezone.now() - timedelta(seconds=1))
    tasks.sweep()
    assert sent == [job.pk]
    tasks.import_directory(job.pk)
    job.refresh_from_db()
    assert job.state == "done"
