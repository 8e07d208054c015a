"""Disk use, retention and imports through the API: the rules of the pages, and nothing outside the import folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.keeping.test_imports import root, small_run
from tests.keeping.test_retention import add_run

pytestmark = pytest.mark.django_db
__all__ = ["root"]
API = "/api/v1/"


@pytest.fixture
def home(root: Path, settings: Any) -> Path:
    """A home of the test's own, with our runs' directory."""
    (settings.SPADEWORK_HOME / "runs").mkdir(parents=True)
    return Path(settings.SPADEWORK_HOME)


@pytest.fixture
def admin(as_role: Callable[[str], Client]) -> Client:
    return as_role("admin")


def send(client: Client, method: str, path: str, body: Any = None) -> Any:
    return getattr(client, method)(f"{API}{path}", {} if body is None else body, content_type="application/json")


def test_disk_use_comes_largest_first_page_by_page(home: Path, viewer: Client, operator: Client) -> None:
    from webapp.keeping import tasks

    small = add_run(home, "small", days=3)
    large = add_run(home, "large", days=3, ours=False)
    (Path(large.directory) / "checkpoints/000001/optimiser").write_bytes(b"x" * 9000)
    assert viewer.get(f"{API}disk/totals/").json()["unmeasured"] == 2
    assert viewer.get(f"{API}disk/").json() == {"results": [], "next": None}
    assert send(operator, "post", "disk/measure/").status_code == 202
    tasks.measure_disk()
    page = viewer.get(f"{API}disk/?limit=1").json()
    (first,) = page["results"]
    assert (first["run"], first["total_bytes"], first["checkpoint_bytes"], first["is_ours"]) == (
        large.pk,
        10520,
        9500,
        False,
    )
    (second,) = viewer.get(page["next"]).json()["results"]
    assert (second["run"], second["name"], second["tensor_bytes"], second["log_bytes"]) == (small.pk, "small", 1000, 20)
    totals = viewer.get(f"{API}disk/totals/").json()
    assert (totals["runs"], totals["checkpoints"], totals["unmeasured"]) == (12040, 10000, 0)
    assert totals["database"] > 0
    assert viewer.get(f"{API}disk/?cursor=x").status_code == 400


def test_a_change_that_removes_something_needs_the_digest_of_its_plan(home: Path, admin: Client) -> None:
    from webapp.runs.housekeeping import purge
    from webapp.runs.models import Retention, Run

    add_run(home, "gone-10", days=20, deleted_at=timezone.now() - timedelta(days=10))
    wanted = {"restore_days": 7, "tensor_days": 14}
    plan = send(admin, "post", "retention/plan/", wanted).json()
    assert plan["removes"] == {
        "runs": 1, "run_bytes": 1520, "names": ["gone-10"], "tensor_files": 0, "tensor_bytes": 0, "samples": 0,
        "transcripts": 0, "transcript_bytes": 0, "event_log_bytes": 0, "logs": 0, "log_bytes": 0,
    }  # fmt: skip
    refused = send(admin, "patch", "retention/", wanted)
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    assert "would remove 1 deleted runs, 0 token files" in refused.json()["detail"]
    add_run(home, "old", days=20)  # due under these settings, and not in the plan
    changed = send(admin, "patch", "retention/", {**wanted, "confirmed": plan["digest"]})
    assert (changed.status_code, "has changed since" in changed.json()["detail"]) == (409, True)
    assert not Retention.objects.exists()
    digest = send(admin, "post", "retention/plan/", wanted).json()["digest"]
    held = send(admin, "patch", "retention/", {**wanted, "confirmed": digest}).json()
    assert (held["restore_days"], held["tensor_days"], held["keep_last"]) == (7, 14, None)
    assert (held["restore_days_in_force"], held["removes"]["tensor_files"]) == (7, 1)
    purge()
    assert list(Run.objects.values_list("name", flat=True)) == ["old"]
    assert admin.get(f"{API}retention/").json()["removes"]["runs"] == 0


def test_what_is_left_out_stays_and_null_is_the_default(home: Path, admin: Client) -> None:
    from webapp.accounts.models import AuditEntry

    send(admin, "patch", "retention/", {"restore_days": 60, "keep_last": 3})
    held = send(admin, "patch", "retention/", {"keep_last": None}).json()
    assert (held["restore_days"], held["keep_last"]) == (60, None)
    entry = AuditEntry.objects.filter(action="retention.changed").latest("id")
    assert entry.detail == {"keep_last": [3, None]}


@pytest.mark.parametrize(
    "values", [{"restore_days": 0}, {"tensor_days": -1}, {"keep_last": 0}, {"keep_best": "x"}, {"sample_days": 10_000}]
)
def test_values_that_make_no_sense_are_named(values: dict[str, Any], home: Path, admin: Client) -> None:
    for method, path in (("patch", "retention/"), ("post", "retention/plan/")):
        answer = send(admin, method, path, values)
        assert answer.status_code == 422
        assert [problem["path"] for problem in answer.json()["problems"]] == list(values)


def test_a_run_of_a_preset_gets_the_checkpoint_settings_that_an_admin_set(home: Path, admin: Client) -> None:
    send(admin, "patch", "retention/", {"keep_last": 7, "keep_every": 50})
    made = send(admin, "post", "runs/", {"preset": "demo"}).json()["config"]["checkpoint"]
    assert (made["keep_last"], made["keep_every"]) == (7, 50)
    own = send(admin, "post", "runs/", {"preset": "demo", "overrides": {"checkpoint.keep_last": 4}}).json()
    assert own["config"]["checkpoint"]["keep_last"] == 4


def test_a_run_made_elsewhere_is_found_and_imported(operator: Client, root: Path) -> None:
    from webapp.keeping import tasks

    small_run(root / "cluster" / "tanks")
    (outer,) = operator.get(f"{API}imports/folders/").json()["folders"]
    assert (outer["path"], outer["is_run"]) == ("cluster", False)
    (inner,) = operator.get(f"{API}imports/folders/?path=cluster").json()["folders"]
    assert (inner["path"], inner["is_run"], inner["run"]) == ("cluster/tanks", True, None)
    answer = send(operator, "post", "imports/", {"path": inner["path"], "name": "theirs"})
    job = answer.json()
    assert (answer.status_code, job["state"], job["copying"], job["run"]) == (201, "waiting", "nothing", None)
    twice = send(operator, "post", "imports/", {"path": inner["path"]})
    assert (twice.status_code, "being imported already" in twice.json()["detail"]) == (409, True)
    tasks.import_directory(job["id"])
    job = operator.get(f"{API}imports/{job['id']}/").json()
    assert (job["state"], job["done"] == job["total"] > 0, job["failure"]) == ("done", True, "")
    run = operator.get(f"{API}runs/{job['run']}/").json()
    assert (run["name"], run["status"]) == ("theirs", "lost")
    (inner,) = operator.get(f"{API}imports/folders/?path=cluster").json()["folders"]
    assert inner["run"] == run["id"]
    assert operator.get(f"{API}imports/").json()["results"] == [job]


def test_a_refused_import_says_why(operator: Client, root: Path) -> None:
    from webapp.keeping import tasks

    small_run(root / "linked")
    (root / "linked" / "log.txt").unlink()
    (root / "linked" / "log.txt").symlink_to("/etc/passwd")
    job = send(operator, "post", "imports/", {"path": "linked"}).json()
    tasks.import_directory(job["id"])
    job = operator.get(f"{API}imports/{job['id']}/").json()
    assert (job["state"], "is a symbolic link" in job["failure"], job["run"]) == ("failed", True, None)


@pytest.mark.parametrize("path", ["../outside", "/etc", "a/../../outside", "link", "link/run"])
def test_nothing_outside_the_import_folder_is_listed_or_imported(path: str, operator: Client, root: Path) -> None:
    from webapp.keeping.models import ImportJob

    small_run(root.parent / "outside" / "run")
    (root / "link").symlink_to(root.parent / "outside")
    (root / "a").mkdir()
    for answer in (
        operator.get(f"{API}imports/folders/", {"path": path}), send(operator, "post", "imports/", {"path": path})
    ):  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (409, "refused")
        assert "import folder" in answer.json()["detail"]
    assert not ImportJob.objects.exists()


def test_odd_bodies_of_an_import_are_named(operator: Client, root: Path) -> None:
    for body, path in (({}, "path"), ({"path": "x", "copying": "some"}, "copying"), ({"path": "a\x00b"}, "path")):
        answer = send(operator, "post", "imports/", body)
        assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, path)


def test_a_deleted_run_is_restored_by_acts(run: Any, operator: Client) -> None:
    from webapp.runs.models import Run

    Run.objects.filter(pk=run.pk).update(status="completed")
    assert send(operator, "post", f"runs/{run.pk}/acts/delete/").json()["deleted_at"] is not None
    listed = [one["id"] for one in operator.get(f"{API}runs/?show=deleted").json()["results"]]
    assert listed == [run.pk]
    assert send(operator, "post", f"runs/{run.pk}/acts/restore/").json()["deleted_at"] is None
