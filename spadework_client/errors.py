"""What can go wrong, by whose affair it is. Every message says what, where and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SpadeworkError(Exception):
    """Base of all errors of this package."""


class Unreachable(SpadeworkError):
    """No answer came: the address is wrong, the server is away, or it took too long."""


class WaitTimedOut(SpadeworkError):
    """What was waited for did not happen in time; ``last`` is how things stood."""

    def __init__(self, message: str, last: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.last = last


class RunEnded(SpadeworkError):
    """A run ended in another state than the one waited for; ``run`` is the run, with its failure message."""

    def __init__(self, message: str, run: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.run = run


class ApiError(SpadeworkError):
    """The server answered with a problem (RFC 9457)."""

    def __init__(self, problem: Mapping[str, Any], *, retry_after_s: float | None = None) -> None:
        self.status = int(problem.get("status", 0))
        self.code = str(problem.get("code", ""))
        self.detail = str(problem.get("detail", ""))
        self.problems: list[dict[str, str]] = list(problem.get("problems", ()))
        self.retry_after_s = retry_after_s
        wrong = "; ".join(
            f"{one['path']}: {one['message']}" if one["path"] else one["message"] for one in self.problems
        )
        super().__init__(f"{self.status} {self.detail}{f' {wrong}' if wrong else ''} ({problem.get('instance', '')})")


class NotAuthenticated(ApiError):
    """The token is missing, wrong, expired or revoked."""


class Forbidden(ApiError):
    """The token's scope, or its owner's role, is not enough."""


class NotFound(ApiError):
    """There is no such thing."""


class Refused(ApiError):
    """The act is not possible as things stand."""


class InvalidRequest(ApiError):
    """What was sent is not valid; ``problems`` name each field or setting."""


class Throttled(ApiError):
    """Too many requests; ``retry_after_s`` says how long to wait."""


class ServerFailed(ApiError):
    """Something broke on the server's side; its log has it."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidRequest, 401: NotAuthenticated, 403: Forbidden, 404: NotFound, 409: Refused, 415: InvalidRequest,
    422: InvalidRequest, 429: Throttled,
}  # fmt: skip


def error_of(problem: Mapping[str, Any], *, retry_after_s: float | None = None) -> ApiError:
    """The error for a problem, typed by its status."""
    status = int(problem.get("status", 0))
    kind = ServerFailed if status >= 500 else _BY_STATUS.get(status, ApiError)
    return kind(problem, retry_after_s=retry_after_s)
