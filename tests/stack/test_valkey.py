"""The embedded Valkey on the real binary."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.stack.processes import wait_until
from webapp.stack.paths import Home
from webapp.stack.spawn import spawn
from webapp.stack.valkey import ValkeyServer, valkey_server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home with blank")
    made.create()
    return made


@contextmanager
def started(server: ValkeyServer) -> Iterator[subprocess.Popen[bytes]]:
    service = server.service()
    service.before_start()
    process = spawn(
        service.argv, death_signal=service.death_signal, env=service.env, cwd=service.cwd, stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: service.ready(process.pid), within_s=service.start_deadline_s, what="the broker")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def test_what_was_acknowledged_survives_a_kill(home: Home) -> None:
    server = valkey_server(home)
    with started(server) as process:
        redis.Redis.from_url(server.url).set("key", "value")
        process.kill()
        process.wait()
        assert server.socket.exists(), "the stale socket is what the next start has to cope with"
    with started(server):
        assert redis.Redis.from_url(server.url).get("key") == b"value"


def test_a_torn_last_write_does_not_stop_the_start(home: Home) -> None:
    server = valkey_server(home)
    with started(server) as process:
        redis.Redis.from_url(server.url).set("key", "value")
        process.kill()
        process.wait()
    (log,) = (home.valkey / "appendonlydir").glob("*.incr.aof")
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\n")
    with started(server):
        assert redis.Redis.from_url(server.url).get("key") == b"value"


def test_it_wants_a_password_and_shows_it_to_nobody(home: Home) -> None:
    server = valkey_server(home)
    with started(server) as process:
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(unix_socket_path=str(server.socket)).ping()
        secret = (home.secrets / "broker_password").read_text()
        assert secret.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert (home.valkey / "valkey.conf").stat().st_mode & 0o077 == 0
        assert server.socket.stat().st_mode & 0o077 == 0
        client = redis.Redis.from_url(server.url)
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_a_server_that_outlived_its_supervisor_is_stopped_first(home: Home) -> None:
    server = valkey_server(home)
    with started(server) as orphan:
        redis.Redis.from_url(server.url).set("key", "value")
        with started(server):
            assert orphan.poll() is not None
            assert redis.Redis.from_url(server.url).get("key") == b"value"
