"""Answers made once for all who ask at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from webapp.core.shared import Shared


def test_those_who_ask_meanwhile_get_the_same_answer() -> None:
    shared: Shared[object] = Shared(keep=4)
    asked, made = threading.Barrier(8), []
    finish = threading.Event()

    def make() -> object:
        made.append(1)
        assert finish.wait(30)
        return object()

    def ask() -> object:
        asked.wait(30)
        return shared.get("key", make)

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask) for _ in range(8)]
        while not made:
            pass
        finish.set()
        assert len({id(answer.result(30)) for answer in answers}) == 1
    assert len(made) == 1


def test_another_state_is_another_answer_and_the_oldest_go() -> None:
    shared: Shared[int] = Shared(keep=2)
    made: list[int] = []

    def get(state: int) -> int:
        return shared.get(state, lambda: made.append(state) or state)  # type: ignore[func-returns-value]

    assert [get(1), get(2), get(1), get(3), get(2), get(1)] == [1, 2, 1, 3, 2, 1]
    assert made == [1, 2, 3, 1]


def test_an_error_reaches_who_asked_and_is_not_kept() -> None:
    shared: Shared[int] = Shared(keep=2)

    def fail() -> int:
        raise ValueError("the database is away")

    with pytest.raises(ValueError, match="away"):
        shared.get("key", fail)
    assert shared.get("key", lambda: 7) == 7
