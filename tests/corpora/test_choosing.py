"""Choosing from the machine's folder: listed, guarded against every way out, and held to by new runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.corpora.conftest import THREE
from tests.pages.test_start_form import posted


def newest() -> Any:
    from webapp.corpora.models import Corpus

    return Corpus.objects.latest("pk")


def test_a_folder_of_the_root_becomes_a_corpus_and_its_files_stay(root: Path, operator: Client) -> None:
    from webapp.corpora.checking import check

    (root / "science").mkdir()
    (root / "science" / "a.jsonl").write_bytes(THREE)
    assert "science/" in operator.get("/corpora/new/").content.decode()
    assert "a.jsonl" in operator.get("/corpora/new/?folder=science").content.decode()
    assert operator.post("/corpora/choose/", {"path": "science", "licence": "MIT"}).status_code == 302
    check(corpus_id=newest().pk)
    corpus = newest()
    assert (corpus.origin, corpus.state, corpus.documents) == ("chosen", "ready", 3)
    assert corpus.source == str(root / "science")
    assert "listed already" in operator.post("/corpora/choose/", {"path": "science"}).content.decode()
    operator.post(f"/corpora/{corpus.pk}/act/delete/")
    assert (root / "science" / "a.jsonl").read_bytes() == THREE


@pytest.mark.parametrize("path", ["..", "../secret.txt", "/etc", "out", "out/secret.txt", "nothing", "a\x00b", "loop"])
def test_nothing_outside_the_root_can_be_chosen(path: str, root: Path, operator: Client) -> None:
    from webapp.corpora.models import Corpus

    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root.parent / "secret.txt").write_text("secret")
    (root / "out").symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    answer = operator.post("/corpora/choose/", {"path": path})
    assert answer.status_code == 422
    assert not Corpus.objects.filter(origin="chosen").exists()
    listing = operator.get("/corpora/new/", {"folder": path})
    assert listing.status_code == (400 if "\x00" in path else 200)
    assert "secret.txt" not in listing.content.decode().replace(path, "")


def test_a_folder_with_a_link_that_leads_out_is_refused(root: Path, operator: Client) -> None:
    (root.parent / "secret.txt").write_text("secret")
    (root / "mixed").mkdir()
    (root / "mixed" / "a.txt").symlink_to(root.parent / "secret.txt")
    answer = operator.post("/corpora/choose/", {"path": "mixed"})
    assert (answer.status_code, "leads out of" in answer.content.decode()) == (422, True)


def test_without_a_root_the_page_says_how_to_set_one_and_nothing_can_be_chosen(operator: Client) -> None:
    assert "SPADEWORK_CORPORA_ROOT" in operator.get("/corpora/new/").content.decode()
    assert operator.post("/corpora/choose/", {"path": ""}).status_code == 422


def test_with_a_root_a_run_may_read_it_uploads_and_the_built_in_corpus_only(
    root: Path, operator: Client, checked: Callable[..., Any], tmp_path: Path
) -> None:
    from webapp.runs.models import Run

    (tmp_path / "elsewhere.txt").write_text("a text")
    (root / "fine.txt").write_text("a text")
    refused = operator.post("/runs/new/", posted("tiny", corpus__source=str(tmp_path / "elsewhere.txt")))
    assert (refused.status_code, "is outside" in refused.content.decode()) == (422, True)
    sneaky = operator.post("/runs/new/", posted("tiny", corpus__source=str(root / ".." / "elsewhere.txt")))
    assert sneaky.status_code == 422
    dry = operator.post("/runs/new/", {**posted("tiny", corpus__source="/etc/hosts.txt"), "dry": "1"})
    assert (dry.status_code, "is outside" in dry.content.decode()) == (422, True)
    assert not Run.objects.exists()
    for source in (str(root / "fine.txt"), checked().source, "builtin:demo"):
        assert operator.post("/runs/new/", posted("tiny", corpus__source=source)).status_code == 302


def test_without_a_root_any_path_is_taken_as_before(operator: Client, tmp_path: Path) -> None:
    assert operator.post("/runs/new/", posted("tiny", corpus__source=str(tmp_path / "c.txt"))).status_code == 302


def test_a_clone_keeps_the_corpus_of_its_parent_even_outside(run: Any, root: Path, operator: Client) -> None:
    run.config = {**run.config, "corpus": {**run.config["corpus"], "source": "/srv/old.jsonl"}}
    run.save()
    values = {**posted("demo"), "clone": str(run.pk), "name": "again"}
    from webapp.runs.forms import setting_text, setting_value, specs

    for spec in specs():
        text = setting_text(setting_value(run.config, spec.path))
        values.pop(spec.path, None)
        if spec.kind != "bool" or text == "true":
            values[spec.path] = text
    assert operator.post("/runs/new/", values).status_code == 302
    assert json.loads(json.dumps(newest_run().config))["corpus"]["source"] == "/srv/old.jsonl"


def newest_run() -> Any:
    from webapp.runs.models import Run

    return Run.objects.latest("pk")
