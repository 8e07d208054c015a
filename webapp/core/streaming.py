"""Downloads under ASGI. Django reads a plain iterator to its end before it sends the first byte; this hands it on in pieces.

Views give plain iterators, never asynchronous ones: those Django in turn collects in memory wherever it serves without ASGI. In tests
both are errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from webapp.core.middleware import GetResponse

PIECE_BYTES = 256 * 1024


class StreamInPieces:
    """Makes every streamed answer (files, static ones too) an asynchronous one. Outermost: it sees what others answer themselves."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if isinstance(request, ASGIRequest) and isinstance(response, StreamingHttpResponse) and not response.is_async:
            content: Any = response.streaming_content
            response.streaming_content = _pieces(iter(content))
        return response


async def _pieces(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read in a thread, a piece at a time: files come in blocks of 4 KiB, too small to change threads for."""
    take = sync_to_async(_next_piece, thread_sensitive=False)
    while piece := await take(content):
        yield piece


def _next_piece(content: Iterator[bytes]) -> bytes:
    parts, size = [], 0
    for part in content:
        parts.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            break
    return b"".join(parts)
