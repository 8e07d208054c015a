"""Exceptions of API views as problem details (see core/problems.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, TooManyFilesSent
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from webapp.core.problems import CONTENT_TYPE, problem_body
from webapp.runs.errors import ActRefused, InvalidConfig, RunNotFound, SearchRefused

#: Our own errors: status and code. A feature adds its own from its ``urls_api``.
_OURS: dict[type[Exception], tuple[int, str]] = {
    ActRefused: (409, "refused"),
    InvalidConfig: (422, "invalid-settings"),
    RunNotFound: (404, "not-found"),
    SearchRefused: (400, "invalid-request"),
    BadRequest: (400, "invalid-request"),
    TooManyFilesSent: (400, "invalid-request"),
    Http404: (404, "not-found"),
    PermissionDenied: (403, "forbidden"),
}
_CODES = {401: "not-authenticated", 403: "forbidden", 404: "not-found", 405: "method-not-allowed", 429: "throttled"}


def register_error(kind: type[Exception], *, status: int, code: str) -> None:
    """Have an exception of a feature answered with this status and code."""
    _OURS[kind] = (status, code)


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's hook. None for what nobody foresaw: it is logged and becomes a 500."""
    request = context["request"]
    for kind, (status, code) in _OURS.items():
        if isinstance(error, kind):
            problems = [(one.path, one.message) for one in getattr(error, "problems", ())]
            detail = "These settings are not valid." if problems else str(error) or "Not found."
            return _answer(request.path, status, code, detail, problems)
    answer = exception_handler(error, dict(context))
    if answer is None or not isinstance(error, exceptions.APIException):
        return answer
    problems = list(_flat(error.detail)) if isinstance(error, exceptions.ValidationError) else []
    status = 422 if problems else answer.status_code
    code = "invalid-request" if problems else _CODES.get(status, "invalid-request")
    detail = "Some of what was sent is not valid." if problems else _sentence(error, request)
    problem = _answer(request.path, status, code, detail, problems)
    for name in ("WWW-Authenticate", "Retry-After", "Allow"):
        if answer.has_header(name):
            problem[name] = answer[name]
    return problem


def _answer(path: str, status: int, code: str, detail: str, problems: list[tuple[str, str]]) -> Response:
    body = problem_body(status=status, code=code, detail=detail, path=path, problems=problems)
    return Response(body, status=status, content_type=CONTENT_TYPE)


def _sentence(error: exceptions.APIException, request: Any) -> str:
    if isinstance(error, exceptions.NotAuthenticated):
        return "Sign in, or send a token as “Authorization: Bearer spw_…”."
    if type(error) is exceptions.PermissionDenied and request.auth is not None:
        return f"{error.detail} The token's scope is {request.auth.scope}."
    return str(error.detail)


def _flat(detail: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Field errors of nested data, by dotted name."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            here = path if name == "non_field_errors" else f"{path}.{name}".lstrip(".")
            yield from _flat(inner, here)
    elif isinstance(detail, list):
        for inner in detail:
            yield from _flat(inner, path)
    else:
        yield path, str(detail)
