"""What every answer carries, and which Host headers are answered at all."""

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "font-src": "'self'",
    "connect-src": "'self' ws://127.0.0.1:8400 ws://localhost:8400",
    "manifest-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "object-src": "'none'",
}


@pytest.mark.parametrize("address", ["/accounts/login/", "/healthz", "/nowhere", "/accounts/link/none", "/"])
def test_every_answer_carries_the_strict_policy_and_its_companions(client: Client, address: str) -> None:
    answer = client.get(address)
    directives = dict(part.strip().split(" ", 1) for part in answer["Content-Security-Policy"].split(";"))
    assert directives == POLICY
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["Cross-Origin-Opener-Policy"] == "same-origin"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "a b"])
@pytest.mark.parametrize("address", ["/healthz", "/accounts/login/"])
def test_a_foreign_host_header_is_refused_on_every_view(client: Client, host: str, address: str) -> None:
    assert client.get(address, HTTP_HOST=host).status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1:8400", "localhost:8400", "[::1]:8400"])
def test_the_three_loopback_names_are_answered(client: Client, host: str) -> None:
    assert client.get("/healthz", HTTP_HOST=host).status_code == 200


def test_a_form_from_another_origin_is_refused_although_the_token_is_right() -> None:
    strict = Client(enforce_csrf_checks=True)
    page = strict.get("/accounts/login/")
    token = page.context["csrf_token"]
    form = {"username": "a", "password": "b", "csrfmiddlewaretoken": str(token)}
    assert strict.post("/accounts/login/", form, HTTP_ORIGIN="http://127.0.0.1:8888").status_code == 403
    assert strict.post("/accounts/login/", form, HTTP_ORIGIN="http://127.0.0.1:8400").status_code == 200


def test_pages_have_no_inline_script_style_or_handler(client: Client) -> None:
    page = client.get("/accounts/login/").content.decode()
    assert " style=" not in page
    assert " onclick=" not in page
    assert "<style" not in page
    assert "<script>" not in page


def test_cookies_have_our_own_names_and_are_closed_to_scripts(client: Client) -> None:
    answer = client.get("/accounts/login/")
    cookie = answer.cookies["spadework_csrf"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")


def test_health_says_which_part_answers(client: Client) -> None:
    answer = client.get("/healthz")
    assert answer.json() == {"status": "ok", "database": "ok", "redis": "ok"}


def test_health_fails_when_valkey_is_gone(client: Client, settings: object) -> None:
    settings.SPADEWORK_REDIS_URL = "unix:///nonexistent/vk.sock?db=0"  # type: ignore[attr-defined]
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "failed", "database": "ok", "redis": "failed"}


def test_an_unknown_address_and_a_broken_view_have_pages_of_their_own(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing at this address" in client.get("/nowhere").content.decode()
    monkeypatch.setattr("webapp.core.health.database_answers", lambda: 1 / 0)
    client.raise_request_exception = False
    answer = client.get("/healthz")
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.content.decode()
    assert "ZeroDivisionError" not in answer.content.decode()
