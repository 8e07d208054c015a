"""One request and its answer. Reads are repeated when the server is briefly away; what changes something never is."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from spadework_client.errors import ApiError, Unreachable, error_of

_AGAIN = frozenset({429, 502, 503, 504})
_PIECE_BYTES = 1 << 20


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points; the API never makes one."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Transport:
    """Sends requests with the token to one server and to no other."""

    def __init__(self, url: str, token: str, *, timeout_s: float, tries: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"{url!r} is no address of a server; give one like http://127.0.0.1:8400")
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/api/v1/"
        self._token = token
        self._timeout_s = timeout_s
        self._tries = tries
        self._opener = build_opener(_NoRedirects)

    def call(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """The decoded answer; None where it is empty. Raises ApiError, Unreachable."""
        with self._open(method, path, query, body) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def save(self, path: str, target: Path) -> None:
        """The answer as a file; aside first, so that ``target`` is whole or not there. Raises ApiError, Unreachable."""
        aside = target.with_name(f"{target.name}.part")
        with self._open("GET", path, None, None) as answer, aside.open("wb") as file:
            while piece := answer.read(_PIECE_BYTES):
                file.write(piece)
        aside.rename(target)

    def _open(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> IO[bytes]:
        for left in range(self._tries - 1, -1, -1):
            try:
                answer: IO[bytes] = self._opener.open(self._request(method, path, query, body), timeout=self._timeout_s)
                return answer
            except HTTPError as error:
                problem = _problem(error)
                if method != "GET" or not left or error.code not in _AGAIN:
                    raise problem from error
                time.sleep(problem.retry_after_s or 1.0)
            except (URLError, HTTPException, OSError) as error:
                if method != "GET" or not left:
                    reason = getattr(error, "reason", None) or error
                    raise Unreachable(
                        f"No answer from {self._base} ({reason}); is it the right address, and does it run?"
                    ) from error
                time.sleep(1.0)
        raise AssertionError("the last try returns or raises")

    def _request(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> Request:
        url = urljoin(self._base, path)
        if not url.startswith(self._base):
            raise ValueError(f"{url} is not below {self._base}: the token is not sent there")
        if query:
            pairs = [(name, value) for name, value in query.items() if value is not None]
            url = f"{url}?{urlencode(pairs, doseq=True)}" if pairs else url
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        return Request(url, data=data, headers=headers, method=method)  # noqa: S310 - http or https, checked above


def _problem(error: HTTPError) -> ApiError:
    """The problem in an error's body; one of our making when a proxy answered."""
    wait = error.headers.get("Retry-After", "")
    retry_after_s = float(wait) if wait.isdecimal() else None
    try:
        problem = json.loads(error.read())
    except (ValueError, OSError):
        problem = None
    if not isinstance(problem, dict) or "detail" not in problem:
        problem = {
            "detail": f"The server answered {error.code} {error.reason} without saying why.",
            "instance": error.url,
        }
    return error_of({**problem, "status": error.code}, retry_after_s=retry_after_s)
