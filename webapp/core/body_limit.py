"""A limit on what a request may send, kept before Django sees it: Django writes the whole body to the disk before any view can refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[None]]

#: In the scope of a request whose body was left out: (the limit in bytes, whether it is the one of uploads).
TOO_LARGE = "spadework.too_large"
_LINGER_S = 5.0


class BodyLimit:
    """ASGI: leaves bodies above their limit out, announced or not, and has the application say so (ErrorPages); hands on the others.

    ``upload_bytes`` is for ``multipart/form-data`` at ``upload_paths``, the only form and places in which files are taken;
    ``other_bytes`` for all others.
    """

    def __init__(
        self, application: Application, *, upload_paths: Collection[str], upload_bytes: int, other_bytes: int
    ) -> None:
        self._application = application
        self._upload_paths = frozenset(upload_paths)
        self._upload_bytes = upload_bytes
        self._other_bytes = other_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        is_upload = _is_form_with_files(scope) and scope.get("path") in self._upload_paths
        limit_bytes = self._upload_bytes if is_upload else self._other_bytes
        refused = {**scope, TOO_LARGE: (limit_bytes, is_upload)}
        if _announced(scope) > limit_bytes:
            await self._refuse(refused, receive, send, is_read=False)
            return
        taken = 0
        is_read = False
        has_begun = False

        async def counted() -> Message:
            nonlocal taken, is_read
            message = await receive()
            is_read = not message.get("more_body", False)
            taken += len(message.get("body", b""))
            return message if taken <= limit_bytes else {"type": "http.disconnect"}

        async def unless_refused(message: Message) -> None:
            nonlocal has_begun
            if taken <= limit_bytes:
                has_begun = True
                await send(message)

        await self._application(scope, counted, unless_refused)
        if taken > limit_bytes and not has_begun:
            await self._refuse(refused, receive, send, is_read=is_read)

    async def _refuse(self, scope: Message, receive: Receive, send: Send, *, is_read: bool) -> None:
        """The application's answer to the request without its body."""
        is_given = False

        async def nothing() -> Message:
            nonlocal is_given
            if is_given:
                await asyncio.Future()  # until the application has answered and no longer listens
            is_given = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            is_last = not is_read and message["type"] == "http.response.body" and not message.get("more_body", False)
            await send({**message, "more_body": True} if is_last else message)
            if is_last:
                # A connection closed on a client that still sends takes the answer with it.
                await _discard(receive)
                await send({"type": "http.response.body", "body": b""})

        headers = [
            pair for pair in scope.get("headers", ()) if pair[0] not in (b"content-length", b"transfer-encoding")
        ]
        await self._application({**scope, "headers": headers}, nothing, and_close)


async def _discard(receive: Receive) -> None:
    """Read what the client still sends, for a while."""
    try:
        async with asyncio.timeout(_LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass


def _is_form_with_files(scope: Message) -> bool:
    kinds = [value for name, value in scope.get("headers", ()) if name == b"content-type"]
    return len(kinds) == 1 and kinds[0].partition(b";")[0].strip().lower() == b"multipart/form-data"


def _announced(scope: Message) -> int:
    for name, value in scope.get("headers", ()):
        if name == b"content-length" and value.isdigit() and len(value) < 19:
            return int(value)
    return 0
