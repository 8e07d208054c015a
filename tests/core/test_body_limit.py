"""What a request may send, whether it says how much or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from webapp.core.body_limit import TOO_LARGE, BodyLimit

UPLOAD = b"Multipart/Form-Data; boundary=x"


def answer(
    pieces: list[bytes], *, announced: int | None, limit: int = 10, kind: bytes = UPLOAD, path: str = "/upload/"
) -> tuple[list[int], bytes]:
    """Statuses sent, and what the application read, for a body that comes in pieces."""
    messages = [
        {"type": "http.request", "body": piece, "more_body": at + 1 < len(pieces)} for at, piece in enumerate(pieces)
    ]
    sent: list[Any] = []
    read = b""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal read
        if TOO_LARGE in scope:
            assert (await receive())["body"] == b""
            assert not any(name == b"content-length" for name, _ in scope["headers"])
            await send({"type": "http.response.start", "status": 413, "headers": []})
            await send({"type": "http.response.body", "body": b"too large"})
            return
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            read += message["body"]
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if announced is None else [(b"content-length", str(announced).encode())]
    headers.append((b"content-type", kind))
    limited = BodyLimit(application, upload_paths=["/upload/"], upload_bytes=limit, other_bytes=4)
    asyncio.run(limited({"type": "http", "path": path, "headers": headers}, receive, send))
    assert messages == []  # what was sent is read to its end, or its sender would not see the answer
    return [message["status"] for message in sent if message["type"] == "http.response.start"], read


@pytest.mark.parametrize(("size", "status"), [(10, 200), (11, 413)])
def test_an_announced_body_above_the_limit_is_refused_unread(size: int, status: int) -> None:
    statuses, read = answer([b"x" * size], announced=size)
    assert (statuses, len(read)) == ([status], size if status == 200 else 0)


@pytest.mark.parametrize(
    "kind", [b"application/json", b"application/x-www-form-urlencoded", b"x/multipart/form-data", b""]
)
@pytest.mark.parametrize("is_announced", [True, False])
@pytest.mark.parametrize(("size", "status"), [(4, 200), (5, 413)])
def test_what_is_no_upload_has_the_smaller_limit(kind: bytes, is_announced: bool, size: int, status: int) -> None:
    assert answer([b"x" * size], announced=size if is_announced else None, kind=kind)[0] == [status]


@pytest.mark.parametrize("path", ["/", "/upload", "/upload/x", "/api/runs/"])
@pytest.mark.parametrize("is_announced", [True, False])
@pytest.mark.parametrize(("size", "status"), [(4, 200), (5, 413)])
def test_an_upload_to_another_address_has_the_smaller_limit(
    path: str, is_announced: bool, size: int, status: int
) -> None:
    assert answer([b"x" * size], announced=size if is_announced else None, path=path)[0] == [status]


def test_a_body_that_grows_above_the_limit_is_cut_off_with_one_answer() -> None:
    statuses, read = answer([b"x" * 6, b"x" * 6, b"x" * 6], announced=None)
    assert (statuses, read) == ([413], b"x" * 6)


def test_a_lie_about_the_length_does_not_help() -> None:
    assert answer([b"x" * 20], announced=3)[0] == [413]
