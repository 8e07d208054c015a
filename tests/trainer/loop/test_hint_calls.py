"""Hints in a run: one that gives the answer away is asked for once more, then marked, and its regret is worth nothing (spec 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.errors import Cancelled
from trainer.eventlog import read_events
from trainer.hints import _ask_until_answered, _Progress
from trainer.policy import Answer, Question
from trainer.presets import load_preset, with_overrides
from trainer.prompts.sets import prompt_set
from trainer.run import attempt, create
from trainer.state import Environment
from trainer.tensors import TensorFile


def payloads_of(root: Path, *, tells: float, **settings: Any) -> dict[str, list[dict[str, Any]]]:
    """Events by kind of a run whose programs hide one number in all episodes, which a share of the hints names."""
    settings |= {"schedule__plays": 4, "schedule__hinted_plays": 4, "agent__max_turns": 3}
    run = create(root, fake_config(**settings))
    assert attempt(run, FakeEngines(fixed=1.0, tells=tells)) == 0
    found: dict[str, list[dict[str, Any]]] = {}
    for event in read_events(run, 1):
        found.setdefault(event["kind"], []).append(event["payload"])
    return found


def test_a_hint_that_leaks_twice_is_kept_marked_and_earns_no_regret(tmp_path: Path) -> None:
    told = payloads_of(tmp_path / "run", tells=1.0, schedule__rollouts=1)
    assert {(h["state"], h["tries"], h["text"], h["reason"]) for h in told["hint"]} == {
        ("leaky", 2, "The number is 67.", "it names the answer '67'")
    }
    gained = [r for r in told["regret"] if r["hinted_mean"] > r["unhinted_mean"]]
    assert gained, "a hint that tells the answer helps"
    assert all((r["state"], r["regret"]) == ("leaky", 0.0) for r in gained)
    assert all(r["regret_term"] == 0.0 for r in told["designer_reward"])
    assert {tuple(m["tags"]) for m in told["memory_added"]} == {("hint: leaky",)}
    values = told["metrics"][0]["values"]
    assert (values["hints/leak_rate"], values["hints/ok_share"], values["regret/mean"]) == (1.0, 0.0, 0.0)


def test_a_hint_that_leaks_once_is_asked_for_again_and_then_is_like_any_other(tmp_path: Path) -> None:
    told = payloads_of(tmp_path / "run", tells=0.5)
    ends = {(h["state"], h["tries"]) for h in told["hint"]}
    assert ends == {("ok", 1), ("ok", 2), ("leaky", 2)}
    again = {h["environment"] for h in told["hint"] if (h["state"], h["tries"]) == ("ok", 2)}
    measured = {r["environment"]: r for r in told["regret"]}
    for key in again:
        assert measured[key]["state"] == "ok"
        assert measured[key]["regret"] == pytest.approx(measured[key]["hinted_mean"] - measured[key]["unhinted_mean"])


@pytest.mark.parametrize(("problem", "waits"), [("sampler: it is down", [1.0, 2.0]), ("", [0.0, 0.0])])
def test_a_failed_call_waits_longer_each_time_and_an_empty_reply_does_not(problem: str, waits: list[float]) -> None:
    assert waits_of(problem, **{"hint.tries": 3, "hint.backoff_s": 1.0}) == waits


def test_a_wait_is_never_longer_than_half_a_minute_nor_than_the_setting() -> None:
    down = "sampler: it is down"
    assert waits_of(down, **{"hint.tries": 8, "hint.backoff_s": 1.5}) == [1.5, 3.0, 6.0, 12.0, 24.0, 30.0, 30.0]
    assert waits_of(down, **{"hint.tries": 3, "hint.backoff_s": 60.0}) == [60.0, 60.0]


def test_a_run_can_be_stopped_while_it_waits() -> None:
    with pytest.raises(Cancelled):
        waits_of("sampler: it is down", stop_after_s=3.0, **{"hint.tries": 20, "hint.backoff_s": 10.0})


def waits_of(problem: str, *, stop_after_s: float = math.inf, **settings: float) -> list[float]:
    """Seconds between the tries of one hint when every call ends like this; safe points are never more than a second apart.

    After so many seconds of waiting the run is to stop, and does so at once.
    """
    waited = [0.0]

    def sleep(seconds: float) -> None:
        assert sum(waited) < stop_after_s and seconds <= 1.0
        waited[-1] += seconds

    def safe_point() -> None:
        if sum(waited) >= stop_after_s:
            raise Cancelled("stopped on request")

    def ask(questions: Sequence[Question]) -> list[Answer]:
        waited.append(0.0)
        return answers * len(questions)

    answers = [Answer("", (5,), finish="error" if problem else "stop", error=problem)]
    session: Any = SimpleNamespace(
        config=with_overrides(load_preset("tiny"), settings),
        control=SimpleNamespace(safe_point=safe_point),
        prompts=prompt_set("compact"),
        tensors=TensorFile(),
        policy=SimpleNamespace(ask=ask),
    )
    progress = [_Progress(Environment("r0000-s00", "", 0, "Optimization", "GameEnv", "class GameEnv: ...", None))]
    _ask_until_answered(session, progress, sleep)
    assert progress[0].tries == settings["hint.tries"]
    return waited[1:-1]  # nothing is waited for before the first try and after the last one
