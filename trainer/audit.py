"""The optional last gate: the policy is asked whether an environment has a fatal bug (spec 4, `audit`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.agent import boxed_content
from trainer.config import HintConfig
from trainer.policy import Answer, Policy, Question
from trainer.prompts import Message

Verdict = Literal["sound", "broken", "unreadable"]

_TASK = """\
Below is the source of a text game for one player. Check only whether it has a fatal bug: an episode that cannot be won by any
actions, a win condition that contradicts the stated rules, hidden information that nothing ever reveals but that is needed to
win, or a state that no longer changes. A game that is merely hard, long or plain is sound; do not judge style.

```python
{code}
```

Answer \\boxed{{yes}} when the game is sound, \\boxed{{no}} when it has a fatal bug, with one sentence before it."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The verdict with the reply it was read from."""

    verdict: Verdict
    answer: Answer


def audit(policy: Policy, codes: Sequence[str], seeds: Sequence[int], *, config: HintConfig) -> list[Audited]:
    """Ask about all programs in one batch. Only a clear "no" is `broken`; what cannot be read, or did not come, is `unreadable`."""
    questions = [
        Question(audit_messages(code), config.max_tokens, config.temperature, seed)
        for code, seed in zip(codes, seeds, strict=True)
    ]
    return [Audited(verdict_of(answer), answer) for answer in policy.ask(questions)]


def audit_messages(code: str) -> list[Message]:
    return [Message(role="user", content=_TASK.format(code=code))]


def verdict_of(answer: Answer) -> Verdict:
    """Verdict in the last box of the reply: an earlier one may quote the question."""
    if answer.error or answer.finish == "length":
        return "unreadable"
    start = answer.text.rfind("\\boxed{")
    content = (boxed_content(answer.text[start:]) or "").lower() if start >= 0 else ""
    if content in ("no", "false"):
        return "broken"
    return "sound" if content in ("yes", "true") else "unreadable"
