"""Refusals in words: a page for people, problem details for programs, never an empty answer or bare text."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.test import Client

from webapp.core.body_limit import BodyLimit

pytestmark = pytest.mark.django_db
JSON = {"HTTP_ACCEPT": "application/json"}


@pytest.fixture
def viewer(as_role: Callable[[str], Client]) -> Client:
    return as_role("viewer")


def page_text(answer: Any) -> str:
    """The words of an error page in the site's style."""
    assert answer["Content-Type"] == "text/html; charset=utf-8"
    text: str = answer.content.decode()
    assert "<!doctype html>" in text
    assert '<main class="centre">' in text
    return re.sub(r"<[^>]*>", "", text)


def problem(answer: Any, status: int, code: str) -> str:
    """The sentence of a problem."""
    assert answer["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    return str(body["detail"])


def sent(
    path: str, body: bytes, *headers: tuple[bytes, bytes], kind: bytes = b"multipart/form-data; boundary=b"
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of what the product's own application answers behind the limit."""
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    said: list[Any] = []

    async def receive() -> Any:
        return pieces.pop(0) if pieces else await asyncio.Future()

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8400),
        "headers": [(b"host", b"127.0.0.1:8400"), (b"content-type", kind), *headers],
    }  # fmt: skip
    paths = ("/corpora/upload/", "/api/v1/corpora/")
    limited = BodyLimit(get_asgi_application(), upload_paths=paths, upload_bytes=100, other_bytes=50)
    asyncio.run(limited(scope, receive, send))
    (start,) = (message for message in said if message["type"] == "http.response.start")
    return start["status"], dict(start["headers"]), b"".join(message.get("body", b"") for message in said)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_above_the_limit_is_refused_with_a_page(announced: bool) -> None:
    length = [(b"content-length", b"101")] if announced else []
    status, headers, body = sent("/corpora/upload/", b"x" * 101, *length)
    assert (status, headers[b"Content-Type"]) == (413, b"text/html; charset=utf-8")
    assert b"may hold at most 100 B" in body
    assert b"SPADEWORK_UPLOAD_MB" in body
    assert b"default-src 'none'" in headers[b"Content-Security-Policy"]
    assert headers[b"connection"] == b"close"


@pytest.mark.parametrize(("path", "accept"), [("/api/v1/corpora/", b"*/*"), ("/corpora/upload/", b"application/json")])
def test_a_body_above_the_limit_is_refused_with_a_problem(path: str, accept: bytes) -> None:
    status, headers, body = sent(path, b"x" * 101, (b"content-length", b"101"), (b"accept", accept))
    assert (status, headers[b"Content-Type"]) == (413, b"application/problem+json")
    told = json.loads(body)
    assert (told["code"], told["status"], told["instance"]) == ("too-large", 413, path)
    assert "at most 100 B" in told["detail"]
    assert "SPADEWORK_UPLOAD_MB" in told["detail"]


@pytest.mark.parametrize("announced", [True, False])
def test_json_above_its_own_limit_is_refused_with_a_problem(announced: bool) -> None:
    length = [(b"content-length", b"51")] if announced else []
    status, headers, body = sent("/api/v1/runs/", b"[" * 51, *length, kind=b"application/json")
    assert (status, headers[b"Content-Type"]) == (413, b"application/problem+json")
    told = json.loads(body)
    assert (told["code"], told["instance"]) == ("too-large", "/api/v1/runs/")
    assert "at most 50 B" in told["detail"]
    assert "SPADEWORK_UPLOAD_MB" not in told["detail"]


def test_the_path_of_a_refused_request_is_escaped() -> None:
    _, headers, body = sent("/<script>alert(1)</script>/", b"x" * 101, (b"content-length", b"101"))
    assert headers[b"Content-Type"] == b"text/html; charset=utf-8"
    assert b"<script>alert" not in body


