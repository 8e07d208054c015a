"""The four roles, each able to do all that the ones before it can."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from webapp.accounts.models import User


class Role(StrEnum):
    """A role is a Django group of the same name. Order of definition is order of power."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """0 for viewer up to 3 for admin."""
        return list(Role).index(self)

    @property
    def explanation(self) -> str:
        """One sentence for the invite form."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Role.VIEWER: "sees every run, environment and episode, changes nothing",
    Role.REVIEWER: "also flags, plays and edits environments and works on review queues",
    Role.OPERATOR: "also starts, pauses, stops and clones runs",
    Role.ADMIN: "also invites people and changes their roles",
}


def role_of(user: User | AnonymousUser) -> Role | None:
    """The strongest role of an active user, None for anonymous, inactive and role-less ones; with a token at most its scope's.

    The answer is kept on the user object, which lives for one request (consumers fetch the user afresh to re-check).
    """
    if user.is_anonymous or not user.is_active:
        return None
    if user.role_memo is None:
        if user.is_superuser:
            strongest: Role | None = Role.ADMIN
        else:
            names = {group.name for group in user.groups.all()}
            strongest = max((role for role in Role if role.value in names), key=lambda role: role.rank, default=None)
        if user.api_token is not None and strongest is not None:
            strongest = min(strongest, user.api_token.role, key=lambda role: role.rank)
        user.role_memo = (strongest,)
    return user.role_memo[0]


def has_role(user: User | AnonymousUser, role: Role | str) -> bool:
    """True when the user's role is ``role`` or a stronger one. An unknown role name raises ValueError."""
    needed = Role(role)
    own = role_of(user)
    return own is not None and own.rank >= needed.rank
