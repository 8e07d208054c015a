"""Prompts for the built-in model: the same four requests as `full`, in as few tokens as a model of a million parameters needs.

A tiny model copies a word when it meets it spelled the way it has to write it, at a known place, with little around it that looks alike.
So the designer prompt ends with a line of the document's own recurring words, capitalised (each one token for the built-in model), and
earlier environments are named by their kind alone (`Search` for `LampSearchEnv`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from trainer.prompts import Message, ShownCounterExample, ShownDocument, ShownExample

EXCERPT_WORDS = 16
THEME_WORDS = 3
THEME_NUMBERS = 3
SNIPPET_LINES = 2

DESIGN_SYSTEM = "Design a game."
HINT_SYSTEM = "Give a hint."
PLAY_SYSTEM = "Play. Reply in \\boxed{}."

_COMMON = frozenset(
    re.findall(
        r"\S+",
        """
    about above after again amount answer back before below between best both case change different each early
    easy end even every exact fact few fewer final first five form four full good great half high higher hundred
    idea kind large larger largest last late least left length little long longer lower main many more most much
    near next number only other others over pair part person place point rest result right row same second several
    short side single sort start step way middle bottom top size small smaller smallest sure thing third thousand
    three time total true twice unit usual value very weak whole wrong year years that this with from than then
    they when which will would into onto upon have does must there their them what where while some such
    """,
    )
)
_AFTER_NOUN = frozenset(
    re.findall(
        r"\S+",
        """
    . , ; : of is are was were in on at by to and or has have can may that which with for from will must into than
    as
    """,
    )
)
_DETERMINERS = frozenset(
    re.findall(
        r"\S+",
        """
    a an the each every one two three four five six seven eight nine ten its of
    """,
    )
)


def theme_words(document: ShownDocument) -> list[str]:
    """Up to `THEME_WORDS` recurring nouns of the document, capitalised.

    A word counts when it follows a determiner ("the lamp", "two pumps"), three times as much in the title; ties go to the earlier.
    """
    counts: Counter[str] = Counter()
    for text, weight in ((document.title, 3), (document.text, 1)):
        words = re.findall(r"[A-Za-z'-]+|[.,;:]", text)
        for before, word, after in zip(["", *words], words, [*words[1:], "."], strict=False):
            lowered = singular(word.lower())
            if can_be_theme(lowered):
                ends_phrase = after in _AFTER_NOUN
                counts[lowered] += weight * (2 if before.lower() in _DETERMINERS and ends_phrase else 0)
                counts[lowered] += weight if ends_phrase and counts[lowered] else 0
    return [word.capitalize() for word, score in counts.most_common(THEME_WORDS) if score]


def can_be_theme(word: str) -> bool:
    """Whether a lower-case word may be a theme word: 3 to 11 plain letters, not a common word, not shaped like a verb or adverb."""
    return (
        bool(re.fullmatch("[a-z]{3,11}", word)) and word not in _COMMON and not word.endswith(("ly", "ing", "ed", "er"))
    )


def singular(word: str) -> str:
    """`lamps` counts with `lamp`; words such as `glass`, `gas` and `bus` stay."""
    return word[:-1] if len(word) > 4 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def theme_numbers(document: ShownDocument) -> list[str]:
    """The first `THEME_NUMBERS` different one- or two-digit numbers of the document that are at least 3."""
    found = re.findall(r"(?<![\d.,])(\d{1,2})(?![\d,]|\.\d)", document.text)
    return list(dict.fromkeys(number for number in found if int(number) >= 3))[:THEME_NUMBERS]


def kind_of(class_name: str) -> str:
    """The last capitalised word of an environment's class name before `Env`; the whole name when it has no such word."""
    found = re.search(r"([A-Z][a-z0-9]*)(?:Env)?$", class_name)
    return found.group(1) if found else class_name


def knob_lines(snippet: str) -> str:
    """The first lines of an example that set a number: what its difficulty depends on."""
    lines = [line.strip() for line in snippet.splitlines() if re.search(r"self\.\w.* = .*\d", line)]
    return "\n".join(lines[:SNIPPET_LINES])


class CompactPrompts:
    """The compact prompt set; stateless."""

    def design(
        self,
        *,
        skill: str,
        document: ShownDocument | None,
        examples: Sequence[ShownExample],
        counter_examples: Sequence[ShownCounterExample],
        max_turns: int,
    ) -> list[Message]:
        """Messages that ask for one environment; about 60 tokens of the built-in tokenizer plus the document's title and first words."""
        lines = [f"Turns: {max_turns}"]
        for example in examples:
            regret = "none" if example.regret is None else f"{round(example.regret * 100)}%"
            lines.append(
                f"Seen: {kind_of(example.class_name)}, won {round(example.success_share * 100)}%, regret {regret}"
            )
            lines.append(knob_lines(example.snippet))
        lines += [f"{counter.reason.capitalize()}: {kind_of(counter.class_name)}" for counter in counter_examples]
        if document is not None:
            lines += [f"Document: {document.title}", " ".join(document.text.split()[:EXCERPT_WORDS])]
            lines.append("Numbers: " + ", ".join(theme_numbers(document)))
        lines.append(f"Skill: {skill}")
        if document is not None:
            lines.append("Words: " + ", ".join(theme_words(document)))
        lines.append("Write something different.")
        return [
            {"role": "system", "content": DESIGN_SYSTEM},
            {"role": "user", "content": "\n".join(line for line in lines if line)},
        ]

    def hint(self, *, code: str) -> list[Message]:
        """Messages that ask for the hint of the environment in `code`."""
        return [{"role": "system", "content": HINT_SYSTEM}, {"role": "user", "content": code.strip()}]

    def play(self, *, observation: str) -> list[Message]:
        """Messages that open an episode."""
        return [{"role": "system", "content": PLAY_SYSTEM}, {"role": "user", "content": observation}]

    def inject_hint(self, *, observation: str, hint: str) -> str:
        """Observation, blank line, the word HINT and the text (spec 5)."""
        return f"{observation}\n\nHINT: {hint}"
