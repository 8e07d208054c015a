"""The corpus: documents the designer is grounded in (spec 10). Reads JSONL, text, Markdown, Parquet, folders and builtin:demo."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.config import CorpusConfig
from trainer.errors import UserError
from trainer.paths import given_path

BUILTIN = {"builtin:demo": Path(__file__).parent / "corpora" / "demo.jsonl"}
_TEXT_SUFFIXES = {".txt", ".md", ".markdown"}
_JSONL_SUFFIXES = {".jsonl", ".ndjson"}
SUFFIXES = frozenset(_TEXT_SUFFIXES | _JSONL_SUFFIXES | {".parquet"})
_TEXT_KEYS = ("orig_doc", "text")
_MAX_ID_CHARS = 200
_MAX_METADATA_CHARS = 2000
_MAX_RECORD_BYTES = 64 * 1024**2  # one line or text file; a document is cut to some thousand words anyway
_PARQUET_ROWS = 1024  # in memory at once
_MAX_PLACES = 20


@dataclass(frozen=True, slots=True)
class Document:
    """One document, already cut. `words` counts the uncut text."""

    id: str
    title: str
    text: str
    words: int
    metadata: dict[str, Any] = field(default_factory=dict)


class Skips:
    """What was not usable: how many by reason, and where the first ones are."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: list[tuple[str, str]] = []

    def add(self, reason: str, place: str) -> None:
        """One more thing skipped for `reason` at `place` ("file.jsonl, line 7")."""
        self.counts[reason] += 1
        if len(self.places) < _MAX_PLACES:
            self.places.append((reason, place))

    def __str__(self) -> str:
        return ", ".join(f"{n} {why}" for why, n in sorted(self.counts.items())) or "it is empty"


class Corpus:
    """Documents with their own seeded generator: drawn uniformly, one fresh document per design attempt."""

    def __init__(self, documents: Sequence[Document], *, source: str, skipped: Mapping[str, int], seed: int) -> None:
        self.documents = list(documents)
        self.source = source
        self.skipped = dict(skipped)
        self.digest = _digest(self.documents)
        self._rng = random.Random(seed)  # noqa: S311 - reproducible draws, not secrets
        self.drawn = 0

    def draw(self) -> Document:
        """The next document."""
        self.drawn += 1
        return self.documents[self._rng.randrange(len(self.documents))]

    def state(self) -> dict[str, Any]:
        version, internal, gauss = self._rng.getstate()
        rng = [version, list(internal), gauss]
        return {"drawn": self.drawn, "documents": len(self.documents), "digest": self.digest, "rng": rng}

    def load_state(self, state: Mapping[str, Any]) -> str:
        """Continue the draws of a checkpoint; returns a warning when the corpus is not the one it was saved with, else ""."""
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))
        self.drawn = int(state["drawn"])
        before, now = state["documents"], len(self.documents)
        if before != now:
            change = f"holds {now} documents, {before} when the checkpoint was written"
        elif state.get("digest", self.digest) != self.digest:  # older checkpoints have none
            change = f"holds as many documents as when the checkpoint was written ({now}), but not the same texts"
        else:
            return ""
        return f"the corpus {self.source} {change}: further draws differ"


def load_corpus(config: CorpusConfig) -> Corpus | None:
    """Read the configured corpus; None when it is switched off. Raises `UserError` when it is missing or holds nothing usable."""
    if not config.enabled:
        return None
    skips = Skips()
    documents = list(read_documents(config, skips))
    return Corpus(documents, source=config.source, skipped=skips.counts, seed=config.seed)


def read_documents(config: CorpusConfig, skips: Skips) -> Iterator[Document]:
    """The usable documents one after the other, cut; `skips` fills on the way. Raises `UserError` as `load_corpus` does."""
    if config.source.startswith("builtin:") and config.source not in BUILTIN:
        raise UserError(f"corpus.source: {config.source} is not built in; there is {', '.join(BUILTIN)}")
    path = BUILTIN.get(config.source) or given_path("corpus.source", config.source)
    if path is None:
        raise UserError(f"corpus.source: {config.source} does not exist; give a file or folder, or builtin:demo")
    shown: dict[str, bytes] = {}
    for record in _records(path, skips):
        yield _with_own_id(_document(record, config.max_words), shown)
    if not shown:
        raise UserError(
            f"corpus.source: {config.source} holds no usable document ({skips}); "
            'a JSONL line needs text under "orig_doc" or "text"'
        )


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


