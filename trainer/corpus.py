"""The corpus: documents the designer is grounded in (spec 10). Reads JSONL, text, Markdown, Parquet, folders and builtin:demo."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config import CorpusConfig
from trainer.errors import UserError

BUILTIN = {"builtin:demo": Path(__file__).parent / "corpora" / "demo.jsonl"}
_TEXT_SUFFIXES = {".txt", ".md", ".markdown"}
_JSONL_SUFFIXES = {".jsonl", ".ndjson"}
_TEXT_KEYS = ("orig_doc", "text")
_MAX_METADATA_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Document:
    """One document, already cut. `words` counts the uncut text."""

    id: str
    title: str
    text: str
    words: int
    metadata: dict[str, Any] = field(default_factory=dict)


class Corpus:
    """Documents with their own seeded generator: drawn uniformly, one fresh document per design attempt."""

    def __init__(self, documents: Sequence[Document], *, source: str, skipped: Mapping[str, int], seed: int) -> None:
        self.documents = list(documents)
        self.source = source
        self.skipped = dict(skipped)
        self._rng = random.Random(seed)  # noqa: S311 - reproducible draws, not secrets
        self.drawn = 0

    def draw(self) -> Document:
        """The next document."""
        self.drawn += 1
        return self.documents[self._rng.randrange(len(self.documents))]

    def state(self) -> dict[str, Any]:
        version, internal, gauss = self._rng.getstate()
        return {"drawn": self.drawn, "documents": len(self.documents), "rng": [version, list(internal), gauss]}

    def load_state(self, state: Mapping[str, Any]) -> str:
        """Continue the draws of a checkpoint; returns a warning when the corpus is not the one it was saved with, else ""."""
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))
        self.drawn = int(state["drawn"])
        if state["documents"] == len(self.documents):
            return ""
        return (
            f"the corpus {self.source} holds {len(self.documents)} documents, "
            f"{state['documents']} when the checkpoint was written: further draws differ"
        )


def load_corpus(config: CorpusConfig) -> Corpus | None:
    """Read the configured corpus; None when it is switched off. Raises `UserError` when it is missing or holds nothing usable."""
    if not config.enabled:
        return None
    path = BUILTIN.get(config.source, Path(config.source).expanduser())
    if config.source.startswith("builtin:") and config.source not in BUILTIN:
        raise UserError(f"corpus.source: {config.source} is not built in; there is {', '.join(BUILTIN)}")
    if not path.exists():
        raise UserError(f"corpus.source: {config.source} does not exist; give a file or folder, or builtin:demo")
    skipped: Counter[str] = Counter()
    documents = [_document(record, config.max_words) for record in _records(path, skipped)]
    if not documents:
        reasons = ", ".join(f"{n} {why}" for why, n in sorted(skipped.items())) or "it is empty"
        raise UserError(
            f"corpus.source: {config.source} holds no usable document ({reasons}); "
            'a JSONL line needs text under "orig_doc" or "text"'
        )
    return Corpus(documents, source=config.source, skipped=skipped, seed=config.seed)


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


def _records(path: Path, skipped: Counter[str]) -> Iterator[_Record]:
    if path.is_dir():
        known = _TEXT_SUFFIXES | _JSONL_SUFFIXES | {".parquet"}
        for file in sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in known):
            yield from _records(file, skipped)
        return
    suffix = path.suffix.lower()
    try:
        if suffix in _TEXT_SUFFIXES:
            yield from _text_records(path, skipped)
        elif suffix == ".parquet":
            yield from _parquet_records(path, skipped)
        elif suffix in _JSONL_SUFFIXES:
            yield from _jsonl_records(path, skipped)
        else:
            raise UserError(f"corpus.source: {path} is not .jsonl, .txt, .md or .parquet, nor a folder of such files")
    except OSError as error:
        raise UserError(f"corpus.source: cannot read {path}: {error.strerror or error}") from error


def _jsonl_records(path: Path, skipped: Counter[str]) -> Iterator[_Record]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                skipped["blank lines"] += 1
                continue
            try:
                value = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError):
                skipped["undecodable lines"] += 1
                continue
            yield from _from_mapping(value, f"{path.stem}-{number}", skipped)


def _from_mapping(value: object, fallback_id: str, skipped: Counter[str]) -> Iterator[_Record]:
    if not isinstance(value, dict):
        skipped["lines that are not objects"] += 1
        return
    key = next((k for k in _TEXT_KEYS if value.get(k) not in (None, "")), None)
    text = "" if key is None else _printable(str(value[key])).strip()
    if not text:
        skipped["lines without text"] += 1
        return
    metadata = {str(k): v for k, v in value.items() if k not in (*_TEXT_KEYS, "id", "title") and _small(v)}
    title = _printable(str(value.get("title") or _first_line(text)))
    yield _Record(_printable(str(value.get("id") or fallback_id)), title, text, metadata)


def _text_records(path: Path, skipped: Counter[str]) -> Iterator[_Record]:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        skipped["undecodable files"] += 1
        return
    if not text:
        skipped["empty files"] += 1
        return
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    yield _Record(f"{path.stem}-{digest}", _first_line(text).lstrip("# ") or path.stem, text, {"file": path.name})


def _parquet_records(path: Path, skipped: Counter[str]) -> Iterator[_Record]:
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise UserError(f"corpus.source: {path} is Parquet; install pyarrow, or convert it to JSONL") from error
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield from _from_mapping(row, f"{path.stem}-{number}", skipped)
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        raise UserError(f"corpus.source: {path} is not readable Parquet: {error}") from error


def _document(record: _Record, max_words: int) -> Document:
    words = record.text.split()
    text = record.text
    if len(words) > max_words:
        text = " ".join(words[:max_words]) + f"\n[cut here: the first {max_words} of {len(words)} words]"
    return Document(record.id[:200], record.title[:200], text, len(words), record.metadata)


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:80]


def _printable(text: str) -> str:
    """Without lone surrogates, which no UTF-8 writer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _small(value: object) -> bool:
    """Metadata that can go into an event: plain JSON of modest size."""
    try:
        return len(json.dumps(value, allow_nan=False)) <= _MAX_METADATA_CHARS
    except (TypeError, ValueError, RecursionError):
        return False
