"""Pre-training examples, an endless seeded stream: designs, hints and play, rendered exactly as the loop renders them."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import SKILLS
from trainer.prompts import Message, ShownCounterExample, ShownDocument, ShownExample
from trainer.prompts.compact import CompactPrompts, theme_numbers, theme_words
from trainer.starter.families import families_of
from trainer.starter.families.program import LEVELS, Program, Theme
from trainer.starter.play import load_own, play
from trainer.starter.tokens import opening_text, turn_text
from trainer.starter.words import ordinary_words

PROMPTS = CompactPrompts()
DEMO_CORPUS = Path(__file__).parents[1] / "corpora" / "demo.jsonl"
HELD_OUT_SHARE = 0.2
PLAIN_WORDS = ("Lamp", "Gate", "Tank", "Wheel", "Bell", "Crate")
DISGUISED_SHARE = 0.85
TURN_BUDGETS = (8, 10, 10, 10, 12)


@dataclass(frozen=True, slots=True)
class Example:
    """`parts` alternate context and reply text, context first; only replies are trained on. `kind`: design, hint or play."""

    kind: str
    parts: tuple[str, ...]


def documents(*, held_out: bool, path: Path = DEMO_CORPUS) -> list[ShownDocument]:
    """Documents of the demo corpus, split by a hash of their id; the held-out part is never trained on."""
    chosen = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        bucket = int(hashlib.sha256(record["id"].encode()).hexdigest()[:8], 16) / 2**32
        if (bucket < HELD_OUT_SHARE) == held_out:
            chosen.append(ShownDocument(title=record["title"], text=record["text"]))
    return chosen


def theme_of(document: ShownDocument | None, rng: random.Random) -> Theme:
    """Two of the document's words (or plain ones) and its numbers."""
    words = theme_words(document) if document is not None else []
    numbers = theme_numbers(document) if document is not None else []
    if not words:
        words = rng.sample(PLAIN_WORDS, 2)
    thing, place = rng.sample(words, 2) if len(words) > 1 else (words[0], words[0])
    return Theme(thing=thing, place=place, numbers=tuple(int(number) for number in numbers))


def disguised(document: ShownDocument, rng: random.Random) -> ShownDocument:
    """The document with its theme words replaced by other ordinary ones, so that copying is the only way to write them."""
    title, text = document.title, document.text
    words = theme_words(document)
    for word, other in zip(words, rng.sample(ordinary_words(), len(words)), strict=True):
        pattern = re.compile(rf"\b{word}(?=s?\b)", re.IGNORECASE)
        title, text = pattern.sub(other.lower(), title), pattern.sub(other.lower(), text)
    return ShownDocument(title=title, text=text)


def draw_design(documents: Sequence[ShownDocument], rng: random.Random) -> tuple[list[Message], Program, int]:
    """A designer prompt as the loop would write it, the program that answers it, and the turn budget shown.

    Memory steers: a family that was shown is avoided two times of three, and one that was too easy or too hard moves its level.
    """
    skill = rng.choice(SKILLS)
    document = rng.choice(documents) if rng.random() < 0.96 else None
    if document is not None and rng.random() < DISGUISED_SHARE:
        document = disguised(document, rng)
    max_turns = rng.choice(TURN_BUDGETS)
    families = families_of(skill)
    examples: list[ShownExample] = []
    shown: set[str] = set()
    for _ in range(rng.choice((0, 1, 2, 2, 2))):
        other = _other_program(families, documents, rng, max_turns)
        shown.add(other.family)
        success = rng.randint(3, 17) / 20
        snippet = other.source[:2000]
        examples.append(ShownExample(other.class_name, skill, success, rng.randint(-2, 14) / 16, snippet))
    counters: list[ShownCounterExample] = []
    moved: dict[str, str] = {}
    if rng.random() < 0.5:
        other = _other_program(families, documents, rng, max_turns)
        reason = rng.choice(("too easy", "too hard"))
        moved[other.family] = "hard" if reason == "too easy" else "easy"
        counters.append(ShownCounterExample(other.class_name, reason))
    fresh = [family for family in families if family.name not in shown]
    family = rng.choice(fresh if fresh and rng.random() < 0.67 else families)
    level = moved[family.name] if family.name in moved and rng.random() < 0.85 else rng.choice(LEVELS)
    program = family.draw(rng, theme=theme_of(document, rng), level=level, max_turns=max_turns)
    messages = PROMPTS.design(
        skill=skill, document=document, examples=examples, counter_examples=counters, max_turns=max_turns
    )
    return messages, program, max_turns


def _other_program(
    families: Sequence[Any], documents: Sequence[ShownDocument], rng: random.Random, max_turns: int
) -> Program:
    theme = theme_of(rng.choice(documents), rng)
    program: Program = rng.choice(families).draw(rng, theme=theme, level=rng.choice(LEVELS), max_turns=max_turns)
    return program


def examples_of_design(
    documents: Sequence[ShownDocument], rng: random.Random, *, unhinted: int, hinted: int
) -> Iterator[Example]:
    """One design and what follows from it in the loop: its hint, and plays of both arms."""
    messages, program, max_turns = draw_design(documents, rng)
    yield Example("design", (opening_text(messages), fenced(program.source)))
    if rng.random() < 0.5:
        yield Example("hint", (opening_text(PROMPTS.hint(code=program.source)), program.hint))
    environment = load_own(program)
    for arm_hinted in [False] * unhinted + [True] * hinted:
        episode = play(program, environment, hinted=arm_hinted, seed=rng.getrandbits(63), rng=rng, max_turns=max_turns)
        first = episode.observations[0]
        if arm_hinted:
            first = PROMPTS.inject_hint(observation=first, hint=program.hint)
        parts = [opening_text(PROMPTS.play(observation=first)), episode.replies[0]]
        for observation, reply in zip(episode.observations[1:], episode.replies[1:], strict=True):
            parts += [turn_text(observation), reply]
        yield Example("play", tuple(parts))


def fenced(source: str) -> str:
    """The designer's reply: the program in a python fence, nothing else."""
    return f"```python\n{source}\n```"


def stream(
    documents: Sequence[ShownDocument], *, seed: int, chunk: int, designs: int, plays: tuple[int, int] = (3, 4)
) -> list[Example]:
    """Chunk number `chunk` of the stream: the same for the same arguments, whatever was drawn before. `plays`: unhinted, hinted."""
    rng = random.Random(f"{seed}/{chunk}")  # noqa: S311 - a seeded stream, not a secret
    drawn: list[Example] = []
    for _ in range(designs):
        drawn += examples_of_design(documents, rng, unhinted=plays[0], hinted=plays[1])
    return drawn
