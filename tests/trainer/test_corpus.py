"""Corpora of all kinds, and the bad ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainer.config import CorpusConfig
from trainer.corpus import Corpus, Document, load_corpus
from trainer.errors import UserError


def corpus_of(path: Path, **settings: int) -> Corpus:
    corpus = load_corpus(CorpusConfig(source=str(path), **settings))
    assert corpus is not None
    return corpus


def test_jsonl_prefers_orig_doc_keeps_metadata_and_counts_what_it_skips(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines = [
        '{"orig_doc": "A b c", "text": "other", "src": "web"}',
        "",
        "{not json",
        '{"text": ""}',
        '{"text": "one two three four words"}',
        '{"other": 1}',
        '{"text": 5}',
        '{"orig_doc": false, "text": {"k": 1}}',
        '{"orig_doc": " \\n", "text": "from the second key"}',
        '{"orig_doc": ["x"], "text": "also"}',
        "[1, 2]",
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe broken\n")
    corpus = corpus_of(path, max_words=2)
    texts = [d.text for d in corpus.documents]
    assert texts[0].startswith("A b\n") and "cut" in texts[0]
    assert texts[1].startswith("one two\n") and texts[2].startswith("from the\n") and texts[3:] == ["also"]
    assert corpus.documents[0].metadata == {"src": "web"}
    assert corpus.documents[1].words == 5
    assert corpus.skipped == {
        "blank lines": 1,
        "undecodable lines": 2,
        "lines without text": 4,
        "lines that are not objects": 1,
    }


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "b.md").write_bytes(b"\xef\xbb\xbf# Title\nbody")
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf\n")
    corpus = corpus_of(tmp_path)
    assert [(d.title, d.text) for d in corpus.documents] == [("one", "one"), ("two", "two"), ("Title", "# Title\nbody")]
    assert corpus.skipped == {"empty files": 1}


def test_draws_are_those_of_a_generator_seeded_with_42() -> None:
    documents = [Document(str(i), "", "", 1) for i in range(10)]
    corpus = Corpus(documents, source="x", skipped={}, seed=42)
    assert [corpus.draw().id for _ in range(8)] == ["1", "0", "4", "3", "3", "2", "1", "8"]


def test_draws_go_on_after_a_restart() -> None:
    documents = [Document(str(i), "", "", 1) for i in range(10)]
    first = Corpus(documents, source="x", skipped={}, seed=42)
    for _ in range(3):
        first.draw()
    state = json.loads(json.dumps(first.state()))
    second = Corpus(documents, source="x", skipped={}, seed=42)
    assert second.load_state(state) == ""
    assert [second.draw().id for _ in range(5)] == [first.draw().id for _ in range(5)]


def test_another_corpus_on_resume_is_said() -> None:
    state = Corpus([Document("a", "", "", 1)], source="x", skipped={}, seed=1).state()
    other = Corpus([Document("a", "", "", 1)] * 2, source="y", skipped={}, seed=1)
    assert "2 documents" in other.load_state(state)
    renewed = Corpus([Document("a", "", "other text", 1)], source="y", skipped={}, seed=1)
    assert "as many documents as when the checkpoint was written (1), but not the same texts" in renewed.load_state(
        state
    )
    del state["digest"]  # as checkpoints were before
    assert renewed.load_state(state) == ""


def test_a_file_name_that_is_no_text_does_not_end_the_run(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("\n# \nhello world")
    corpus = load_corpus(CorpusConfig(source=str(tmp_path)))
    assert corpus is not None
    (document,) = corpus.documents
    assert document.metadata == {"file": "caf?.txt"}
    assert document.id.startswith("caf?-") and len(corpus.digest) == 32


def test_text_markdown_and_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("First line\nmore")
    (tmp_path / "sub" / "b.md").write_text("# Title\n\nbody")
    (tmp_path / "sub" / "c.jsonl").write_text('{"text": "from a line", "title": "T"}\n')
    (tmp_path / "ignored.bin").write_bytes(b"\0")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff")
    corpus = corpus_of(tmp_path)
    assert [d.title for d in corpus.documents] == ["First line", "Title", "T"]
    assert corpus.skipped == {"undecodable files": 1}


def test_documents_that_are_not_the_same_have_different_ids(tmp_path: Path) -> None:
    for folder, text in (("math", "a sum"), ("science", "a plant")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train-00000.jsonl").write_text(f'{{"text": "{text}"}}\n{{"text": "the same"}}\n')
    mine = [("x", "one"), ("x", "two"), ("y" * 300, "three"), ("y" * 250, "four")]
    (tmp_path / "z.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in mine))
    documents = corpus_of(tmp_path).documents
    ids = [d.id for d in documents]
    assert [d.text for d in documents] == ["a sum", "the same", "a plant", "the same", "one", "two", "three", "four"]
    assert ids[:2] == ["train-00000-1", "train-00000-2"] and ids[4] == "x" and ids[6] == "y" * 200
    assert ids[3] == ids[1], "the same document twice"
    assert len(set(ids)) == len(ids) - 1 and max(map(len, ids)) == 200
    assert [i.rpartition("-")[0] for i in (ids[2], ids[5], ids[7])] == ["train-00000-1", "x", "y" * 183]
    assert [d.id for d in corpus_of(tmp_path).documents] == ids


def test_the_demo_corpus_is_built_in() -> None:
    corpus = load_corpus(CorpusConfig())
    assert corpus is not None and len(corpus.documents) >= 150
    assert len({d.id for d in corpus.documents}) == len(corpus.documents)


def test_a_corpus_that_is_switched_off_is_not_read() -> None:
    assert load_corpus(CorpusConfig(enabled=False, source="/does/not/exist")) is None


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.jsonl", None, "does not exist"),
        ("empty.jsonl", b"", "no usable document (it is empty)"),
        ("none.jsonl", b'\n{"a": 1}\n', "1 blank lines, 1 lines without text"),
        ("c.pdf", b"x", "is not .jsonl"),
    ],
)
def test_unusable_corpora_say_what_is_wrong(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"corpus\.source") as error:
        corpus_of(path)
    assert says in str(error.value)


def test_an_unknown_built_in_corpus_names_the_known_one() -> None:
    with pytest.raises(UserError, match="builtin:demo"):
        load_corpus(CorpusConfig(source="builtin:nothing"))


def test_parquet_is_read_or_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        path.write_bytes(b"PAR1")
        with pytest.raises(UserError, match="install pyarrow"):
            corpus_of(path)
        return
    pyarrow.parquet.write_table(pyarrow.table({"text": ["from parquet", None], "k": [1, 2]}), path)
    corpus = corpus_of(path)
    assert [d.text for d in corpus.documents] == ["from parquet"]
