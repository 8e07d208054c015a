"""Checkpoints through the API: listed with what is on the disk, downloaded whole and in pieces."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.pages.test_checkpoint_pages import MODEL, body, saved

pytestmark = pytest.mark.django_db
__all__ = ["saved"]


def address(run: Any, name: str = "000002", part: str = "model") -> str:
    return f"/api/v1/runs/{run.pk}/checkpoints/{name}/{part}.tar"


def test_the_list_says_what_is_on_the_disk_and_which_is_the_best(saved: Any, viewer: Client) -> None:
    rows = viewer.get(f"/api/v1/runs/{saved.pk}/checkpoints/").json()["results"]
    found = {row["name"]: (row["stored"], row["best"], row["best_value"]) for row in rows}
    assert found["000001"] == (True, False, 0.2)
    assert found["000002"] == (True, True, 0.5)
    assert found["000003"] == (True, False, None)
    assert found["000000"] == (False, False, None)  # told of in the log only
    (best,) = (row for row in rows if row["best"])
    model = sum(map(len, MODEL.values()))
    assert (best["model_bytes"], best["all_bytes"]) == (model, model + 900)
    assert next(row for row in rows if not row["stored"])["model_bytes"] is None


def test_of_a_name_saved_twice_the_newest_row_has_the_files(saved: Any, viewer: Client) -> None:
    old = saved.checkpoints.get(name="000002")
    saved.checkpoints.filter(pk=old.pk).update(superseded=True)
    new = saved.checkpoints.create(
        attempt=2, rollout=old.rollout, at=old.at, name="000002", next_rollout=2, bytes=1, elapsed_s=1.0
    )
    rows = viewer.get(f"/api/v1/runs/{saved.pk}/checkpoints/?limit=1").json()["results"]
    assert [(row["id"], row["best"]) for row in rows] == [(new.pk, True)]
    everything = viewer.get(f"/api/v1/runs/{saved.pk}/checkpoints/").json()["results"]
    assert next(row for row in everything if row["id"] == old.pk)["stored"] is False


def test_the_archive_is_the_one_of_the_pages(saved: Any, operator: Client) -> None:
    answer = operator.get(address(saved))
    content = body(answer)
    assert (answer.status_code, int(answer["Content-Length"]), answer["Accept-Ranges"]) == (200, len(content), "bytes")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {name.split("/", 1)[1]: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    assert found == MODEL
    assert content == body(operator.get(f"/runs/{saved.pk}/checkpoints/000002/model.tar"))


@pytest.mark.parametrize(("asked", "name"), [("best", "000002"), ("latest", "000003"), ("1", "000001")])
def test_best_latest_and_numbers_name_one(asked: str, name: str, saved: Any, operator: Client) -> None:
    answer = operator.get(address(saved, asked))
    assert answer["Content-Disposition"] == f'attachment; filename="{saved.slug}-{name}.tar"'
    answer.close()


def test_a_range_goes_on_where_a_download_broke_off(saved: Any, operator: Client) -> None:
    whole = operator.get(address(saved))
    content, etag = body(whole), whole["ETag"]
    rest = operator.get(address(saved), headers={"Range": "bytes=700000-", "If-Range": etag})
    assert (rest.status_code, rest["Content-Range"]) == (206, f"bytes 700000-{len(content) - 1}/{len(content)}")
    assert content[:700000] + body(rest) == content
    other = operator.get(address(saved), headers={"Range": "bytes=700000-", "If-Range": '"another"'})
    assert (other.status_code, body(other) == content) == (200, True)
    assert operator.head(address(saved))["Content-Length"] == str(len(content))
    behind = operator.get(address(saved), headers={"Range": f"bytes={len(content)}-"})
    assert (behind.status_code, behind["Content-Type"]) == (416, "application/problem+json")
    assert (behind.json()["code"], behind["Content-Range"]) == ("out-of-range", f"bytes */{len(content)}")


@pytest.mark.parametrize(("name", "status"), [("000000", 409), ("000009", 409), ("..", 409), ("nonsense", 409)])
def test_what_is_not_there_is_a_problem(name: str, status: int, saved: Any, operator: Client) -> None:
    answer = operator.get(address(saved, name))
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert operator.get(address(saved, part="optimiser")).status_code == 404


def test_operators_and_their_control_tokens_download_and_it_is_audited_once(
    saved: Any, call_as: Callable[..., Client]
) -> None:
    from webapp.accounts.models import AuditEntry

    assert call_as("operator", "read").get(address(saved)).status_code == 403
    client = call_as("operator", "control")
    body(client.get(address(saved, "best")))
    body(client.get(address(saved), headers={"Range": "bytes=1-1"}))
    entry = AuditEntry.objects.get(action="checkpoint.downloaded")
    assert entry.detail == {"checkpoint": "000002", "part": "model", "token": "control robot"}


def test_a_dry_run_of_a_fork_takes_best_too(saved: Any, operator: Client) -> None:
    for checkpoint, obstacles in (("best", []), ("7", [f"{saved} has no checkpoint 000007."])):
        plan = {"parent": saved.pk, "checkpoint": checkpoint, "overrides": {"schedule.rollouts": 9}}
        found = operator.post("/api/v1/runs/dry-run/", plan, content_type="application/json").json()
        assert found["obstacles"] == obstacles
