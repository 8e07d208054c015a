"""A limit on what a request may send, kept before Django sees it: Django writes the whole body to the disk before any view can refuse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[None]]

_SAID = b"This is larger than the server takes (SPADEWORK_UPLOAD_MB).\n"


class BodyLimit:
    """ASGI: answers 413 to bodies above ``limit_bytes``, announced or not, and hands on the others."""

    def __init__(self, application: Application, *, limit_bytes: int) -> None:
        self._application = application
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if _announced(scope) > self._limit_bytes:
            await _refuse(send)
            return
        taken = 0
        is_refused = False

        async def counted() -> Message:
            nonlocal taken, is_refused
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limit_bytes and not is_refused:
                is_refused = True
                await _refuse(send)
            return {"type": "http.disconnect"} if is_refused else message

        async def unless_refused(message: Message) -> None:
            if not is_refused:
                await send(message)

        await self._application(scope, counted, unless_refused)


def _announced(scope: Message) -> int:
    for name, value in scope.get("headers", ()):
        if name == b"content-length" and value.isdigit() and len(value) < 19:
            return int(value)
    return 0


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(_SAID)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": _SAID})
