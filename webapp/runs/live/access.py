"""Who may keep a socket open. A socket outlives a logout and a lost role, so the answer is asked for again and again."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from webapp.accounts.roles import Role, has_role


def may_watch(session_key: str | None) -> bool:
    """True while the session is signed in as an active user who is at least a viewer. Reads the session and the user afresh."""
    if not session_key:
        return False
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return has_role(get_user(request), Role.VIEWER)


def session_key_of(scope: dict[str, Any]) -> str | None:
    """The key of the socket's session, None when it has none."""
    session = scope.get("session")
    return session.session_key if session is not None else None
