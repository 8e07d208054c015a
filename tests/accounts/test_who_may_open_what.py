"""Every view states who may open it, and the statement holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from webapp.accounts.models import User
from webapp.accounts.roles import Role

# Open without signing in, each for a reason: sign-in itself, one-time links, signing out, a probe that shows nothing.
PUBLIC = {"accounts:login", "accounts:logout", "accounts:link", "healthz"}
PAGES = {
    "/design/": Role.VIEWER,
    "/about/licences/": Role.VIEWER,
    "/palette/": Role.VIEWER,
    "/accounts/profile/": Role.VIEWER,
    "/accounts/tokens/": Role.VIEWER,
    "/api/docs/": Role.VIEWER,
    "/alerts/": Role.VIEWER,
    "/alerts/webhooks/": Role.OPERATOR,
    "/accounts/users/": Role.ADMIN,
    "/accounts/users/invite/": Role.ADMIN,
    "/accounts/users/{pk}/": Role.ADMIN,
    "/accounts/audit/": Role.ADMIN,
}
WRITES = ("role", "link", "deactivate", "reactivate")


def views(patterns: list[Any], namespace: str = "") -> Iterator[tuple[str, Any]]:
    for item in patterns:
        if isinstance(item, URLResolver):
            inner = f"{namespace}{item.namespace}:" if item.namespace else namespace
            yield from views(item.url_patterns, inner)
        elif isinstance(item, URLPattern):
            yield f"{namespace}{item.name or item.pattern}", item.callback


def stated_role(callback: Any) -> Any:
    for candidate in (callback, getattr(callback, "view_class", None), getattr(callback, "cls", None)):
        if getattr(candidate, "required_role", None) is not None:
            return candidate.required_role
    # A REST view states its roles by its permission classes.
    classes = getattr(getattr(callback, "cls", None), "permission_classes", [])
    return next((found for found in classes if hasattr(found, "read")), None)


def test_every_view_states_its_role_or_is_on_the_short_public_list() -> None:
    silent = [
        name
        for name, callback in views(get_resolver().url_patterns)
        if name not in PUBLIC and stated_role(callback) is None
    ]
    assert silent == []


def test_the_public_list_holds_only_views_that_exist_and_are_public() -> None:
    found = dict(views(get_resolver().url_patterns))
    assert set(found) >= PUBLIC
    assert all(getattr(found[name], "login_required", True) is False for name in PUBLIC)


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["", *Role])
@pytest.mark.parametrize(("address", "needed"), PAGES.items())
def test_a_page_opens_for_its_role_and_stronger_ones_only(
    as_role: Callable[[str], Client], role: str, address: str, needed: Role
) -> None:
    client = as_role(role)
    user = User.objects.get()
    answer = client.get(address.format(pk=user.pk))
    is_allowed = bool(role) and Role(role).rank >= needed.rank
    assert answer.status_code == (200 if is_allowed else 403)
    if not is_allowed:
        assert f"needs the role {needed.value}" in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["", "viewer", "reviewer", "operator"])
@pytest.mark.parametrize("act", WRITES)
def test_only_admins_change_people(
    as_role: Callable[[str], Client], person: Callable[..., Any], role: str, act: str
) -> None:
    target = person("target", "admin")
    answer = as_role(role).post(f"/accounts/users/{target.pk}/{act}/", {"role": "viewer"})
    assert answer.status_code == 403
    target = User.objects.get(pk=target.pk)
    assert (target.role, target.is_active, target.links.count()) == (Role.ADMIN, True, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("address", [*PAGES, "/"])
def test_strangers_are_sent_to_sign_in(client: Client, address: str) -> None:
    answer = client.get(address.format(pk=1))
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/login/?next=/")


@pytest.mark.django_db
def test_an_htmx_fragment_without_a_session_sends_the_whole_page_to_sign_in(client: Client) -> None:
    answer = client.get("/accounts/profile/", HTTP_HX_REQUEST="true")
    assert (answer.status_code, answer["HX-Redirect"], answer.content) == (204, "/accounts/login/", b"")


@pytest.mark.django_db
def test_signed_in_pages_are_not_kept_by_the_browser(as_role: Callable[[str], Client]) -> None:
    assert "no-store" in as_role("viewer").get("/accounts/profile/")["Cache-Control"]
