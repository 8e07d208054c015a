"""The demo corpus keeps its promises: size, balance, format, and that no document repeats another."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

KEYS = ["id", "title", "domain", "topic", "nouns", "text"]
ID_PREFIX_BY_DOMAIN = {"mathematics": "mathematics", "science": "science", "everyday systems": "everyday"}
RUN_LENGTH_WORDS = 8
NUMBER_WORDS = "two|three|four|five|six|seven|eight|nine|ten|twelve|half|twice|third|quarter|hundred|thousand"


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    raw = files("trainer.corpora").joinpath("demo.jsonl").read_bytes()
    return [json.loads(line) for line in raw.decode("ascii").splitlines()]


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def test_there_are_180_documents_sixty_in_each_domain(documents):
    assert Counter(document["domain"] for document in documents) == {
        "mathematics": 60,
        "science": 60,
        "everyday systems": 60,
    }


def test_every_document_has_exactly_the_described_keys(documents):
    for document in documents:
        assert list(document) == KEYS, document["id"]
        for key in ("id", "title", "domain", "topic", "text"):
            assert isinstance(document[key], str), document["id"]
            assert document[key] == document[key].strip() != "", document["id"]


@pytest.mark.parametrize("key", ["id", "title", "topic", "text"])
def test_no_two_documents_share_a_value(documents, key):
    counts = Counter(document[key].lower() for document in documents)
    assert [value for value, count in counts.items() if count > 1] == []


def test_ids_count_up_from_001_within_their_domain(documents):
    seen: Counter[str] = Counter()
    for document in documents:
        domain = document["domain"]
        seen[domain] += 1
        prefix = f"{ID_PREFIX_BY_DOMAIN[domain]}-{seen[domain]:03d}-"
        assert re.fullmatch(re.escape(prefix) + r"[a-z]+(-[a-z]+)*", document["id"]), document["id"]


def test_texts_are_one_line_of_plain_ascii_between_60_and_110_words(documents):
    for document in documents:
        text = document["text"]
        assert text.isascii() and text.isprintable(), document["id"]
        assert 60 <= len(text.split()) <= 110, document["id"]
        assert text.endswith("."), document["id"]
        assert "  " not in text, document["id"]


def test_every_text_states_at_least_one_quantity(documents):
    quantity = re.compile(rf"\d+|\b(?:{NUMBER_WORDS})\b", re.IGNORECASE)
    assert [document["id"] for document in documents if not quantity.search(document["text"])] == []


def test_nouns_are_four_to_six_distinct_words_that_occur_in_the_text(documents):
    for document in documents:
        nouns = document["nouns"]
        assert 4 <= len(nouns) <= 6, document["id"]
        assert len(set(nouns)) == len(nouns), document["id"]
        present = set(words_of(document["text"]))
        for noun in nouns:
            assert re.fullmatch(r"[a-z]{2,}", noun), (document["id"], noun)
            assert noun in present, (document["id"], noun)


def test_no_run_of_eight_words_occurs_in_two_documents(documents):
    first_seen: dict[tuple[str, ...], str] = {}
    shared = []
    for document in documents:
        words = words_of(document["text"])
        for start in range(len(words) - RUN_LENGTH_WORDS + 1):
            run = tuple(words[start : start + RUN_LENGTH_WORDS])
            owner = first_seen.setdefault(run, document["id"])
            if owner != document["id"]:
                shared.append((owner, document["id"], " ".join(run)))
    assert shared == []


def test_openings_vary(documents):
    openings = Counter(" ".join(words_of(document["text"])[:3]) for document in documents)
    assert [opening for opening, count in openings.items() if count > 2] == []
    assert len(openings) >= 170
