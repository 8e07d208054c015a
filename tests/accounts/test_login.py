"""Signing in and out with a password."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.accounts.models import AuditEntry

PASSWORD = "correct horse battery staple"
pytestmark = pytest.mark.django_db


def sign_in(client: Client, username: str, password: str, **extra: str) -> Any:
    return client.post("/accounts/login/", {"username": username, "password": password, **extra})


def test_the_right_password_signs_in_and_is_audited(client: Client, person: Callable[..., Any]) -> None:
    ana = person("ana")
    answer = sign_in(client, "ana", PASSWORD)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    entry = AuditEntry.objects.get(action="session.opened")
    assert (entry.actor, entry.actor_name, entry.detail) == (ana, "ana", {"address": "127.0.0.1"})


def test_a_wrong_password_says_the_same_as_an_unknown_name(client: Client, person: Callable[..., Any]) -> None:
    person("ana")
    wrong = sign_in(client, "ana", "wrong")
    unknown = sign_in(client, "nobody-of-this-name", "wrong")
    assert wrong.status_code == unknown.status_code == 200
    assert "do not go together" in wrong.content.decode()
    assert "do not go together" in unknown.content.decode()


def test_the_sixth_attempt_is_refused_even_with_the_right_password(client: Client, person: Callable[..., Any]) -> None:
    person("ana")
    for _ in range(4):
        assert sign_in(client, "ana", "wrong").status_code == 200
    assert sign_in(client, "ana", "wrong").status_code == 429
    answer = sign_in(client, "ana", PASSWORD)
    assert answer.status_code == 429
    assert "15 minutes" in answer.content.decode()
    assert AuditEntry.objects.filter(action="session.locked", object_label="ana").exists()


def test_a_locked_name_does_not_lock_another_name_from_the_same_address(
    client: Client, person: Callable[..., Any]
) -> None:
    person("ana")
    person("bo")
    for _ in range(6):
        sign_in(client, "ana", "wrong")
    assert sign_in(client, "bo", PASSWORD).status_code == 302


def test_a_forwarded_for_header_does_not_get_round_the_lock(client: Client, person: Callable[..., Any]) -> None:
    person("ana")
    for number in range(6):
        client.post(
            "/accounts/login/", {"username": "ana", "password": "wrong"}, HTTP_X_FORWARDED_FOR=f"10.0.0.{number}"
        )
    answer = client.post("/accounts/login/", {"username": "ana", "password": PASSWORD}, HTTP_X_FORWARDED_FOR="10.9.9.9")
    assert answer.status_code == 429


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_signing_in_never_redirects_to_another_site(client: Client, person: Callable[..., Any], target: str) -> None:
    person("ana")
    assert sign_in(client, "ana", PASSWORD, next=target)["Location"] == "/"


def test_signing_in_returns_to_the_page_that_was_asked_for(client: Client, person: Callable[..., Any]) -> None:
    person("ana")
    asked = client.get("/accounts/profile/")
    assert asked["Location"] == "/accounts/login/?next=/accounts/profile/"
    assert sign_in(client, "ana", PASSWORD, next="/accounts/profile/")["Location"] == "/accounts/profile/"


def test_signing_in_changes_the_session_key(client: Client, person: Callable[..., Any]) -> None:
    person("ana")
    session = client.session
    session["planted"] = "yes"
    session.save()
    planted = session.session_key
    client.cookies["spadework_session"] = planted
    sign_in(client, "ana", PASSWORD)
    assert client.session.session_key != planted


def test_signing_in_and_out_need_a_csrf_token(person: Callable[..., Any]) -> None:
    strict = Client(enforce_csrf_checks=True)
    person("ana")
    assert sign_in(strict, "ana", PASSWORD).status_code == 403
    assert strict.post("/accounts/logout/").status_code == 403


def test_signing_out_is_a_post_and_ends_the_session(as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    assert client.get("/accounts/logout/").status_code == 405
    assert client.get("/accounts/profile/").status_code == 200
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/accounts/profile/").status_code == 302


def test_a_deactivated_person_cannot_sign_in(client: Client, person: Callable[..., Any]) -> None:
    ana = person("ana")
    ana.is_active = False
    ana.save()
    assert sign_in(client, "ana", PASSWORD).status_code == 200
    assert "_auth_user_id" not in client.session
