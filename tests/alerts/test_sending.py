"""One try: it ends in time whatever the receiver does, over TLS too, and a certificate that is not the name's ends it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webapp.alerts import addresses, delivering, sending
from webapp.alerts.addresses import AddressRefused

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
SERVER_HELLO = b"\x16\x03\x03\x40\x00"  # the head of a record that says 16 KiB follow
DRIPPED_S = 60.0


class SlowReceiver:
    """Answers ``first`` at once and then a byte every 50 ms, until the sender has gone or a minute is over."""

    def __init__(self, first: bytes, context: ssl.SSLContext | None, *, reads: bool) -> None:
        self.first, self.context, self.reads = first, context, reads
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.left = threading.Event()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        connection, _ = self.server.accept()
        try:
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
            with connection:
                if self.reads:
                    connection.recv(65536)
                connection.sendall(self.first)
                end = time.monotonic() + DRIPPED_S
                while time.monotonic() < end:
                    connection.sendall(b"a")
                    time.sleep(0.05)
        except OSError:
            self.left.set()


@pytest.fixture
def slow(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SlowReceiver]]:
    settings.SPADEWORK_WEBHOOK_PRIVATE = True
    monkeypatch.setattr(sending, "TIMEOUT_S", 0.5)
    made: list[SlowReceiver] = []

    def make(first: bytes, *, context: ssl.SSLContext | None = None, reads: bool = True) -> SlowReceiver:
        made.append(SlowReceiver(first, context, reads=reads))
        return made[-1]

    yield make
    for one in made:
        one.server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the key and the certificate of ``localhost``, signed by itself."""
    folder = tmp_path_factory.mktemp("certificate")
    key, found = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(found)],
        check=True, capture_output=True,
    )  # fmt: skip
    found.write_bytes(found.read_bytes() + key.read_bytes())
    return found


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def given_up(receiver: SlowReceiver, url: str) -> bool:
    """True when the try said that it took too long, and let go of the receiver long before that was done."""
    outcome = sending.post(url=url, body=b"{}", headers={})
    assert (outcome.status, outcome.answer) == (None, "no answer: it took longer than 0.5 s")
    return receiver.left.wait(DRIPPED_S / 2)


@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n", b""]
)  # fmt: skip
def test_a_receiver_that_answers_byte_by_byte_is_given_up(first: bytes, slow: Callable[..., SlowReceiver]) -> None:
    receiver = slow(first)
    assert given_up(receiver, f"http://127.0.0.1:{receiver.port}/")


def test_one_that_greets_byte_by_byte_is_given_up_too(slow: Callable[..., SlowReceiver]) -> None:
    receiver = slow(SERVER_HELLO, reads=False)
    assert given_up(receiver, f"https://127.0.0.1:{receiver.port}/")


@needs_openssl
@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_over_tls_a_slow_receiver_is_given_up_too(
    first: bytes, slow: Callable[..., SlowReceiver], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    receiver = slow(first, context=server_side(certificate))
    assert given_up(receiver, f"https://localhost:{receiver.port}/")


@needs_openssl
@pytest.mark.parametrize("trusted", [True, False])
def test_the_certificate_must_be_of_the_name_and_trusted(
    trusted: bool, receiver: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    receiver.server.socket = server_side(certificate).wrap_socket(receiver.server.socket, server_side=True)
    for host, reaches in (("localhost", trusted), ("127.0.0.1", False)):
        outcome = sending.post(url=f"https://{host}:{receiver.server.server_port}/", body=b"{}", headers={})
        assert (outcome.status == 200, "CERTIFICATE_VERIFY_FAILED" in outcome.answer) == (reaches, not reaches)


def test_name_servers_that_do_not_answer_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(addresses, "LOOKUP_S", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [asked.wait(DRIPPED_S)])
    with pytest.raises(AddressRefused, match=r"no name server answered within 0\.1 s"):
        addresses.resolve(addresses.parse("http://receiver.example/"))
    asked.set()


def test_the_claim_of_a_delivery_outlasts_the_try() -> None:
    assert addresses.LOOKUP_S + sending.TIMEOUT_S < delivering._CLAIM_S
