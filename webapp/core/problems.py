"""Errors for programs in one shape: problem details of RFC 9457, whoever makes them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, JsonResponse

CONTENT_TYPE = "application/problem+json"
API_PREFIX = "/api/"


def problem_body(
    *, status: int, code: str, detail: str, path: str, problems: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """``detail`` says what, where and what to do; ``problems`` name the fields that are wrong as (dotted name, sentence)."""
    body: dict[str, Any] = {
        "type": f"{API_PREFIX}docs/#problem-{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "instance": path,
    }
    if problems:
        body["problems"] = [{"path": name, "message": message} for name, message in problems]
    return body


def reads_json(request: HttpRequest) -> bool:
    """Whether a program asked, which reads no HTML: of the API, a script of ours, or whoever accepts JSON rather than HTML."""
    if request.path.startswith(f"{API_PREFIX}v") or request.headers.get("HX-Request"):
        return True
    return request.get_preferred_type(["text/html", "application/json", CONTENT_TYPE]) in (
        "application/json",
        CONTENT_TYPE,
    )


def problem_response(request: HttpRequest, *, status: int, code: str, detail: str) -> JsonResponse:
    """The problem as a whole response, for what happens outside an API view."""
    body = problem_body(status=status, code=code, detail=detail, path=request.path)
    return JsonResponse(body, status=status, content_type=CONTENT_TYPE)
