"""docs/remote.md: its proxy configuration does what the guide says, tried with a real nginx where there is one."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "remote.md").read_text()
(CONFIG,) = re.findall(r"```nginx\n(.*?)```", GUIDE, re.DOTALL)
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
NAME = "spade.example.org"


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers it got."""

    def do_GET(self) -> None:
        body = json.dumps({name.lower(): self.headers.get_all(name) for name in self.headers}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_configuration_overwrites_what_the_client_claims_and_passes_sockets() -> None:
    directives = set(re.findall(r"^\s*(proxy_\w+ .*?);", CONFIG, re.MULTILINE))
    assert {
        "proxy_pass http://127.0.0.1:8400", "proxy_http_version 1.1", "proxy_set_header Host $host",
        "proxy_set_header X-Forwarded-For $remote_addr", "proxy_set_header X-Forwarded-Proto $scheme",
        "proxy_set_header Upgrade $http_upgrade", "proxy_set_header Connection $connection_upgrade", "proxy_buffering off",
    } <= directives  # fmt: skip
    assert "proxy_add_x_forwarded_for" not in CONFIG


def test_every_setting_the_guides_name_exists() -> None:
    known = "".join(path.read_text() for path in (ROOT / "webapp").rglob("*.py"))
    for name in ("remote.md", "keeping.md"):
        for setting in set(re.findall(r"SPADEWORK_[A-Z_]+", (ROOT / "docs" / name).read_text())):
            assert f'"{setting}"' in known, f"docs/{name} names {setting}"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[int, int, ssl.SSLContext]]:
    """The guide's nginx with its certificate command, other ports and places; its HTTP and HTTPS port, and who trusts it."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    (command,) = re.findall(r"openssl req .*?fullchain\.pem", GUIDE, re.DOTALL)
    command = command.replace("/etc/ssl/spadework", str(tmp_path)).replace("\\\n", " ")
    subprocess.run(command, shell=True, check=True, capture_output=True)
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=upstream.serve_forever, daemon=True).start()
    plain, secure = free_port(), free_port()
    config = CONFIG.replace("/etc/ssl/spadework", str(tmp_path))
    config = config.replace("127.0.0.1:8400", f"127.0.0.1:{upstream.server_port}")
    config = re.sub(r"\n\s*listen \[::\].*", "", config)
    config = config.replace("listen 80;", f"listen 127.0.0.1:{plain};").replace(
        "listen 443", f"listen 127.0.0.1:{secure}"
    )
    places = "".join(
        f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; events {{}}"
        f"http {{ access_log off; {places}\n{config}\n}}"
    )
    arguments = [NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
    subprocess.run([*arguments, "-t"], check=True, capture_output=True)
    server = subprocess.Popen(arguments)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", secure), timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "error.log").read_text()
                assert time.monotonic() < deadline
        yield plain, secure, ssl.create_default_context(cafile=str(tmp_path / "fullchain.pem"))
    finally:
        server.terminate()
        server.wait(timeout=30)
        upstream.shutdown()
        upstream.server_close()


def ask(port: int, context: ssl.SSLContext, headers: dict[str, str]) -> dict[str, list[str]]:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as raw,
        context.wrap_socket(raw, server_hostname=NAME) as tunnel,
    ):
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": NAME, **headers}.items())
        tunnel.sendall(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
        answer = http.client.HTTPResponse(tunnel)
        answer.begin()
        found: dict[str, list[str]] = json.loads(answer.read())
        return found


def test_a_real_nginx_hands_on_the_true_address_and_scheme(proxy: tuple[int, int, ssl.SSLContext]) -> None:
    plain, secure, context = proxy
    forged = {"X-Forwarded-For": "10.9.9.9", "X-Forwarded-Proto": "http"}
    seen = ask(secure, context, forged)
    assert (seen["x-forwarded-for"], seen["x-forwarded-proto"], seen["host"]) == (["127.0.0.1"], ["https"], [NAME])
    assert "upgrade" not in seen
    live = ask(secure, context, {"Upgrade": "websocket", "Connection": "Upgrade"})
    assert (live["upgrade"], live["connection"]) == (["websocket"], ["upgrade"])
    connection = http.client.HTTPConnection("127.0.0.1", plain, timeout=30)
    connection.request("GET", "/runs/", headers={"Host": NAME})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (301, f"https://{NAME}/runs/")
    connection.close()
