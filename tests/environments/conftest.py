"""The people and runs of the page tests, and environments with programs written for a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.pages.conftest import as_role, ingested, operator, run, viewer

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]

GUESS = '''class GuessEnv:
    """Guess the number; every answer says whether it is larger."""

    def __init__(self, max_turns=25, **kwargs):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.goal = 130 + seed % 70
        return f"Game {seed}. Guess a number from 100 to 199: \\\\boxed{{N}}", {}

    def step(self, action):
        try:
            number = int(action[7:-1])
        except ValueError:
            return "Say a number.", 0.0, False, False, {}
        if number == self.goal:
            return "Right.", 1.0, True, False, {}
        return "larger" if number < self.goal else "smaller", 0.0, False, False, {}
'''


@pytest.fixture
def reviewer(db: None) -> Any:
    return person("rita")


def person(name: str, role: str = "reviewer") -> Any:
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User

    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


@pytest.fixture
def program(run: Any) -> Callable[..., Any]:
    """``program(source)``: an environment of the run with that program."""

    def make(source: str = GUESS) -> Any:
        environment = run.environments.filter(superseded=False).first()
        environment.code = source
        environment.save()
        return environment

    return make


@pytest.fixture(autouse=True)
def bench() -> Iterator[None]:
    """No sandbox outlives its test."""
    from webapp.environments.sandboxing import playing
    from webapp.environments.sandboxing.bench import BENCH

    yield
    playing._kept.clear()
    BENCH.close()
