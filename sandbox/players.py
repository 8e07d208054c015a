"""The random player of spec 01, section 4: what somebody wins who reads the observation for options and nothing else."""

from __future__ import annotations

import random
import re

_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_PLACEHOLDER = re.compile(r"<[^<>]*>|\.\.\.|…|(?<![A-Za-z])[A-Z](?![A-Za-z])")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_WIDEST_WORD = 40


def options_of(observation: str) -> list[str]:
    """Insides of the `\\boxed{…}` strings an observation shows, in order, without repeats."""
    return list(dict.fromkeys(_BOXED.findall(observation)))


def random_action(observation: str, generator: random.Random) -> str:
    """One uniformly chosen option, its placeholders filled; a boxed integer 0–100 when none is shown.

    Several lone capital letters side by side are the options of a multiple choice, not placeholders.
    """
    options = options_of(observation)
    if not options:
        return f"\\boxed{{{generator.randint(0, 100)}}}"
    option: str = generator.choice(options)
    letters = [text for text in options if len(text) == 1 and text.isupper()]
    if len(letters) > 1 and option in letters:
        return f"\\boxed{{{option}}}"
    words = [word for word in _WORD.findall(observation) if len(word) <= _WIDEST_WORD and word != "boxed"]

    def fill(_: re.Match[str]) -> str:
        if words and generator.random() < 0.5:
            return str(generator.choice(words))
        return str(generator.randint(0, 20))

    return f"\\boxed{{{_PLACEHOLDER.sub(fill, option)}}}"
