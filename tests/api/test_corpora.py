"""Corpora through the API: uploaded by the handler of the pages, checked by a worker's code, chosen for a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.corpora.conftest import THREE, files_below, home, root

pytestmark = pytest.mark.django_db
__all__ = ["home", "root"]
CORPORA = "/api/v1/corpora/"


def upload(client: Client, files: dict[str, bytes] | None = None, **fields: Any) -> Any:
    sent = [SimpleUploadedFile(name, content) for name, content in (files or {"tiles.jsonl": THREE}).items()]
    return client.post(CORPORA, {"files": sent, **fields})


def check(corpus_id: int) -> None:
    from webapp.corpora.checking import check as by_worker

    by_worker(corpus_id=corpus_id)


def test_an_upload_is_checked_read_and_chosen_for_a_run(operator: Client, home: Path) -> None:
    answer = upload(operator, name="my tiles", licence="MIT", notes="own")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["name"], body["state"], body["documents"], body["by"]) == (
        "my tiles",
        "checking",
        None,
        "operator-person",
    )
    assert (body["files"], body["bytes"]) == ([{"name": "tiles.jsonl", "bytes": len(THREE)}], len(THREE))
    check(body["id"])
    body = operator.get(f"{CORPORA}{body['id']}/").json()
    assert (body["state"], body["documents"], body["report"]["words"]) == ("ready", 3, 4 + 4 + 2)
    assert body["source"] == str(home / "corpora" / str(body["id"]) / "tiles.jsonl")
    plan = {"preset": "demo", "overrides": {"corpus.source": body["source"]}}
    run = operator.post("/api/v1/runs/", plan, content_type="application/json").json()
    assert run["config"]["corpus"]["source"] == body["source"]
    listed = operator.get(CORPORA).json()["results"]
    assert [(one["name"], one["runs"]) for one in listed] == [("my tiles", 1), ("Demo corpus", 0)]


def test_several_files_are_one_corpus_and_the_page_shows_it(operator: Client, home: Path) -> None:
    body = upload(operator, {"a.jsonl": THREE, "b.txt": b"a lamp"}).json()
    assert (body["name"], body["file_count"], body["formats"]) == ("a", 2, ["jsonl", "txt"])
    assert files_below(home) == [f"corpora/{body['id']}/{name}" for name in ("a.jsonl", "b.txt")]
    assert "b.txt" in operator.get(f"/corpora/{body['id']}/").content.decode()


@pytest.mark.parametrize(
    ("files", "fields", "path", "words"),
    [
        ({"good.jsonl": THREE, "c.zip": b"PK"}, {}, "files", "archives are not unpacked"),
        ({"c.exe": b"MZ"}, {}, "files", "is not read"),
        ({"good.jsonl": THREE}, {"name": "x" * 200}, "name", "120"),
        ({"good.jsonl": THREE}, {"notes": "a\x00b"}, "notes", "ull"),
    ],
)
def test_what_is_not_taken_is_named_and_nothing_of_the_upload_is_kept(
    files: dict[str, bytes], fields: dict[str, str], path: str, words: str, operator: Client, home: Path
) -> None:
    from webapp.corpora.models import Corpus

    answer = upload(operator, files, **fields)
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    (problem,) = answer.json()["problems"]
    assert (problem["path"], words in problem["message"]) == (path, True)
    assert not Corpus.objects.filter(origin="uploaded").exists()
    assert files_below(home) == []


def test_too_much_no_file_and_another_media_type_are_refused(operator: Client, settings: Any, home: Path) -> None:
    settings.SPADEWORK_UPLOAD_BYTES = 1000
    large = upload(operator, {"a.txt": b"x" * 2000})
    assert (large.status_code, "limit set by the admin" in large.json()["problems"][0]["message"]) == (422, True)
    assert operator.post(CORPORA, {"name": "none"}).json()["problems"][0]["path"] == "files"
    assert operator.post(CORPORA, {"name": "x"}, content_type="application/json").status_code == 415
    many = upload(operator, {f"{number}.txt": b"x" for number in range(101)})
    assert (many.status_code, "At most 100 files" in many.json()["problems"][0]["message"]) == (422, True)
    too_many = upload(operator, {f"{number}.txt": b"x" for number in range(1001)})
    assert (too_many.status_code, too_many["Content-Type"]) == (400, "application/problem+json")
    assert files_below(home) == []


@pytest.mark.parametrize(("role", "scope"), [("viewer", "read"), ("reviewer", "review"), ("operator", "read")])
def test_who_may_not_upload_leaves_nothing_on_the_disk(
    role: str, scope: str, as_role: Callable[[str], Client], call_as: Callable[..., Client], home: Path
) -> None:
    assert upload(call_as(role, scope)).status_code == 403
    assert not (home / "corpora").exists()
    if role != "operator":
        assert upload(as_role(role)).status_code == 403
        assert not (home / "corpora").exists()  # not even on its way: the role is asked before the body is read


def test_a_session_without_our_token_uploads_nothing_and_a_token_needs_none(
    operator: Client, call_as: Callable[..., Client], home: Path
) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    answer = upload(strict)
    assert (answer.status_code, "CSRF" in answer.json()["detail"]) == (403, True)
    assert files_below(home) == []
    assert upload(call_as("operator", "control")).status_code == 201


def test_a_folder_of_the_machine_is_listed_and_chosen(root: Path, operator: Client) -> None:
    (root / "science").mkdir()
    (root / "science" / "a.jsonl").write_bytes(THREE)
    (outermost,) = operator.get(f"{CORPORA}choices/").json()
    assert outermost == {"name": "science", "path": "science", "is_folder": True, "bytes": 0}
    (inner,) = operator.get(f"{CORPORA}choices/?folder=science").json()
    assert inner == {"name": "a.jsonl", "path": "science/a.jsonl", "is_folder": False, "bytes": len(THREE)}
    chosen = operator.post(f"{CORPORA}choices/", {"path": inner["path"]}, content_type="application/json")
    assert (chosen.status_code, chosen.json()["source"]) == (201, str(root / "science" / "a.jsonl"))
    for path, words in (("../..", "leads out of"), (inner["path"], "listed already"), ("none", "choose from the list")):
        refused = operator.post(f"{CORPORA}choices/", {"path": path}, content_type="application/json")
        assert (refused.status_code, words in refused.json()["detail"]) == (409, True)
    assert operator.get(f"{CORPORA}choices/?folder=../..").status_code == 409
    assert operator.get(f"{CORPORA}choices/?folder=science/a.jsonl").status_code == 409


def test_with_a_root_a_run_from_outside_it_is_refused_by_name(root: Path, operator: Client) -> None:
    plan = {"preset": "demo", "overrides": {"corpus.source": "/srv/elsewhere.txt"}}
    answer = operator.post("/api/v1/runs/", plan, content_type="application/json")
    assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, "corpus.source")


def test_it_is_edited_checked_again_and_deleted_as_on_the_pages(operator: Client, home: Path) -> None:
    body = upload(operator).json()
    address = f"{CORPORA}{body['id']}/"
    again = operator.post(f"{address}check/", {}, content_type="application/json")
    assert (again.status_code, "being checked already" in again.json()["detail"]) == (409, True)
    check(body["id"])
    edited = operator.patch(address, {"licence": "MIT"}, content_type="application/json").json()
    assert (edited["name"], edited["licence"]) == ("tiles", "MIT")
    assert operator.patch(address, {"name": ""}, content_type="application/json").status_code == 422
    again = operator.post(f"{address}check/", {}, content_type="application/json")
    assert (again.status_code, again.json()["state"]) == (202, "checking")
    assert operator.delete(address).status_code == 204
    gone = operator.get(address)
    assert (gone.status_code, gone.json()["detail"]) == (404, f"There is no corpus {body['id']}.")
    demo = operator.get(CORPORA).json()["results"][0]
    kept = operator.delete(f"{CORPORA}{demo['id']}/")
    assert (kept.status_code, "part of the product" in kept.json()["detail"]) == (409, True)
