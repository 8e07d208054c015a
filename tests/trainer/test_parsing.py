"""Actions and programs taken out of replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.agent import action_of, boxed_content
from trainer.extract import code_block, extract_program, repair_fstrings

CASES = json.loads((Path(__file__).parents[1] / "conformance" / "parsing.json").read_text())


@pytest.mark.parametrize("case", CASES["boxed"])
def test_boxed_actions_agree_with_the_shared_cases(case: dict[str, Any]) -> None:
    assert boxed_content(case["text"]) == case["extract"]
    assert action_of(case["text"]) == case["action"]


@pytest.mark.parametrize("case", CASES["code_block"])
def test_code_blocks_agree_with_the_shared_cases(case: dict[str, Any]) -> None:
    assert code_block(case["text"]) == case["expect"]


@pytest.mark.parametrize("case", CASES["fstring_repair"])
def test_fstring_repair_agrees_with_the_shared_cases(case: dict[str, Any]) -> None:
    assert repair_fstrings(case["code"])[0] == case["expect"]


def test_a_box_inside_thinking_is_not_the_action() -> None:
    assert action_of("<think>maybe \\boxed{1}</think> I say \\boxed{2}") == "\\boxed{2}"


def test_the_first_of_two_boxes_counts_and_a_broken_one_is_passed_over() -> None:
    assert boxed_content("\\boxed{1} then \\boxed{2}") == "1"
    assert boxed_content("\\boxed{a \\boxed{b}") == "b"


def test_two_separate_groups_are_not_redundant_braces() -> None:
    assert boxed_content("\\boxed{{a}{b}}") == "{a}{b}"


def test_first_python_fence_wins_and_an_unclosed_one_runs_to_the_end() -> None:
    assert code_block("```python\na = 1\n```\n```python\nb = 2\n```") == "a = 1"
    assert code_block("text\n```python\nclass A:\n    pass") == "class A:\n    pass"


def test_repair_leaves_a_program_that_parses_alone_even_with_nested_quotes() -> None:
    code = "d = {'a': 1}\nx = f'{d}'\ny = 'literal {braces}'"
    assert repair_fstrings(code) == (code, 0)


def test_repair_keeps_good_fields_and_doubles_bad_ones_on_the_same_line() -> None:
    code = "n = 3\nx = f'up to {n}: \\\\boxed{<word>} now'"
    fixed, lines = repair_fstrings(code)
    assert fixed == "n = 3\nx = f'up to {n}: \\\\boxed{{<word>}} now'"
    assert lines == 1


def test_extract_names_what_is_missing() -> None:
    assert "no code" in extract_program("   ", source_bytes=1000).problem
    assert "no class" in extract_program("I cannot do that.", source_bytes=1000).problem
    assert "source_bytes" in extract_program("class AEnv:\n" + "#" * 2000, source_bytes=1000).problem
    assert extract_program("class AEnv:\n    pass", source_bytes=1000).problem == ""


def test_a_reply_of_nothing_but_open_boxes_is_read_in_one_pass() -> None:
    assert boxed_content("\\boxed{" * 60_000) is None
    assert boxed_content("\\boxed{" * 60_000 + "7}") == "7"
    assert boxed_content("}}{ \\boxed{a{b}c} \\boxed{d}") == "a{b}c"
