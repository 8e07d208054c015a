"""`python -m trainer corpus`: what is usable, what is not and where."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.config import CorpusConfig
from trainer.corpus import load_corpus
from trainer.corpus_check import check_corpus


def trainer_corpus(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer", "corpus", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_report_counts_what_a_run_would_load(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "one two three"}\n\n{"a": 1}\n{"text": "four", "id": "d", "k": 1}\n')
    report = check_corpus(CorpusConfig(source=str(path), max_words=2))
    loaded = load_corpus(CorpusConfig(source=str(path), max_words=2))
    assert loaded is not None
    assert (report.documents, report.skipped) == (len(loaded.documents), loaded.skipped)
    assert (report.words, report.longest_words, report.cut) == (4, 3, 1)
    assert report.places == [("blank lines", "c.jsonl, line 2"), ("lines without text", "c.jsonl, line 3")]
    assert [document["id"] for document in report.preview] == ["c-1", "d"]
    assert report.preview[1]["metadata"] == {"k": "1"}


def test_a_line_over_64_mib_is_left_out_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "' + b"x" * (130 * 1024**2) + b'"}\n{"text": "after it"}\n')
    report = check_corpus(CorpusConfig(source=str(path)))
    assert (report.documents, report.skipped) == (1, {"lines over 64 MiB": 1})
    assert report.preview[0]["text"] == "after it"


def test_the_command_prints_json_and_fails_as_a_run_would(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Title\nmore")
    done = trainer_corpus(str(tmp_path / "good.txt"), "--json")
    assert (done.returncode, json.loads(done.stdout)["documents"]) == (0, 1)
    (tmp_path / "bad.jsonl").write_text("[]\n")
    failed = trainer_corpus(str(tmp_path / "bad.jsonl"))
    assert (failed.returncode, "1 lines that are not objects" in failed.stderr) == (2, True)


def test_parquet_rows_are_counted_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["one", None, "three"]}), tmp_path / "c.parquet")
    report = check_corpus(CorpusConfig(source=str(tmp_path / "c.parquet")))
    assert (report.documents, report.places) == (2, [("lines without text", "c.parquet, row 2")])
