"""One request and its answer. Reads are repeated when the server is briefly away; what changes something never is."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from spadework_client.errors import ApiError, SpadeworkError, Unreachable, error_of
from spadework_client.multipart import Form

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
        with self._open(self._request(method, path, query, body)) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def save(self, path: str, target: Path) -> None:
        """The answer as a file; aside first, so that ``target`` is whole or not there. Raises ApiError, Unreachable."""
        aside = target.with_name(f"{target.name}.part")
        with self._open(self._request("GET", path)) as answer, aside.open("wb") as file:
            while piece := answer.read(_PIECE_BYTES):
                file.write(piece)
        aside.rename(target)

    def save_in_pieces(self, path: str, target: Path) -> None:
        """The answer as a file, of a server that takes Range. What an earlier call left of the same content is gone on with.

        Raises ApiError, Unreachable when nothing more comes, SpadeworkError when the content changes meanwhile.
        """
        with self._open(self._request("GET", path, headers={"Range": "bytes=1-1"})) as answer:
            etag, size = _facts(answer, path)
        mark = "".join(character for character in etag if character.isalnum())[:16]
        aside = target.with_name(f"{target.name}.{mark}.part")
        left = self._tries
        while (have := aside.stat().st_size if aside.exists() else 0) < size:
            self._append(path, aside, have, etag)
            left = self._tries if aside.stat().st_size > have else left - 1
            if not left:
                raise Unreachable(f"{path} breaks off after {have} of {size} bytes; {aside} is kept, call again later.")
        aside.rename(target)

    def _append(self, path: str, aside: Path, have: int, etag: str) -> None:
        """As much as comes of what is behind the first ``have`` bytes."""
        headers = {"Range": f"bytes={have}-", "If-Range": etag} if have else {}
        with self._open(self._request("GET", path, headers=headers)) as answer, aside.open("ab") as file:
            if answer.headers["ETag"] != etag or (have and answer.status != 206):
                raise SpadeworkError(f"{path} became another one while it was saved; call again, {aside} is of no use.")
            while piece := _piece(answer):
                file.write(piece)

    def upload(self, path: str, fields: Mapping[str, str], name: str, files: Sequence[Path]) -> Any:
        """POST files under ``name`` as multipart/form-data, a piece at a time. Raises ApiError, Unreachable, OSError."""
        with ExitStack() as opened:
            form = Form(fields, name, [(file.name, opened.enter_context(file.open("rb"))) for file in files])
            request = self._request("POST", path)
            request.data = form.pieces()
            for header, value in form.headers.items():  # after the data: setting that takes a Content-Length away
                request.add_header(header, value)
            try:
                with self._open(request) as answer:
                    return json.loads(answer.read())
            except Unreachable as error:
                if isinstance(getattr(error.__cause__, "reason", None), BrokenPipeError | ConnectionResetError):
                    raise Unreachable(
                        "The server closed the connection while files were sent; they may be larger than it takes "
                        "(SPADEWORK_UPLOAD_MB)."
                    ) from error
                raise

    def _open(self, request: Request) -> Any:
        method = request.get_method()
        for left in range(self._tries - 1, -1, -1):
            try:
                return self._opener.open(request, timeout=self._timeout_s)
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

    def _request(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:  # fmt: skip
        url = urljoin(self._base, path)
        if not url.startswith(self._base):
            raise ValueError(f"{url} is not below {self._base}: the token is not sent there")
        if query:
            pairs = [(name, value) for name, value in query.items() if value is not None]
            url = f"{url}?{urlencode(pairs, doseq=True)}" if pairs else url
        sent = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **(headers or {})}
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        return Request(url, data=data, headers=sent, method=method)  # noqa: S310 - http or https, checked above


def _facts(answer: Any, path: str) -> tuple[str, int]:
    """ETag and size in bytes of the whole, from the answer to a piece."""
    size = (answer.headers["Content-Range"] or "").rpartition("/")[2]
    if answer.status != 206 or not size.isdecimal() or not answer.headers["ETag"]:
        raise SpadeworkError(f"{path} does not come in pieces; does a proxy before the server drop the header Range?")
    return answer.headers["ETag"], int(size)


def _piece(answer: Any) -> bytes:
    """What comes next; empty at the end, also when it came too early."""
    try:
        return bytes(answer.read(_PIECE_BYTES))
    except (HTTPException, OSError):
        return b""


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
