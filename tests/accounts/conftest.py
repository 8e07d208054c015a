"""One person of each role, and a signed-in client for each. Models are imported late: Django is not set up yet here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def cheap_password_hash(settings: Any) -> None:
    """The real hash takes half a second on purpose; what these tests check does not depend on which one it is."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def person(db: None) -> Callable[..., Any]:
    """Make a user: ``person("rita", "reviewer")``; without a role when the role is empty."""

    def make(username: str, role: str = "viewer", password: str | None = PASSWORD) -> Any:
        from django.contrib.auth.models import Group

        from webapp.accounts.models import User

        user = User.objects.create_user(username, password=password)
        if role:
            user.groups.add(Group.objects.get(name=role))
        return user

    return make


@pytest.fixture
def as_role(person: Callable[..., Any]) -> Callable[[str], Client]:
    """A client signed in as a fresh person of a role."""

    def sign_in(role: str) -> Client:
        client = Client()
        client.force_login(
            person(f"{role or 'nobody'}-person", role), backend="django.contrib.auth.backends.ModelBackend"
        )
        return client

    return sign_in
