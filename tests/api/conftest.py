"""Callers of the API: people of each role, with tokens of each scope. Models are imported late: Django is not set up yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.pages.conftest import as_role, ingested, operator, run, viewer

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    """What earlier tests called does not count."""
    from django.core.cache import caches

    caches["throttle"].clear()


@pytest.fixture
def token_for(db: None, as_role: Callable[[str], Client]) -> Callable[..., str]:
    """``token_for("operator", "read")``: the text of a fresh token of a person of that role."""

    def make(role: str, scope: str, days: int = 30) -> str:
        from webapp.accounts.models import User
        from webapp.accounts.services_tokens import create_token

        as_role(role)
        user = User.objects.get(username=f"{role or 'nobody'}-person")
        return create_token(actor=user, name=f"{scope} robot", scope=scope, days=days)[1]

    return make


@pytest.fixture
def caller() -> Callable[[str], Client]:
    """A client without cookies that sends the token."""
    return lambda text: Client(headers={"Authorization": f"Bearer {text}"})


@pytest.fixture
def call_as(token_for: Callable[..., str], caller: Callable[[str], Any]) -> Callable[..., Client]:
    """``call_as("operator", "read")``: a client with such a token."""
    return lambda role, scope: caller(token_for(role, scope))