def _records(path: Path, skips: Skips) -> Iterator[_Record]:
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in SUFFIXES):
            yield from _records(file, skips)
        return
    suffix = path.suffix.lower()
    try:
        if suffix in _TEXT_SUFFIXES:
            yield from _text_records(path, skips)
        elif suffix == ".parquet":
            yield from _parquet_records(path, skips)
        elif suffix in _JSONL_SUFFIXES:
            yield from _jsonl_records(path, skips)
        else:
            raise UserError(f"corpus.source: {path} is not .jsonl, .txt, .md or .parquet, nor a folder of such files")
    except OSError as error:
        raise UserError(f"corpus.source: cannot read {path}: {error.strerror or error}") from error


def _jsonl_records(path: Path, skips: Skips) -> Iterator[_Record]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_MAX_RECORD_BYTES):
            number += 1
            place = f"{path.name}, line {number}"
            if len(line) == _MAX_RECORD_BYTES and not line.endswith(b"\n"):
                skips.add("lines over 64 MiB", place)
                while (rest := file.readline(_MAX_RECORD_BYTES)) and not rest.endswith(b"\n"):
                    pass
                continue
            if not line.strip():
                skips.add("blank lines", place)
                continue
            try:
                value = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError):
                skips.add("undecodable lines", place)
                continue
            yield from _from_mapping(value, f"{path.stem}-{number}", place, skips)


def _from_mapping(value: object, fallback_id: str, place: str, skips: Skips) -> Iterator[_Record]:
    if not isinstance(value, dict):
        skips.add("lines that are not objects", place)
        return
    texts = (_printable(found).strip() for key in _TEXT_KEYS if isinstance(found := value.get(key), str))
    text = next(filter(None, texts), "")
    if not text:
        skips.add("lines without text", place)
        return
    metadata = {str(k): v for k, v in value.items() if k not in (*_TEXT_KEYS, "id", "title") and _small(v)}
    title = _printable(str(value.get("title") or _first_line(text)))
    yield _Record(_printable(str(value.get("id") or fallback_id)), title, text, metadata)


def _text_records(path: Path, skips: Skips) -> Iterator[_Record]:
    if path.stat().st_size > _MAX_RECORD_BYTES:
        skips.add("text files over 64 MiB", path.name)
        return
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        skips.add("undecodable files", path.name)
        return
    if not text.strip("\ufeff"):
        skips.add("empty files", path.name)
        return
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    text = text.removeprefix("\ufeff").lstrip()  # after the digest: ids are what they were
    stem, name = _printable(path.stem), _printable(path.name)
    yield _Record(f"{stem}-{digest}", _first_line(text).lstrip("# ") or stem, text, {"file": name})


def _parquet_records(path: Path, skips: Skips) -> Iterator[_Record]:
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise UserError(f"corpus.source: {path} is Parquet; install pyarrow, or convert it to JSONL") from error
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=_PARQUET_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield from _from_mapping(row, f"{path.stem}-{number}", f"{path.name}, row {number}", skips)
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        raise UserError(f"corpus.source: {path} is not readable Parquet: {error}") from error


def _document(record: _Record, max_words: int) -> Document:
    words = record.text.split()
    text = record.text
    if len(words) > max_words:
        text = " ".join(words[:max_words]) + f"\n[cut here: the first {max_words} of {len(words)} words]"
    return Document(record.id[:_MAX_ID_CHARS], record.title[:200], text, len(words), record.metadata)


def _with_own_id(document: Document, shown: dict[str, bytes]) -> Document:
    """The document; with a digest behind its id when another one has that id: what is logged and traced back goes by the id.

    `shown`: id -> digest of what the designer sees of the document that has it.
    """
    digest = hashlib.blake2b(f"{document.title}\0{document.text}".encode(), digest_size=8)
    if shown.setdefault(document.id, digest.digest()) != digest.digest():
        document = replace(document, id=f"{document.id[: _MAX_ID_CHARS - 17]}-{digest.hexdigest()}")
        shown[document.id] = digest.digest()
    return document


def _digest(documents: Sequence[Document]) -> str:
    """Of what the designer may see: ids, titles and texts as they are cut."""
    digest = hashlib.blake2b(digest_size=16)
    for document in documents:
        digest.update("\0".join((document.id, document.title, document.text, "")).encode())
    return digest.hexdigest()


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
