"""One sandbox for the tests that do not break it, and one with short limits for those that wait for a limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import EnvironmentFault, EpisodeHandle, Limits, Sandbox, Stepped

QUICK = Limits(step_soft_s=0.4, step_hard_s=1.0, load_s=1.0, memory_bytes=256 * 1024 * 1024)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture(scope="session")
def quick() -> Iterator[Sandbox]:
    with Sandbox(QUICK) as made:
        yield made


def open_one(box: Sandbox, source: str, seed: int = 1, max_turns: int = 25) -> EpisodeHandle:
    """The episode of a program that is expected to open; raises the fault otherwise."""
    (opened,) = box.reset_many([(box.load(source), seed, max_turns)])
    if isinstance(opened, EnvironmentFault):
        raise opened
    return opened.episode


def step_one(box: Sandbox, episode: EpisodeHandle, action: str = "go") -> Stepped | EnvironmentFault:
    (answer,) = box.step_many([(episode, action)])
    return answer


def fault_of(box: Sandbox, source: str, action: str = "go") -> EnvironmentFault:
    """The fault a program meets on load, reset or its first step."""
    try:
        answer = step_one(box, open_one(box, source), action)
    except EnvironmentFault as fault:
        return fault
    assert isinstance(answer, EnvironmentFault), f"no fault: {answer}"
    return answer
