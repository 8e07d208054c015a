"""Full prompts for capable instruction models: games setting. Texts are ours; what they must contain is spec 3, 5, 9 and 10."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.prompts import Message, ShownCounterExample, ShownDocument, ShownExample

_DESIGNER_SYSTEM = (
    "You design small text games that train a language model to reason. You write each game as one self-contained Python "
    "class. You care about three things: the code runs, the game can be won by thinking and not by luck, and it is neither "
    "trivial nor hopeless for a good player."
)

_CONTRACT = """\
Write one class whose name ends in `Env`, with exactly this interface:

```python
class SomethingEnv:
    def __init__(self, max_turns: int = {max_turns}, **kwargs): ...
    def reset(self, seed=None): ...      # -> (observation, info)
    def step(self, action: str): ...     # -> (observation, reward, terminated, truncated, info)
    def solution(self): ...              # -> list of actions that win the episode just reset
    def close(self): ...
```

Contract
- `reset` draws the whole hidden state from `random.Random(seed)`; the same seed gives the same episode,
  different seeds give different ones.
- Observations are non-empty text. The first one states the rules, the goal, the turn limit and the exact form of an action.
- The player answers with `\\boxed{{...}}`; `step` receives that string. Take the text out of the box, and answer anything you
  cannot read with a short message and reward 0.0; never raise.
- `reward` is a number in [0, 1]: 1.0 for reaching the goal, 0.0 otherwise, part of it only for real partial success at the end.
- `terminated` is True when the game is won or lost for good; `truncated` is True when `max_turns` is used up. Both are real booleans.
- `info` is a dictionary of numbers.
- `solution()` is called right after `reset(seed)` and returns the boxed actions, in order, that win that episode.
- Only the Python standard library and numpy; no files, network, threads, input or printing. Define everything you use.
"""

_INTERACTIVE = """\
What makes the game worth playing
- Interactive: it takes several actions. Something is hidden, and acting reveals it; every observation reflects what the last action did.
- The goal cannot be reached in one action, and a player who picks listed actions at random wins at most one time in ten.
- Feedback helps to reason but never prints the hidden answer, also not when the game is lost.
- There is a clear win condition that a careful player reaches well within {max_turns} turns.
- Difficulty comes from reasoning about rules and evidence, not from obscure formats, long arithmetic or trivia.
- Aim for a game that a good player wins about half of the time without help, and more often when told the right strategy.
"""

_HINT_SYSTEM = (
    "You advise a player of a text game. You have read its source code; the player sees only its observations."
)

_HINT_TASK = """\
Below is the source of a game. Write a hint for a player: the key insight or strategy that wins it, and the exact form of an
action. At most 3 sentences and 100 words. Refer only to what the player can see; never name variables or functions of the
code. Do not give away the answer or the winning action of any episode: it differs from episode to episode.
Reply with the hint alone.

```python
{code}
```"""

_PLAY_TASK = """\
You are playing a text game. Read the observation, think, and end each reply with one action inside \\boxed{{...}}, in the form
the game asks for. Only the boxed text is passed to the game.

{observation}"""


class FullPrompts:
    """`PromptSet` for instruction models of a few billion parameters and more."""

    def design(
        self,
        *,
        skill: str,
        document: ShownDocument | None,
        examples: Sequence[ShownExample],
        counter_examples: Sequence[ShownCounterExample],
        max_turns: int,
    ) -> list[Message]:
        """Messages that ask the designer for one environment."""
        parts = [f"Design a new text game that exercises this skill: {skill}."]
        if document is not None:
            parts.append(
                "Ground it in the document below: its objects, quantities and rules become the world of the game. The game "
                "must stand on its own; do not mention the document.\n\n"
                f"--- document: {document.title} ---\n{document.text}\n--- end of document ---"
            )
        parts += [_CONTRACT.format(max_turns=max_turns), _INTERACTIVE.format(max_turns=max_turns)]
        parts += _memory_parts(examples, counter_examples)
        parts.append(
            "Before you write, go through one episode in your mind: the first observation, each action of `solution()`, "
            "each reply. Then reply with the complete program in one ```python fence."
        )
        return [
            Message(role="system", content=_DESIGNER_SYSTEM),
            Message(role="user", content="\n\n".join(parts)),
        ]

    def hint(self, *, code: str) -> list[Message]:
        """Messages that ask for the hint of an environment."""
        return [
            Message(role="system", content=_HINT_SYSTEM),
            Message(role="user", content=_HINT_TASK.format(code=code)),
        ]

    def play(self, *, observation: str) -> list[Message]:
        """Messages that open an episode."""
        return [Message(role="user", content=_PLAY_TASK.format(observation=observation))]

    def inject_hint(self, *, observation: str, hint: str) -> str:
        """Observation, a blank line, the word HINT and the text."""
        return f"{observation}\n\nHINT: {hint}"


def _memory_parts(examples: Sequence[ShownExample], counter_examples: Sequence[ShownCounterExample]) -> list[str]:
    parts: list[str] = []
    if examples:
        shown = "\n\n".join(
            f"Example {number}: skill {e.skill}, win rate {e.success_share:.2f}, "
            f"regret {'unknown' if e.regret is None else format(e.regret, '.2f')}\n```python\n{e.snippet}\n```"
            for number, e in enumerate(examples, start=1)
        )
        parts.append(
            "Earlier games that taught the player much (the code may be cut). Learn from what makes them work, and build "
            f"something different in mechanism and theme.\n\n{shown}"
        )
    if counter_examples:
        named = "\n".join(f"- {c.class_name}: {c.reason}" for c in counter_examples)
        parts.append(f"Earlier games that missed the mark; avoid their fault:\n{named}")
    return parts
