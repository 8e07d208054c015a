"""People, a run taken in by the real ingest, and a trainer's answers written as the trainer writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pages.conftest import as_role, ingested, operator, run, viewer
from tests.review.trainer import answer_command

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]


@pytest.fixture
def person(as_role: Callable[[str], Any]) -> Callable[[str], Any]:
    """``person("reviewer")``: the user behind the client of that role."""

    def find(role: str) -> Any:
        from webapp.accounts.models import User

        as_role(role)
        return User.objects.get(username=f"{role}-person")

    return find


@pytest.fixture
def environment(run: Any) -> Any:
    """An environment with a hint that holds."""
    return run.environments.filter(rollout=0, hint_state="ok").first()


@pytest.fixture
def kind(db: None) -> Callable[[str], Any]:
    """A seeded kind by its key."""

    def find(key: str) -> Any:
        from webapp.review.models import FlagKind

        return FlagKind.objects.get(key=key)

    return find


@pytest.fixture
def trainer_says() -> Callable[..., None]:
    """``trainer_says(run, command, rollout=5, more=(…,))``."""
    return answer_command
