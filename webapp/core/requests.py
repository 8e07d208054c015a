"""Reading a request in a typed way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, QueryDict

if TYPE_CHECKING:
    from webapp.accounts.models import User


def signed_in_user(request: HttpRequest) -> User:
    """The user of a request that a role check has let through; raises PermissionDenied for an anonymous one."""
    if isinstance(request.user, AnonymousUser):
        raise PermissionDenied("Sign in first.")
    return request.user


def has_nul(sent: QueryDict) -> bool:
    """Whether a name or value holds a NUL character, which Postgres does not take."""
    return any("\x00" in text for name, values in sent.lists() for text in (name, *values))
