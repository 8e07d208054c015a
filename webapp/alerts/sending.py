"""One HTTP request to a receiver: to the address that was checked, no proxy, no redirect, TIMEOUT_S for all of it."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
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
    """Connects to one IP address; Host header and certificate are the name's. ``give_up`` ends whatever it waits for."""

    def __init__(self, host: str, port: int, *, address: str, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._address = address
        self._context = context
        self._wire: socket.socket | None = None  # ``sock`` is None already while the last of an answer is read
        self.is_over = False

    def connect(self) -> None:
        """Open the connection."""
        self.sock = self._wire = socket.create_connection((self._address, self.port), self.timeout)
        if self._context is not None:
            self.sock = self._wire = self._context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
        if self.is_over:
            raise TimeoutError
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def give_up(self) -> None:
        """Its time is over. Called from another thread: a time-out of the socket is only for each wait, not for all of them."""
        self.is_over = True
        if self._wire is not None:
            with suppress(OSError):  # closed in the same moment
                socket.socket.shutdown(self._wire, socket.SHUT_RDWR)  # not SSLSocket's, which a read cannot bear


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
    too_long = Outcome(status=None, answer=f"no answer: it took longer than {TIMEOUT_S:g} s")
    timer = threading.Timer(TIMEOUT_S, connection.give_up)
    timer.start()
    try:
        connection.request("POST", target, body=body, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(_ANSWER_BYTES).decode("utf-8", "replace").replace("\x00", "␀")
        outcome = Outcome(status=response.status, answer=text)
    except TimeoutError:
        outcome = too_long
    except (OSError, http.client.HTTPException) as error:
        outcome = Outcome(status=None, answer=f"no answer: {error or type(error).__name__}")
    finally:
        timer.cancel()
        connection.close()
    return too_long if connection.is_over else outcome
