"""The full prompt set says what the contract, the gates and the memory need."""

from __future__ import annotations

import ast
import re

from trainer.prompts import ShownCounterExample, ShownDocument, ShownExample
from trainer.prompts.sets import prompt_set

PROMPTS = prompt_set("full")


def design(**changes: object) -> str:
    arguments: dict[str, object] = {
        "skill": "Optimization", "document": None, "examples": [], "counter_examples": [], "max_turns": 25,
    }  # fmt: skip
    messages = PROMPTS.design(**(arguments | changes))  # type: ignore[arg-type]
    assert [m["role"] for m in messages] == ["system", "user"]
    return messages[1]["content"]


def test_the_designer_is_told_the_skill_the_contract_and_the_turn_budget() -> None:
    text = design()
    for phrase in (
        "Optimization",
        "class whose name ends in `Env`",
        "max_turns: int = 25",
        "solution()",
        "\\boxed{...}",
        "within 25 turns",
    ):
        assert phrase in text
    assert "document" not in text and "Example 1" not in text


def test_the_interface_shown_to_the_designer_is_python() -> None:
    block = re.search(r"```python\n(.*?)```", design(), re.DOTALL)
    assert block is not None
    [shown] = ast.parse(block.group(1)).body
    assert isinstance(shown, ast.ClassDef)
    assert [f.name for f in shown.body if isinstance(f, ast.FunctionDef)] == [
        "__init__",
        "reset",
        "step",
        "solution",
        "close",
    ]


def test_the_document_and_the_memory_are_shown_with_their_figures() -> None:
    text = design(
        document=ShownDocument("Tides", "The moon {pulls} the sea."),
        examples=[
            ShownExample("DialEnv", "Optimization", 0.5, 0.25, "class DialEnv: {x}"),
            ShownExample("LockEnv", "Optimization", 0.3, None, "class LockEnv"),
        ],
        counter_examples=[ShownCounterExample("CoinEnv", "too easy")],
    )
    assert "The moon {pulls} the sea." in text and "document: Tides" in text
    assert "win rate 0.50, regret 0.25" in text and "win rate 0.30, regret unknown" in text
    assert "class DialEnv: {x}" in text and "something different" in text
    assert "- CoinEnv: too easy" in text


def test_the_hint_request_shows_the_source_and_forbids_the_answer() -> None:
    text = PROMPTS.hint(code="class AEnv:\n    x = {1: 2}")[1]["content"]
    assert "x = {1: 2}" in text and "100 words" in text and "Do not give away the answer" in text


def test_a_play_opens_with_the_observation_and_the_hint_is_injected_after_a_blank_line() -> None:
    observation = PROMPTS.inject_hint(observation="Guess {N}.", hint="Halve it.")
    assert observation == "Guess {N}.\n\nHINT: Halve it."
    [message] = PROMPTS.play(observation=observation)
    assert message["content"].endswith(observation) and "\\boxed{...}" in message["content"]