def test_form_fields_above_their_limit_are_413_with_the_limit(client: Client) -> None:
    form = {"username": "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1), "password": "b"}
    body = "&".join(f"{name}={value}" for name, value in form.items())
    kind = "application/x-www-form-urlencoded"
    answer = client.post("/accounts/login/", body, content_type=kind)
    assert answer.status_code == 413
    assert "at most 2.00 MiB" in page_text(answer)
    assert "at most 2.00 MiB" in problem(
        client.post("/accounts/login/", body, content_type=kind, **JSON), 413, "too-large"
    )


def test_too_many_fields_are_refused_with_their_number(client: Client) -> None:
    form = {f"a{number}": "1" for number in range(1001)}
    answer = client.post("/accounts/login/", form)
    assert answer.status_code == 400
    assert "at most 1000 fields" in page_text(answer)
    assert "at most 1000 fields" in problem(client.post("/accounts/login/", form, **JSON), 400, "invalid-request")


def test_a_method_a_page_does_not_take_is_said_in_words(viewer: Client, as_role: Callable[[str], Client]) -> None:
    answer = viewer.get("/accounts/logout/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert "/accounts/logout/ does not take GET, only POST" in page_text(answer)
    answer = viewer.get("/accounts/logout/", **JSON)
    assert answer["Allow"] == "POST"
    assert "only POST" in problem(answer, 405, "method-not-allowed")
    assert "not allowed" in problem(as_role("admin").delete("/api/v1/me/"), 405, "method-not-allowed")


def test_a_missing_csrf_token_is_a_page_or_a_problem() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert "This form is too old" in page_text(strict.post("/accounts/login/", {"username": "a"}))
    assert "CSRF token" in problem(strict.post("/accounts/login/", {"username": "a"}, **JSON), 403, "forbidden")


def test_a_lock_is_a_page_or_a_problem(client: Client) -> None:
    wrong = {"username": "ana", "password": "wrong"}
    for _ in range(5):
        client.post("/accounts/login/", wrong)
    answer = client.post("/accounts/login/", wrong)
    assert answer.status_code == 429
    assert "blocked for 15 minutes" in page_text(answer)
    assert "blocked for 15 minutes" in problem(client.post("/accounts/login/", wrong, **JSON), 429, "throttled")


def test_a_theme_that_is_none_is_a_page_or_a_problem(viewer: Client) -> None:
    answer = viewer.post("/accounts/theme/", {"theme": "<b>pink</b>"})
    assert answer.status_code == 400
    assert "The theme is system, light or dark." in page_text(answer)
    assert "system, light or dark" in problem(
        viewer.post("/accounts/theme/", {"theme": "pink"}, **JSON), 400, "invalid-request"
    )


@pytest.mark.parametrize(
    "address",
    [
        "/runs/?q=a%00b", "/runs/?tag=%00", "/runs/1/environments/%00/", "/runs/1/environments/?skill=fine&skill=%00", "/palette/?q=%00",
        "/review/flags/?kind=%00", "/review/flags.csv?kind=%00", "/alerts/?kind=%00", "/corpora/new/?folder=%00", "/runs/?%00=1",
    ],
)  # fmt: skip
def test_an_address_with_a_nul_is_a_page_or_a_problem(address: str, viewer: Client, client: Client) -> None:
    words = "The address holds a NUL character; leave it out."
    for person in (viewer, client):
        answer = person.get(address)
        assert (answer.status_code, words in page_text(answer)) == (400, True)
    assert problem(viewer.get(address, **JSON), 400, "invalid-request") == words


def test_a_foreign_host_gets_a_page_or_a_problem(client: Client) -> None:
    answer = client.get("/accounts/login/", HTTP_HOST="evil.example")
    assert answer.status_code == 400
    assert "This request cannot be understood" in page_text(answer)
    problem(client.get("/accounts/login/", HTTP_HOST="evil.example", **JSON), 400, "invalid-request")


def test_what_is_not_there_and_what_is_forbidden_are_a_page_or_a_problem(viewer: Client) -> None:
    assert "nothing at this address" in page_text(viewer.get("/nowhere"))
    assert "/nowhere" in problem(viewer.get("/nowhere", **JSON), 404, "not-found")
    assert "You may not do this" in page_text(viewer.get("/accounts/users/"))
    problem(viewer.get("/accounts/users/", **JSON), 403, "forbidden")


def test_a_fragment_is_refused_with_a_problem_the_shell_can_say(viewer: Client) -> None:
    assert "/nowhere" in problem(viewer.get("/nowhere", HTTP_HX_REQUEST="true", HTTP_ACCEPT="*/*"), 404, "not-found")


def test_a_bug_is_a_page_or_a_problem_also_without_static_files(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.core.health.database_answers", lambda: 1 / 0)
    client.raise_request_exception = False
    assert "Something broke on our side" in page_text(client.get("/healthz"))
    assert "server's log" in problem(client.get("/healthz", **JSON), 500, "bug")

    def broken(name: str) -> Any:
        raise ValueError("no manifest")

    monkeypatch.setattr("webapp.core.views.loader.get_template", broken)
    answer = client.get("/healthz")
    assert (answer.status_code, answer["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert "<h1>Something broke on our side</h1>" in answer.content.decode()


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True), ("*/*", True), ("", True), ("image/png", True),
        ("application/json", False), ("application/problem+json", False), ("application/json, text/plain, */*", False),
        ("text/html;q=0.1, application/json", False),
    ],
)  # fmt: skip
def test_who_accepts_what_gets_what(viewer: Client, accept: str, is_page: bool) -> None:
    answer = viewer.get("/nowhere", HTTP_ACCEPT=accept)
    assert answer["Content-Type"].startswith("text/html" if is_page else "application/problem+json")
