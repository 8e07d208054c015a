"""Template filter ``user|has_role:"operator"``."""

from __future__ import annotations

from django import template
from django.contrib.auth.models import AnonymousUser

from webapp.accounts.models import User
from webapp.accounts.roles import has_role as user_has_role

register = template.Library()


@register.filter
def has_role(user: User | AnonymousUser | None, role: str) -> bool:
    """True when the user has the role or a stronger one; False where a page (an error page, say) has no user."""
    return bool(user) and user_has_role(user, role)  # type: ignore[arg-type]
