"""The ordinary words that are single pieces of the built-in tokenizer, capitalised as they stand in prompts and programs."""

from __future__ import annotations

import functools
from pathlib import Path

WORDS_FILE = Path(__file__).parent / "words.txt"


@functools.cache
def ordinary_words() -> tuple[str, ...]:
    """All words of `words.txt`: nouns we listed, and the words of the demo corpus, whatever document they stand in."""
    return tuple(word.capitalize() for word in WORDS_FILE.read_text(encoding="ascii").split())
