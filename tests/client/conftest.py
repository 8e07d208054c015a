"""The real web server and a token of each scope for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from spadework_client import Client
from tests.browser_site import live_site
from tests.pages.conftest import ingested

# Playwright is not used here, yet the server is another process: committed rows only.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
__all__ = ["ingested", "live_site"]


@pytest.fixture
def token_for(transactional_db: None) -> Callable[..., str]:
    """``token_for("operator", "control")``: the text of a token of such a person."""

    def make(role: str, scope: str) -> str:
        from django.contrib.auth.models import Group

        from webapp.accounts.models import User
        from webapp.accounts.services_tokens import create_token

        user, _ = User.objects.get_or_create(username=f"{role}-person")
        user.groups.add(Group.objects.get(name=role))
        return create_token(actor=user, name=f"{scope} robot", scope=scope, days=7)[1]

    return make


@pytest.fixture
def client_for(live_site: str, token_for: Callable[..., str]) -> Callable[..., Client]:
    """A client with a token of that scope, of a person of that role."""
    from django.core.cache import caches

    caches["throttle"].clear()

    def make(role: str = "operator", scope: str = "control", **options: Any) -> Client:
        return Client(live_site, token_for(role, scope), **options)

    return make
