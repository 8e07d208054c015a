"""The people and runs of the page tests, a home of their own, and uploads that a worker's code has checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.pages.conftest import as_role, ingested, operator, run, viewer

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]

THREE = (
    b'{"text": "tiles cover a floor", "title": "Tiles", "source": "own"}\n\nnot json\n'
    b'{"orig_doc": "a lamp turns on"}\n{"text": "x y"}\n'
)


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path, db: None) -> Path:
    """Uploads go where the test can look."""
    settings.SPADEWORK_HOME = tmp_path / "home"
    settings.SPADEWORK_CORPORA_ROOT = ""
    return tmp_path / "home"


@pytest.fixture
def root(settings: Any, tmp_path: Path) -> Path:
    """The folder of this machine people may choose from."""
    folder = tmp_path / "root"
    folder.mkdir()
    settings.SPADEWORK_CORPORA_ROOT = str(folder)
    return folder


@pytest.fixture
def uploaded(operator: Client) -> Callable[..., Any]:
    """``uploaded({"a.jsonl": b"…"}, licence="MIT")``: posted through the page; the corpus, not checked yet."""

    def send(files: dict[str, bytes] | None = None, **fields: str) -> Any:
        from webapp.corpora.models import Corpus

        answer = post_files(operator, files or {"tiles.jsonl": THREE}, **fields)
        assert answer.status_code == 302, answer.content.decode()
        return Corpus.objects.get(pk=int(answer["Location"].rstrip("/").rsplit("/", 1)[1]))

    return send


@pytest.fixture
def checked(uploaded: Callable[..., Any]) -> Callable[..., Any]:
    """The same, after the worker's check."""

    def send(files: dict[str, bytes] | None = None, **fields: str) -> Any:
        from webapp.corpora.checking import check

        corpus = uploaded(files, **fields)
        check(corpus_id=corpus.pk)
        corpus.refresh_from_db()
        return corpus

    return send


def post_files(client: Client, files: dict[str, bytes], **fields: str) -> Any:
    """POST to the upload view as a browser does."""
    sent = [SimpleUploadedFile(name, content) for name, content in files.items()]
    return client.post("/corpora/upload/", {"files": sent, **fields})


def files_below(folder: Path) -> list[str]:
    """Every file below a folder, as paths relative to it."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
