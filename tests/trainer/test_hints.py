"""Hints: what is taken from a reply, and what counts as giving the answer away."""

from __future__ import annotations

import pytest

from trainer.hints import holds_sequence, leak_of, wording_of
from trainer.policy import Answer


def answer(text: str, finish: str = "stop", error: str = "") -> Answer:
    return Answer("", (), text, (), (), finish, error)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Halve the interval.", "Halve the interval."),
        ('```json\n{"hint": "Halve it."}\n```', "Halve it."),
        ("<think>what now</think>\nHalve it.", "Halve it."),
        ('HINT: "Halve it."', "Halve it."),
        ("```\nHalve it.\n```", "Halve it."),
        ("{not json} but text", "{not json} but text"),
    ],
)
def test_the_hint_is_taken_out_of_its_wrapping(text: str, hint: str) -> None:
    assert wording_of(answer(text)).text == hint


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (answer("   "), "empty"),
        (answer("word " * 101), "101 words"),
        (answer("half a sen", finish="length"), "cut"),
        (answer("", finish="error", error="sampler: broken"), "sampler: broken"),
    ],
)
def test_a_reply_that_is_no_hint_says_why(reply: Answer, problem: str) -> None:
    wording = wording_of(reply)
    assert not wording.text and problem in wording.problem


def test_a_hint_that_names_the_answer_all_seeds_share_is_leaky() -> None:
    assert leak_of("Say B and you win.", [[r"\boxed{B}"], [r"\boxed{B}"]])


def test_a_hint_that_names_one_of_many_different_answers_is_leaky() -> None:
    assert leak_of("The code is 48213.", [[r"\boxed{48213}"], [r"\boxed{17722}"], [r"\boxed{90001}"]])


def test_a_hint_that_holds_a_whole_winning_sequence_is_leaky() -> None:
    solutions = [
        [r"\boxed{north}", r"\boxed{east}"],
        [r"\boxed{east}", r"\boxed{east}"],
        [r"\boxed{south}", r"\boxed{north}"],
    ]
    assert "north, east" in leak_of("Go north, then east.", solutions)
    assert "north, east" in leak_of("Go north, east.", solutions)


def test_naming_the_possible_actions_is_no_leak() -> None:
    solutions = [
        [r"\boxed{left}", r"\boxed{east}"],
        [r"\boxed{up}", r"\boxed{west}"],
        [r"\boxed{up}", r"\boxed{east}"],
    ] * 3
    assert leak_of("Answer with north, west, south or east as \\boxed{east}.", solutions) == ""


def test_short_numbers_that_match_by_chance_are_no_leak() -> None:
    solutions = [[rf"\boxed{{{n}}}"] for n in (3, 17, 42, 55)]
    assert leak_of("You have 3 tries for a number up to 99; halve the interval.", solutions) == ""


def test_an_answer_inside_a_longer_word_is_no_leak() -> None:
    assert leak_of("Use concatenation.", [["cat"], ["dog"], ["owl"]]) == ""


def test_without_solutions_nothing_can_leak() -> None:
    assert leak_of("Say B.", [None, None]) == ""
    assert leak_of("Say B.", [[]]) == ""


@pytest.mark.parametrize(
    ("hint", "actions", "held"),
    [
        ("Play up, then left.", ["up", "left"], True),
        ("Play UP and - Left", ["up", "left"], True),
        ("Play up then then left", ["up", "left"], False),
        ("Play up       left", ["up", "left"], False),  # seven characters between
        ("Play up thenleft", ["up", "left"], False),
        ("Backup, left", ["up", "left"], False),
        ("up, lefty", ["up", "left"], False),
        ("a b: c d", ["a b", "c d"], True),
        ("- - -", ["-", "-", "-"], True),
        ("-- --", ["-", "-", "-"], False),
        ("up", ["up", "up"], False),
        ("", ["up", "up"], False),
    ],
)
def test_a_sequence_is_found_as_whole_words_with_short_gaps(hint: str, actions: list[str], held: bool) -> None:
    assert holds_sequence(hint, actions) is held


def test_no_program_can_choose_actions_that_take_for_ever_to_look_for() -> None:
    # Each of these took from minutes to longer than the universe is old.
    dashes = [["\\boxed{-}"] * 1000] * 2
    assert leak_of("x " + "-" * 1998 + " y", dashes) == "it names the answer '-'"
    assert leak_of("x " + "- " * 1000 + "y", dashes).startswith("it holds the winning actions -, -")
    assert leak_of("Look closely.", [["\\boxed{" * 60_000]] * 2) == ""
    assert wording_of(answer("```" + "\n" * 50_000 + "x")).text.endswith("x")
