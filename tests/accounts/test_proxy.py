"""Behind a TLS proxy, on the product's own web server: only the proxy's word counts, and a forged address opens no lock."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from psycopg.conninfo import make_conninfo

from webapp.settings.env import BadSetting
from webapp.settings.proxies import read_trusted_proxies

ROOT = Path(__file__).parents[2]
HOST = "spade.example.org"
START_S = 240.0


class Site:
    """The web server as something on this machine reaches it: a proxy, or anybody."""

    def __init__(self, port: int, host: str) -> None:
        self._port, self._host = port, host
        self._cookie = self._token = ""

    def ask(self, path: str, data: dict[str, str] | None = None, **headers: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        sent = {"Host": self._host, "Cookie": self._cookie, "Referer": f"https://{self._host}/"}
        body = None
        if data is not None:
            body = urlencode({**data, "csrfmiddlewaretoken": self._token})
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request("GET" if data is None else "POST", path, body, {**sent, **headers})
            answer = connection.getresponse()
            text = answer.read().decode()
            if cookie := re.search(r"spadework_csrf=[^;]+", answer.headers.get("Set-Cookie", "")):
                self._cookie = cookie.group()
            if token := re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', text):
                self._token = token.group(1)
            return answer.status, answer.headers.get("Location", ""), text
        finally:
            connection.close()

    def sign_in(self, password: str, **headers: str) -> int:
        self.ask("/accounts/login/", **headers)
        return self.ask("/accounts/login/", {"username": "ana", "password": password}, **headers)[0]


@contextmanager
def serving(url: str, **variables: str) -> Iterator[Site]:
    from django.db import connection

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        host = HOST if url else f"127.0.0.1:{port}"
        environment = {
            **os.environ,
            "DATABASE_URL": make_conninfo(os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"]),
            "SPADEWORK_PUBLIC_URL": url or f"http://{host}",
            "FORWARDED_ALLOW_IPS": "*",  # uvicorn's own variable must not open what our settings closed
            **variables,
        }
        server = subprocess.Popen(
            [sys.executable, "-m", "webapp.stack.web", str(listener.fileno())],
            cwd=ROOT, env=environment, pass_fds=(listener.fileno(),),
        )  # fmt: skip
        try:
            site = Site(port, host)
            deadline = time.monotonic() + START_S
            while True:
                try:
                    site.ask("/healthz")
                    break
                except OSError:
                    assert server.poll() is None
                    assert time.monotonic() < deadline
            yield site
        finally:
            server.terminate()
            server.wait(timeout=60)


@pytest.fixture
def ana(transactional_db: None, settings: Any) -> str:
    from webapp.accounts.models import User

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]  # the server's own
    User.objects.create_user("ana", password="correct horse battery")
    return "correct horse battery"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_behind_a_proxy_a_forged_address_does_not_get_round_the_lock(ana: str) -> None:
    with serving(f"https://{HOST}") as site:
        assert site.ask("/healthz")[0] == 301  # what did not come by HTTPS is sent there
        https = {"X-Forwarded-Proto": "https"}
        assert site.ask("/healthz", **https)[0] == 200
        for number in range(5):  # a proxy that appends: what the client wrote stands before what the proxy saw
            site.sign_in("wrong", **https, **{"X-Forwarded-For": f"10.0.0.{number}, 203.0.113.7"})
        assert site.sign_in(ana, **https, **{"X-Forwarded-For": "10.9.9.9, 203.0.113.7"}) == 429
        # The lock is of that address: somebody else's typo behind the same proxy locks nobody out.
        assert site.sign_in(ana, **https, **{"X-Forwarded-For": "203.0.113.8"}) == 302
    from webapp.accounts.models import AuditEntry

    assert AuditEntry.objects.get(action="session.opened").detail["address"] == "203.0.113.8"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_who_is_not_the_proxy_is_not_believed(ana: str) -> None:
    with serving(f"https://{HOST}", SPADEWORK_TRUSTED_PROXIES="192.0.2.1") as site:
        status, location, _ = site.ask("/accounts/login/", **{"X-Forwarded-Proto": "https"})
        assert (status, location) == (301, f"https://{HOST}/accounts/login/")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_https_no_header_is_believed(ana: str) -> None:
    with serving("") as site:
        for number in range(5):
            site.sign_in("wrong", **{"X-Forwarded-For": f"203.0.113.{number}"})
        assert site.sign_in(ana, **{"X-Forwarded-For": "203.0.113.99"}) == 429


@pytest.mark.parametrize(
    ("text", "https", "words"),
    [
        ("127.0.0.1", False, "SPADEWORK_HTTPS is off"),
        ("*", True, "is no address"),
        ("proxy.example.org", True, "is no address"),
        ("0.0.0.0/0", True, "anybody could forge"),
        ("::/0", True, "anybody could forge"),
        ("10.0.0.1/8", True, "has host bits set"),
    ],
)
def test_what_trusts_too_many_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, text: str, https: bool, words: str
) -> None:
    monkeypatch.setenv("PROXIES", text)
    with pytest.raises(BadSetting, match=words):
        read_trusted_proxies("PROXIES", https=https)


def test_only_this_machine_is_trusted_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Callable[..., list[str]] = read_trusted_proxies
    monkeypatch.delenv("PROXIES", raising=False)
    assert read("PROXIES", https=True) == ["127.0.0.1", "::1"]
    assert read("PROXIES", https=False) == []
    monkeypatch.setenv("PROXIES", "172.18.0.0/16, 127.0.0.1")
    assert read("PROXIES", https=True) == ["172.18.0.0/16", "127.0.0.1"]
