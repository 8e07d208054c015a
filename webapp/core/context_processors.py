"""What every page's shell needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from webapp.accounts.roles import Role, has_role


@dataclass(frozen=True, kw_only=True)
class NavItem:
    """One entry of the top bar; ``key`` follows "g" as a keyboard shortcut."""

    feature: str
    label: str
    url_name: str
    key: str
    role: Role = Role.VIEWER


NAVIGATION = (
    NavItem(feature="runs", label="Runs", url_name="runs:list", key="r"),
    NavItem(feature="environments", label="Environments", url_name="environments:list", key="e"),
    NavItem(feature="review", label="Review", url_name="review:list", key="v"),
    NavItem(feature="pools", label="Pools", url_name="pools:list", key="p"),
    NavItem(feature="corpora", label="Corpora", url_name="corpora:list", key="c"),
)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Entries of the top bar that the user may open, of installed features: ``label``, ``url``, ``key``, ``active``."""
    user = getattr(request, "user", None)
    nav: list[dict[str, Any]] = []
    for item in NAVIGATION:
        if item.feature not in settings.SPADEWORK_FEATURES or user is None or not has_role(user, item.role):
            continue
        try:
            url = reverse(item.url_name)
        except NoReverseMatch:
            continue  # a feature without a page of its own (environments are listed inside runs)
        nav.append({"label": item.label, "url": url, "key": item.key, "active": request.path.startswith(url)})
    return nav


def shell(request: HttpRequest) -> dict[str, Any]:
    """``nav`` (the top bar), ``theme``, ``server_time`` (unix seconds)."""
    user = getattr(request, "user", None)
    theme = getattr(user, "theme", "") if user is not None and user.is_authenticated else ""
    return {"nav": navigation(request), "theme": theme, "server_time": f"{timezone.now().timestamp():.3f}"}
