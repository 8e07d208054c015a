"""Permission of a view by role. Every view states one; a test walks the URL table and checks that."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib.auth.mixins import AccessMixin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from webapp.accounts.roles import Role, has_role

ViewT = TypeVar("ViewT", bound=Callable[..., HttpResponseBase])


def check_role(request: HttpRequest, role: Role | str) -> None:
    """Raise PermissionDenied (a 403 page naming the role) unless the signed-in user has ``role`` or a stronger one."""
    if not has_role(request.user, role):
        raise PermissionDenied(f"This needs the role {Role(role).value}. An admin can give it to you.")


def require_role(role: Role | str) -> Callable[[ViewT], ViewT]:
    """Decorator of a view: signed-in users with ``role`` or a stronger one pass, anonymous ones go to the login page.

    Sets ``required_role`` on the view for the test that walks the URL table. An unknown role raises ValueError.
    """
    needed = Role(role)

    def decorate(view: ViewT) -> ViewT:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            check_role(request, needed)
            return view(request, *args, **kwargs)

        guarded.required_role = needed  # type: ignore[attr-defined]
        return cast(ViewT, guarded)

    return decorate


class RoleRequiredMixin(AccessMixin):
    """The same for class-based views: set ``required_role``."""

    required_role: Role = Role.VIEWER

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Check the role, then go on to the view."""
        if not request.user.is_authenticated:
            return self.handle_no_permission()
        check_role(request, self.required_role)
        return cast(HttpResponseBase, super().dispatch(request, *args, **kwargs))  # type: ignore[misc]


class _HasRole(BasePermission):
    read: Role = Role.VIEWER
    write: Role = Role.VIEWER

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the caller's role, capped by their token's scope, is enough."""
        needed = self.read if request.method in SAFE_METHODS else self.write
        self.message = f"This needs the role {needed.value}. An admin can give it to you."
        return has_role(request.user, needed)


class IsViewer(_HasRole):
    """API: viewers read, operators write. The default of every API view."""

    write = Role.OPERATOR


class IsReviewer(_HasRole):
    """API: viewers read, reviewers write."""

    write = Role.REVIEWER


class IsOnlyReviewer(_HasRole):
    """API: reviewers read and write."""

    read = Role.REVIEWER
    write = Role.REVIEWER


class IsOperator(_HasRole):
    """API: operators read and write."""

    read = Role.OPERATOR
    write = Role.OPERATOR


class IsAdmin(_HasRole):
    """API: admins only."""

    read = Role.ADMIN
    write = Role.ADMIN
