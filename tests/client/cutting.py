"""A bad line between the client and the server: it breaks off after so many bytes of an answer, as often as the test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit


class CuttingProxy:
    """Listens on ``url``; passes requests on to ``site``. ``cuts`` answers end after ``limit`` bytes, then ``on_cut`` is called."""

    def __init__(self, site: str, *, limit: int = 0, cuts: int = 0, on_cut: Callable[[], None] = lambda: None) -> None:
        parts = urlsplit(site)
        self._target = (parts.hostname or "", parts.port or 80)
        self._limit = limit
        self.on_cut = on_cut
        self.cuts = cuts
        self.ranges: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse further connections."""
        with suppress(OSError):  # stopped before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """The same, and wait for the last one."""
        self.stop()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(self._target) as server, suppress(ConnectionError):
                self._pass_on(client, server)  # the client may leave before the end

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(65536)
        lines = head.decode().split("\r\n")
        self.ranges += [line.partition(": ")[2] for line in lines if line.lower().startswith("range:")]
        server.sendall(head)  # urllib asks for "Connection: close": the answer ends with the connection
        sent = 0
        while piece := server.recv(65536):
            cut = self.cuts > 0 and sent + len(piece) > self._limit
            client.sendall(piece[: self._limit - sent] if cut else piece)
            sent += len(piece)
            if cut:
                self.cuts -= 1
                self.on_cut()
                return
