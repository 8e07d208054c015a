"""Checkpoints in the browser: the best is marked, forked by that name, and downloaded whole, in pieces or not at all."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from trainer.checkpoint_files import CHECKPOINT_FORMAT, digests_and_sync, write_marker

MODEL = {
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 5000,
    "tokenizer.json": b"tok",
    "empty.txt": b"",
}


def store(run: Any, name: str, value: float | None) -> Path:
    """A checkpoint as the trainer writes it."""
    folder = Path(run.directory) / "checkpoints" / name
    (folder / "model").mkdir(parents=True)
    (folder / "state").mkdir()
    for file, content in MODEL.items():
        (folder / "model" / file).write_bytes(content)
    (folder / "state" / "learner.pt").write_bytes(b"optimiser" * 100)
    best = {"metric": run.config["checkpoint"]["best_metric"], "value": value}
    marker = {"format": CHECKPOINT_FORMAT, "next_rollout": int(name), "files": digests_and_sync(folder), "best": best}
    write_marker(folder, marker)
    return folder


@pytest.fixture
def saved(run: Any) -> Any:
    """A run with three checkpoints on the disk; 000002 is the best."""
    for name, value in (("000001", 0.2), ("000002", 0.5), ("000003", None)):
        store(run, name, value)
    return run


def body(answer: Any) -> bytes:
    return b"".join(answer)


def archive_url(run: Any, name: str = "000002", part: str = "model") -> str:
    return f"/runs/{run.pk}/checkpoints/{name}/{part}.tar"


def test_the_best_checkpoint_is_marked_and_sizes_are_shown_before(saved: Any, operator: Client) -> None:
    html = operator.get(f"/runs/{saved.pk}/checkpoints/").content.decode()
    rows = [part for part in html.split("<tr") if 'class="mono">00000' in part]
    assert ["best</span>" in row for row in rows if "Fork at" in row] == [
        "000002" in row for row in rows if "Fork at" in row
    ]
    assert "Model 1.22 MiB" in html


def test_the_model_is_a_hugging_face_directory_in_a_tar(saved: Any, operator: Client) -> None:
    answer = operator.get(archive_url(saved))
    content = body(answer)
    assert (answer.status_code, int(answer["Content-Length"])) == (200, len(content))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {name.split("/", 1)[1]: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    assert found == MODEL
    assert answer["Content-Disposition"] == f'attachment; filename="{saved.slug}-000002.tar"'


def test_all_of_it_holds_the_optimiser_too(saved: Any, operator: Client) -> None:
    with tarfile.open(fileobj=io.BytesIO(body(operator.get(archive_url(saved, part="all"))))) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert names == {"state/learner.pt", *(f"model/{name}" for name in MODEL)}


def test_a_download_that_broke_off_goes_on_where_it_was(saved: Any, operator: Client) -> None:
    whole = operator.get(archive_url(saved))
    content, etag = body(whole), whole["ETag"]
    rest = operator.get(archive_url(saved), HTTP_RANGE="bytes=700000-", HTTP_IF_RANGE=etag)
    assert (rest.status_code, rest["Content-Range"]) == (206, f"bytes 700000-{len(content) - 1}/{len(content)}")
    assert content[:700000] + body(rest) == content
    middle = operator.get(archive_url(saved), HTTP_RANGE="bytes=511-1600")
    assert body(middle) == content[511:1601]
    other = operator.get(archive_url(saved), HTTP_RANGE="bytes=5-", HTTP_IF_RANGE='"another"')
    assert (other.status_code, body(other) == content) == (200, True)
    behind = {"HTTP_RANGE": f"bytes={len(content)}-"}
    page, problem = (
        operator.get(archive_url(saved), **behind),
        operator.get(archive_url(saved), HTTP_ACCEPT="application/json", **behind),
    )
    assert (page.status_code, page["Content-Range"]) == (416, f"bytes */{len(content)}")
    assert f"The file has {len(content)} bytes and the range begins behind them" in page.content.decode()
    assert (problem.status_code, problem["Content-Range"]) == (416, f"bytes */{len(content)}")
    assert (problem["Content-Type"], problem.json()["code"]) == ("application/problem+json", "out-of-range")
    assert operator.head(archive_url(saved))["Content-Length"] == str(len(content))


def test_a_checkpoint_removed_while_it_is_sent_is_sent_whole(saved: Any, operator: Client) -> None:
    expected = body(operator.get(archive_url(saved)))
    answer = operator.get(archive_url(saved))
    shutil.rmtree(Path(saved.directory) / "checkpoints" / "000002")
    assert body(answer) == expected


def test_no_file_stays_open_after_an_answer(saved: Any, operator: Client) -> None:
    from webapp.runs.checkpoint_files import open_archive

    def open_files() -> list[str]:
        links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        return [str(link.readlink()) for link in links if link.is_symlink() and "checkpoints" in str(link.readlink())]

    archive = open_archive(run=saved, name="000002", part="all")
    assert len(open_files()) == 4  # the empty file needs none
    pieces = archive.pieces(0, archive.size)
    pieces.close()
    assert open_files() == []
    operator.head(archive_url(saved))
    operator.get(archive_url(saved), HTTP_RANGE="bytes=99999999-")
    assert open_files() == []
    answer = operator.get(archive_url(saved))
    assert pieces.close.__func__ in [
        closer.__func__ for closer in answer._resource_closers if hasattr(closer, "__func__")
    ]


@pytest.mark.parametrize("name", ["../../secret.txt", "/etc/passwd", "model/link", "model/pipe"])
def test_a_marker_that_names_other_files_leads_nowhere(name: str, saved: Any, operator: Client) -> None:
    folder = Path(saved.directory) / "checkpoints" / "000002"
    (Path(saved.directory) / "secret.txt").write_text("secret")
    (folder / "model" / "link").symlink_to(Path(saved.directory) / "secret.txt")
    os.mkfifo(folder / "model" / "pipe")
    marker = json.loads((folder / "COMPLETE").read_bytes())
    marker["files"][name] = {"bytes": 6, "sha256": "0"}
    (folder / "COMPLETE").write_text(json.dumps(marker))
    answer = operator.get(archive_url(saved, part="all"), follow=True)
    assert "is damaged" in answer.content.decode()


@pytest.mark.parametrize("name", ["000009", "..", "tmp-000001", "best"])
def test_what_is_not_there_is_said(name: str, saved: Any, operator: Client) -> None:
    answer = operator.get(archive_url(saved, name=name), follow=True)
    assert answer.status_code == 404 or "not on the disk" in answer.content.decode()


@pytest.mark.parametrize(
    ("role", "status"), [("anonymous", 302), ("viewer", 403), ("reviewer", 403), ("operator", 200)]
)
def test_operators_download_and_the_audit_log_says_so(
    role: str, status: int, saved: Any, as_role: Callable[[str], Client]
) -> None:
    from webapp.accounts.models import AuditEntry

    answer = as_role(role).get(archive_url(saved))
    assert answer.status_code == status
    assert AuditEntry.objects.filter(action="checkpoint.downloaded").count() == int(status == 200)


@pytest.mark.parametrize(("asked", "name"), [("best", "000002"), ("latest", "000003"), ("1", "000001")])
def test_the_fork_form_takes_best_latest_and_numbers(asked: str, name: str, saved: Any, operator: Client) -> None:
    assert f"at {name}" in operator.get(f"/runs/new/?fork={saved.pk}&checkpoint={asked}").content.decode()


def test_a_fork_of_the_best_remembers_which_it_was(saved: Any, operator: Client) -> None:
    from tests.pages.test_fork_page import form
    from webapp.runs.models import Run

    operator.post("/runs/new/", form(saved, **{"checkpoint": "best", "schedule.rollouts": "9"}))
    assert Run.objects.get(parent=saved).fork_checkpoint == "000002"
