"""Uploading: what is taken, what is refused, and that nothing half-done stays on the disk."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.corpora.conftest import THREE, files_below, post_files


def test_an_upload_is_read_as_a_run_would_read_it(checked: Callable[..., Any], viewer: Client) -> None:
    corpus = checked(name="my tiles", licence="CC-BY-4.0", notes="from a friend")
    assert (corpus.state, corpus.documents, corpus.bytes) == ("ready", 3, len(THREE))
    assert corpus.report["skipped"] == {"blank lines": 1, "undecodable lines": 1}
    assert ["undecodable lines", "tiles.jsonl, line 3"] in corpus.report["places"]
    assert corpus.report["words"] == 4 + 4 + 2
    html = viewer.get(f"/corpora/{corpus.pk}/").content.decode()
    for words in ("tiles cover a floor", "undecodable lines", "tiles.jsonl, line 3", "CC-BY-4.0", "from a friend"):
        assert words in html


def test_the_trainer_draws_from_the_uploaded_file(checked: Callable[..., Any]) -> None:
    from trainer.config import CorpusConfig
    from trainer.corpus import load_corpus

    loaded = load_corpus(CorpusConfig(source=checked().source))
    assert loaded is not None
    assert [document.title for document in loaded.documents] == ["Tiles", "a lamp turns on", "x y"]


def test_several_files_are_one_corpus_in_a_folder(checked: Callable[..., Any]) -> None:
    corpus = checked({"a.txt": b"one text", "b.md": b"# Two\nmore", "c.jsonl": THREE})
    assert (corpus.documents, corpus.file_count, corpus.formats) == (5, 3, ["jsonl", "md", "txt"])
    assert Path(corpus.source).is_dir()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("..\\..\\evil.md", "evil.md"),
        ("<img src=x onerror=alert(1)>.jsonl", "img-src-x-onerror-alert-1.jsonl"),
        ("-rf.txt", "rf.txt"),
        (".hidden.txt", "hidden.txt"),
        ("con.txt", "file.txt"),
        ("наука.txt", "file.txt"),
        ("a" * 300 + ".txt", "a" * 80 + ".txt"),
    ],
)
def test_file_names_are_ours(name: str, kept: str) -> None:
    from webapp.corpora.storage import safe_name

    assert safe_name(name, set()) == kept


def test_two_files_of_one_name_are_both_kept() -> None:
    from webapp.corpora.storage import safe_name

    taken: set[str] = set()
    assert [safe_name("x/a.txt", taken), safe_name("y/a.txt", taken), safe_name("a.TXT", taken)] == [
        "a.txt",
        "a-2.txt",
        "a-3.txt",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("corpus.zip", "archives are not unpacked"),
        ("c.tar.gz", "archives are not unpacked"),
        ("c.exe", "is not read"),
        ("noending", "is not read"),
    ],
)
def test_archives_and_other_kinds_are_refused_and_nothing_of_the_upload_is_kept(
    name: str, says: str, operator: Client, home: Path
) -> None:
    from webapp.corpora.models import Corpus

    answer = post_files(operator, {"good.jsonl": THREE, name: b"PK\x03\x04"})
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert not Corpus.objects.filter(origin="uploaded").exists()
    assert files_below(home) == []


def test_more_than_the_limit_is_refused_and_nothing_stays(operator: Client, settings: Any, home: Path) -> None:
    settings.SPADEWORK_UPLOAD_BYTES = 3 * 1024**2
    line = b'{"text": "' + b"x" * 1000 + b'"}\n'
    answer = post_files(operator, {"a.jsonl": line * 2000, "b.jsonl": line * 2000})
    assert answer.status_code == 422
    assert "limit set by the admin" in answer.content.decode()
    assert files_below(home) == []


def test_a_full_disk_is_said_and_nothing_stays(operator: Client, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.corpora import incoming

    class FullFile:
        def __init__(self, path: Path) -> None:
            self.inner = path.open("xb")

        def write(self, data: bytes) -> None:
            self.inner.write(data[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            self.inner.close()

    real = incoming.IncomingFiles.new_file

    def new_file(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._file.close()
        self._path.unlink()
        self._file = FullFile(self._path)

    monkeypatch.setattr(incoming.IncomingFiles, "new_file", new_file)
    answer = post_files(operator, {"a.jsonl": THREE})
    assert (answer.status_code, "disk of this machine is full" in answer.content.decode()) == (422, True)
    assert files_below(home) == []


def test_an_upload_without_a_file_says_so(operator: Client) -> None:
    answer = operator.post("/corpora/upload/", {"name": "nothing"})
    assert (answer.status_code, "No file was chosen" in answer.content.decode()) == (422, True)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"none.jsonl": b'{"a": 1}\n[]\n'}, "no usable document (1 lines that are not objects, 1 lines without text)"),
        ({"empty.txt": b""}, "no usable document (1 empty files)"),
        ({"binary.txt": b"\xff\xfe\x00"}, "1 undecodable files"),
        ({"no.parquet": b"PAR1 is not enough"}, "not readable Parquet"),
    ],
)
def test_an_unusable_upload_is_refused_with_the_reason_and_its_files_are_removed(
    files: dict[str, bytes], says: str, checked: Callable[..., Any], operator: Client, home: Path
) -> None:
    corpus = checked(files)
    assert corpus.state == "refused"
    assert says in corpus.failure
    assert files_below(home) == []
    html = operator.get(f"/corpora/{corpus.pk}/").content.decode()
    assert ("Its files were removed." in html, "Check again" in html) == (True, False)
    again = operator.post(f"/corpora/{corpus.pk}/act/check/", follow=True).content.decode()
    assert "The files of this upload are gone; upload them again." in again
    assert corpus.source not in operator.get("/runs/new/").content.decode()


def test_a_corpus_that_takes_too_long_is_refused(uploaded: Callable[..., Any], settings: Any) -> None:
    from webapp.corpora.checking import check

    settings.SPADEWORK_CORPUS_CHECK_S = 0.0
    corpus = uploaded()
    check(corpus_id=corpus.pk)
    corpus.refresh_from_db()
    assert (corpus.state, "longer than" in corpus.failure) == ("refused", True)


def test_a_corpus_that_takes_too_much_memory_is_refused(
    checked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.corpora.checking.MEMORY_BYTES", 250 * 1024**2)
    deep = b'{"text": "' + b"a" * (60 * 1024**2) + b'", "k": [' + b"[]," * 1000 + b"0]}\n"
    corpus = checked({"big.jsonl": deep})
    assert (corpus.state, "memory" in corpus.failure) == ("refused", True)


@pytest.mark.parametrize("end", ["timeout", "memory", "killed"])
def test_a_new_check_that_a_limit_ends_leaves_a_usable_upload_as_it_was(
    end: str, checked: Callable[..., Any], operator: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.corpora import checking

    corpus = checked(name="my tiles")
    before = (corpus.documents, corpus.report, corpus.checked_at)
    codes = {"timeout": None, "memory": -signal.SIGABRT, "killed": -signal.SIGKILL}
    monkeypatch.setattr(checking, "_wait", lambda *_: codes[end])
    operator.post(f"/corpora/{corpus.pk}/act/check/")
    checking.check(corpus_id=corpus.pk)
    corpus.refresh_from_db()
    assert (corpus.state, (corpus.documents, corpus.report, corpus.checked_at)) == ("ready", before)
    assert "could not be checked" in corpus.failure
    assert Path(corpus.source).read_bytes() == THREE
    html = operator.get(f"/corpora/{corpus.pk}/").content.decode()
    for words in ("Not checked again.", "It stays usable", "tiles cover a floor", "Check again", "Start a run with it"):
        assert words in html
    assert "were removed" not in html
    assert "my tiles, 3 documents" in operator.get("/runs/new/?preset=tiny").content.decode()


def test_an_upload_that_a_new_check_refuses_keeps_its_files_and_can_be_checked_again(
    checked: Callable[..., Any], operator: Client
) -> None:
    from webapp.corpora.checking import check

    corpus = checked()
    source = Path(corpus.source)
    for content, state in ((b"not json", "refused"), (b"nor this", "refused"), (THREE, "ready")):
        source.write_bytes(content)
        operator.post(f"/corpora/{corpus.pk}/act/check/")
        check(corpus_id=corpus.pk)
        corpus.refresh_from_db()
        assert (corpus.state, source.read_bytes()) == (state, content)
        html = operator.get(f"/corpora/{corpus.pk}/").content.decode()
        assert ("Check again" in html, "were removed" in html) == (True, False)


def test_a_refused_upload_keeps_its_files_while_a_run_names_it(
    uploaded: Callable[..., Any], run: Any, home: Path
) -> None:
    from webapp.corpora.checking import check

    corpus = uploaded({"empty.txt": b""})
    run.config = {**run.config, "corpus": {**run.config["corpus"], "source": corpus.source, "enabled": True}}
    run.save()
    check(corpus_id=corpus.pk)
    corpus.refresh_from_db()
    assert (corpus.state, files_below(home)) == ("refused", [f"corpora/{corpus.pk}/empty.txt"])


def test_what_an_interrupted_process_left_is_swept_after_a_day(home: Path) -> None:
    from webapp.corpora.storage import clear_incoming, incoming

    incoming().mkdir(parents=True)
    old, fresh = incoming() / "old.part", incoming() / "fresh.part"
    old.write_bytes(b"x")
    fresh.write_bytes(b"x")
    os.utime(old, (time.time() - 25 * 3600, time.time() - 25 * 3600))
    assert clear_incoming() == 1
    assert files_below(home) == ["corpora/incoming/fresh.part"]


@pytest.mark.parametrize(
    ("role", "status"),
    [("anonymous", 302), ("", 403), ("viewer", 403), ("reviewer", 403), ("operator", 302), ("admin", 302)],
)
def test_operators_upload_and_others_do_not(
    role: str, status: int, as_role: Callable[[str], Client], home: Path
) -> None:
    assert post_files(as_role(role), {"tiles.jsonl": THREE}).status_code == status
    assert bool(files_below(home)) is (role in ("operator", "admin"))


def test_an_upload_without_our_token_is_refused_and_nothing_stays(operator: Client, home: Path) -> None:
    from webapp.accounts.models import User

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(
        User.objects.get(username="operator-person"), backend="django.contrib.auth.backends.ModelBackend"
    )
    assert post_files(strict, {"tiles.jsonl": THREE}).status_code == 403
    assert files_below(home) == []
