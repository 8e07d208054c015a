"""Small programs the sandbox tests play: honest ones, and pieces to build bad ones from."""

from __future__ import annotations

GUESS = r'''
class GuessEnv:
    """Guess a number between 1 and 1000; the environment says higher or lower."""

    def __init__(self, max_turns=10, **kwargs):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.number = rng.randint(1, 1000)
        self.turn = 0
        return f"Game {rng.randint(0, 10**6)}: guess a number from 1 to 1000. Reply \\boxed{{N}}.", {}

    def step(self, action):
        self.turn += 1
        truncated = self.turn >= self.max_turns
        found = re.search(r"boxed\{(\d{1,9})\}", action)
        if not found:
            return "Not a number. Reply \\boxed{N}.", 0.0, False, truncated, {"turn": self.turn}
        guess = int(found.group(1))
        if guess == self.number:
            return "Correct.", 1.0, True, False, {"turn": self.turn}
        word = "higher" if guess < self.number else "lower"
        return f"The number is {word} than {guess}. Reply \\boxed{{N}}.", 0.0, False, truncated, {"turn": self.turn}

    def solution(self):
        return [f"\\boxed{{{self.number}}}"]
'''

# Draws from the global generator at every step: only right when episodes do not share it.
GLOBAL_RANDOM = r"""
import random
from random import randint

class DrawEnv:
    def __init__(self, max_turns=10, **kwargs):
        pass

    def reset(self, seed=None):
        return f"start {random.random()}", {}

    def step(self, action):
        import random as again
        return f"{randint(0, 10**9)} {again.random()} {random.choice('abcdef')}", 0.0, False, False, {}
"""

GLOBAL_NUMPY = r"""
import numpy as np
from numpy.random import randint

class DrawEnv:
    def __init__(self, max_turns=10, **kwargs):
        pass

    def reset(self, seed=None):
        return f"start {np.random.rand()}", {}

    def step(self, action):
        return f"{randint(0, 10**9)} {np.random.normal()} {np.random.permutation(5).tolist()}", 0.0, False, False, {}
"""

MODULE_STATE = r"""
played = []

class CountEnv:
    total = 0

    def __init__(self, max_turns=10, **kwargs):
        CountEnv.total += 1

    def reset(self, seed=None):
        played.append(seed)
        return f"{CountEnv.total} {len(played)}", {}

    def step(self, action):
        played.append(action)
        return f"{CountEnv.total} {len(played)}", 0.0, False, False, {}
"""


def environment(
    reset: str = 'return "begin", {}',
    step: str = 'return "next", 0.0, False, False, {}',
    top: str = "",
    init: str = "pass",
) -> str:
    """A program whose constructor, reset and step have the given bodies (lines joined by newlines)."""

    def body(text: str) -> str:
        return "\n".join(f"        {line}" for line in text.strip("\n").splitlines())

    return f"""{top}
class MadeEnv:
    def __init__(self, max_turns=10, **kwargs):
        self.turn = 0
{body(init)}

    def reset(self, seed=None):
{body(reset)}

    def step(self, action):
        self.turn += 1
{body(step)}
"""
