"""A form with files as the body of a request, read from the disk while it is sent."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from spadework_client.errors import SpadeworkError

_PIECE_BYTES = 1 << 20
_ESCAPES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})  # as browsers do


class Form:
    """multipart/form-data of ``fields``, then of open ``files`` (name, content), all under the field ``name``."""

    def __init__(self, fields: Mapping[str, str], name: str, files: Sequence[tuple[str, IO[bytes]]]) -> None:
        self._boundary = secrets.token_hex(20)
        self._parts: list[tuple[bytes, IO[bytes] | None, int]] = []
        for field, text in fields.items():
            self._add(f'name="{field}"', "", text=text)
        for file_name, file in files:
            about = f'name="{name}"; filename="{file_name.translate(_ESCAPES)}"'
            self._add(about, "Content-Type: application/octet-stream\r\n", file=file)
        self._parts.append((f"--{self._boundary}--\r\n".encode(), None, 0))

    @property
    def headers(self) -> dict[str, str]:
        """Of the request."""
        length = sum(len(head) + size for head, _, size in self._parts)
        return {
            "Content-Type": f"multipart/form-data; boundary={self._boundary}",
            "Content-Length": str(length),
        }

    def pieces(self) -> Iterator[bytes]:
        """The body. Raises SpadeworkError when a file became shorter."""
        for head, file, size in self._parts:
            yield head
            while file is not None and size > 0:
                piece = file.read(min(size, _PIECE_BYTES))
                if not piece:
                    raise SpadeworkError(f"{file.name} became shorter while it was sent; nothing was kept of it.")
                size -= len(piece)
                yield piece

    def _add(self, about: str, more: str, *, text: str = "", file: IO[bytes] | None = None) -> None:
        head = f"--{self._boundary}\r\nContent-Disposition: form-data; {about}\r\n{more}\r\n{text}"
        size = os.fstat(file.fileno()).st_size if file is not None else 0
        self._parts.append((head.encode("utf-8", "surrogateescape"), file, size))
        self._parts.append((b"\r\n", None, 0))
