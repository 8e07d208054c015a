"""One HTTP request to a receiver: to the address that was checked, no proxy, no redirect, no wait without end."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from webapp.alerts.addresses import AddressRefused, parse, resolve

TIMEOUT_S = 10.0
_ANSWER_BYTES = 500


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """HTTP status (None when no answer came), and the answer's beginning or why there is none."""

    status: int | None
    answer: str

    @property
    def is_delivered(self) -> bool:
        """The receiver took it."""
        return self.status is not None and 200 <= self.status < 300


class _Pinned(http.client.HTTPConnection):
    """Connects to one IP address; Host header and certificate are the name's."""

    def __init__(self, host: str, port: int, *, address: str, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._address = address
        self._context = context

    def connect(self) -> None:
        """Open the connection."""
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)


def post(*, url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    """Send it once; never raises for what the receiver or the network does."""
    try:
        parts = parse(url)
        is_tls = parts.scheme == "https"
        connection = _Pinned(
            parts.hostname or "", parts.port or (443 if is_tls else 80), address=resolve(parts),
            context=ssl.create_default_context() if is_tls else None,
        )  # fmt: skip
    except AddressRefused as error:
        return Outcome(status=None, answer=str(error))
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        connection.request("POST", target, body=body, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(_ANSWER_BYTES).decode("utf-8", "replace").replace("\x00", "␀")
        return Outcome(status=response.status, answer=text)
    except (OSError, http.client.HTTPException) as error:
        return Outcome(status=None, answer=f"no answer: {error or type(error).__name__}")
    finally:
        connection.close()
