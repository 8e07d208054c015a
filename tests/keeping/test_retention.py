"""How long what is kept: shown before it acts, acted on by housekeeping, and only on what is ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from webapp.accounts.models import AuditEntry
from webapp.keeping import tasks
from webapp.keeping.models import DiskUse
from webapp.runs.housekeeping import purge
from webapp.runs.models import Retention, Run, SystemSample

pytestmark = pytest.mark.django_db

PAGE = "/keeping/retention/"


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Path:
    settings.SPADEWORK_HOME = tmp_path
    (tmp_path / "runs").mkdir()
    return tmp_path


@pytest.fixture
def admin(as_role: Callable[[str], Client]) -> Client:
    return as_role("admin")


def add_run(home: Path, name: str, *, days: int, ours: bool = True, **fields: Any) -> Run:
    """A finished run whose directory holds a token file of 1000 bytes and a checkpoint of 500."""
    directory = (home / "runs" if ours else home / "elsewhere") / name
    for part, size in (
        ("tensors/000000.safetensors", 1000),
        ("checkpoints/000001/model", 500),
        ("attempts/1/events/0", 20),
    ):
        (directory / part).parent.mkdir(parents=True)
        (directory / part).write_bytes(b"x" * size)
    at = timezone.now() - timedelta(days=days)
    run = Run.objects.create(
        name=name, slug=name, config={}, seed=0, total_rollouts=1, directory=str(directory), status="completed",
        finished_at=at, **fields,
    )  # fmt: skip
    SystemSample.objects.create(run=run, attempt=1, at=at, processes=1)
    return run


def tensors(run: Run) -> list[Path]:
    return list((Path(run.directory) / "tensors").iterdir())


def test_a_change_that_removes_something_says_what_and_holds_when_confirmed(admin: Client, home: Path) -> None:
    add_run(home, "gone-10", days=20, deleted_at=timezone.now() - timedelta(days=10))
    old = add_run(home, "old", days=20)
    values = {"restore_days": "7", "tensor_days": "14", "sample_days": "14"}
    asked = admin.post(PAGE, values)
    page = asked.content.decode()
    assert "1 deleted run with 1.48 KiB of files: gone-10" in page
    assert "1 token file, 1000 B" in page
    assert "2 measurements" in page
    assert not Retention.objects.exists()
    purge()
    assert Run.objects.count() == 2
    assert tensors(old)
    again = admin.post(PAGE, {**values, "confirmed": asked.context["digest"]})
    assert again.status_code == 302
    assert Retention.objects.get().restore_days == 7
    entry = AuditEntry.objects.get(action="retention.changed")
    assert entry.detail == {"restore_days": [None, 7], "tensor_days": [None, 14], "sample_days": [None, 14]}
    purge()
    assert list(Run.objects.values_list("name", flat=True)) == ["old"]
    assert not (home / "runs" / "gone-10").exists()
    assert tensors(old) == []
    assert (Path(old.directory) / "checkpoints/000001/model").exists()
    assert not SystemSample.objects.exists()
    assert AuditEntry.objects.get(action="run.tensors_purged").detail == {"bytes": 1000}
    purge()
    assert AuditEntry.objects.filter(action="run.tensors_purged").count() == 1


def test_what_became_due_between_look_and_confirmation_is_shown_again(admin: Client, home: Path) -> None:
    add_run(home, "one", days=20)
    asked = admin.post(PAGE, {"tensor_days": "14"})
    add_run(home, "two", days=20)
    again = admin.post(PAGE, {"tensor_days": "14", "confirmed": asked.context["digest"]})
    assert "has changed since you looked" in again.content.decode()
    assert "2 token files" in again.content.decode()
    assert not Retention.objects.exists()


def test_a_change_that_removes_nothing_holds_at_once(admin: Client, home: Path) -> None:
    add_run(home, "young", days=2)
    assert admin.post(PAGE, {"tensor_days": "14", "keep_last": "1"}).status_code == 302
    held = Retention.objects.get()
    assert (held.restore_days, held.tensor_days, held.keep_last) == (None, 14, 1)
    purge()
    assert tensors(Run.objects.get())


def test_token_files_of_runs_elsewhere_at_work_or_linked_stay(admin: Client, home: Path, tmp_path: Path) -> None:
    Retention.objects.create(pk=1, tensor_days=1)
    foreign = add_run(home, "foreign", days=20, ours=False)
    busy = add_run(home, "busy", days=20)
    Run.objects.filter(pk=busy.pk).update(status="running")
    linked = add_run(home, "linked", days=20)
    (Path(linked.directory) / "tensors").rename(tmp_path / "precious")
    (Path(linked.directory) / "tensors").symlink_to(tmp_path / "precious")
    purge()
    assert all(tensors(run) for run in (foreign, busy, linked))


@pytest.mark.parametrize(
    "values", [{"restore_days": "0"}, {"tensor_days": "-1"}, {"keep_last": "0"}, {"keep_best": "x"}]
)
def test_values_that_make_no_sense_are_refused_at_their_field(admin: Client, values: dict[str, str]) -> None:
    answer = admin.post(PAGE, values)
    assert answer.status_code == 422
    assert set(answer.context["form"].errors) == set(values)
    assert not Retention.objects.exists()


def test_new_runs_are_offered_the_checkpoint_settings_that_were_set(operator: Client, home: Path) -> None:
    plain = operator.get("/runs/new/?preset=demo").context["base"].checkpoint
    Retention.objects.create(pk=1, keep_last=7, keep_every=50)
    offered = operator.get("/runs/new/?preset=demo").context["base"].checkpoint
    assert (offered.keep_last, offered.keep_every, offered.keep_best) == (7, 50, plain.keep_best)


def test_admins_set_and_everybody_sees_the_disk(as_role: Callable[[str], Client]) -> None:
    for role, retention, measure in (("viewer", 403, 403), ("operator", 403, 302), ("admin", 200, 302)):
        client = as_role(role)
        assert client.get(PAGE).status_code == retention
        assert client.post(PAGE, {"restore_days": "1"}).status_code == (302 if retention == 200 else 403)
        assert client.get("/keeping/disk/").status_code == 200
        assert client.post("/keeping/disk/measure/").status_code == measure


def test_the_disk_page_lists_what_uses_most_first(as_role: Callable[[str], Client], home: Path) -> None:
    viewer = as_role("viewer")
    assert "Nothing measured yet" in viewer.get("/keeping/disk/").content.decode()
    small, large = add_run(home, "small", days=3), add_run(home, "large", days=3, ours=False)
    (Path(large.directory) / "checkpoints/000001/optimiser").write_bytes(b"x" * 9000)
    assert "2 runs not measured yet" in viewer.get("/keeping/disk/").content.decode()
    tasks.measure_disk()
    use = DiskUse.objects.get(run=large)
    assert (use.total_bytes, use.checkpoint_bytes, use.tensor_bytes, use.log_bytes, use.is_ours) == (
        10520, 9500, 1000, 20, False,
    )  # fmt: skip
    answer = viewer.get("/keeping/disk/")
    assert [row["use"].run_id for row in answer.context["rows"]] == [large.pk, small.pk]
    assert f'href="/runs/{large.pk}/checkpoints/"' in answer.content.decode()
    (Path(small.directory) / "more").write_bytes(b"x")
    tasks.measure_disk()  # measured just now
    assert DiskUse.objects.get(run=small).total_bytes == 1520
    DiskUse.objects.update(measured_at=timezone.now() - timedelta(days=2))
    tasks.measure_disk()
    assert DiskUse.objects.get(run=small).total_bytes == 1521
