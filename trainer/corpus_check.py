"""Looking a corpus over before a run uses it: what is usable, what is not and where, and the first documents.

Files from elsewhere are parsed here, so the web application runs it as a process of its own, with limits on memory and time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from trainer.config import CorpusConfig
from trainer.corpus import Document, Skips, read_documents

PREVIEWED = 5
PREVIEW_CHARS = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    """What a corpus holds. `words` counts uncut texts; `skipped`: reason -> how many; `places`: [reason, where] of the first ones."""

    documents: int
    words: int
    longest_words: int
    cut: int
    skipped: dict[str, int]
    places: list[tuple[str, str]]
    preview: list[dict[str, Any]]

    def as_json(self) -> str:
        """One line of JSON, ASCII only."""
        return json.dumps(asdict(self))


def check_corpus(config: CorpusConfig) -> CorpusReport:
    """Read the whole corpus as a run would, one document in memory at a time. Raises `UserError` when nothing in it is usable."""
    skips = Skips()
    documents = read_documents(config, skips)
    preview = []
    count = words = longest = cut = 0
    for document in documents:
        if count < PREVIEWED:
            preview.append(_shown(document))
        count += 1
        words += document.words
        longest = max(longest, document.words)
        cut += document.words > config.max_words
    return CorpusReport(
        documents=count, words=words, longest_words=longest, cut=cut, skipped=dict(sorted(skips.counts.items())),
        places=skips.places, preview=preview,
    )  # fmt: skip


def _shown(document: Document) -> dict[str, Any]:
    metadata = {key[:60]: str(value)[:120] for key, value in islice(document.metadata.items(), 8)}
    text = document.text[:PREVIEW_CHARS]
    return {
        "id": document.id,
        "title": document.title,
        "words": document.words,
        "text": text,
        "is_cut": len(text) < len(document.text),
        "metadata": metadata,
    }
