"""What is wrong with the machine or a setting is said in one line, before anything starts."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from webapp.stack import preflight
from webapp.stack.application import application_environment, last_url
from webapp.stack.credentials import read_or_create
from webapp.stack.errors import StackError
from webapp.stack.lock import exclusive, holder_pid
from webapp.stack.paths import Home
from webapp.stack.preflight import bind_port, check_broker, check_database, check_disk
from webapp.stack.throwaway import throwaway_services
from webapp.stack.up import framed


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, str]]:
    with throwaway_services() as environment:
        yield environment


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def test_given_services_that_work_pass(services: dict[str, str]) -> None:
    check_database(services["DATABASE_URL"])
    check_broker(services["REDIS_URL"])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:hush@127.0.0.1:1/db", "port 1 failed: Connection refused"),
        ("postgresql:///db?host=/no/such/dir&password=hush", "No such file or directory"),
        ("mysql://me:hush@127.0.0.1/db", "is not a PostgreSQL connection URL"),
        ("postgresql://me:hush@127.0.0.1:port/db", 'invalid integer value "port"'),
        ("nonsense", "is not a PostgreSQL connection URL"),
    ],
)
def test_a_wrong_database_url_is_explained_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StackError) as raised:
        check_database(url)
    text = str(raised.value)
    assert text.startswith("DATABASE_URL")
    assert message in text
    assert "hush" not in text
    assert "\n" not in text


def test_a_wrong_password_and_a_missing_database_are_told_apart(services: dict[str, str]) -> None:
    good = services["DATABASE_URL"]
    with pytest.raises(StackError, match='database "nowhere" does not exist'):
        check_database(good.replace("/spadework?", "/nowhere?"))
    user, _, rest = good.partition("@")
    with pytest.raises(StackError, match="password authentication failed"):
        check_database(f"{user[:-4]}0000@{rest}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://:hush@127.0.0.1:1/0", "Connection refused"),
        ("memcached://:hush@127.0.0.1:1", "should look like redis://"),
        ("redis://:hush@127.0.0.1:port/0", "should look like redis://"),
    ],
)
def test_a_wrong_redis_url_is_explained_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StackError) as raised:
        check_broker(url)
    text = str(raised.value)
    assert text.startswith("REDIS_URL")
    assert message in text
    assert "hush" not in text
    assert "\n" not in text


def test_a_wrong_broker_password_is_told(services: dict[str, str]) -> None:
    address = services["REDIS_URL"].partition("@")[2]
    with pytest.raises(StackError, match=r"REDIS_URL: .*invalid username-password pair"):
        check_broker(f"unix://:wrong@{address}")


def test_the_wished_port_is_taken_when_free_else_the_next() -> None:
    first, wished = bind_port({"SPADEWORK_PORT": "8600"})
    with first:
        assert (first.getsockname(), wished) == (("127.0.0.1", 8600), 8600)
        second, wished = bind_port({"SPADEWORK_PORT": "8600"})
        with second:
            assert (second.getsockname(), wished) == (("127.0.0.1", 8601), 8600)


def test_with_every_near_port_taken_any_port_will_do() -> None:
    taken = [socket.socket() for _ in range(20)]
    for offset, listener in enumerate(taken):
        listener.bind(("127.0.0.1", 8700 + offset))
        listener.listen()
    try:
        listener, _ = bind_port({"SPADEWORK_PORT": "8700"})
        with listener:
            assert listener.getsockname()[1] not in range(8700, 8720)
    finally:
        for one in taken:
            one.close()


@pytest.mark.parametrize("text", ["http", "0", "65536", "-1", "80.0", "٨٤٠٠"])
def test_a_port_that_is_no_port_is_named(text: str) -> None:
    with pytest.raises(StackError, match=r"SPADEWORK_PORT is .*: must be a number from 1 to 65535"):
        bind_port({"SPADEWORK_PORT": text})


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(
        StackError, match=r"cannot listen on 203\.0\.113\.1 port 8400: .*; set SPADEWORK_PORT or SPADEWORK_BIND"
    ):
        bind_port({"SPADEWORK_BIND": "203.0.113.1"})


def test_a_nearly_full_disk_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    check_disk(home.root)
    monkeypatch.setattr(preflight, "_NEEDED_BYTES", 10**18)
    with pytest.raises(StackError, match=r"only \d+ MB free on the disk of .*home.*: make room, or set SPADEWORK_HOME"):
        check_disk(home.root)


def test_a_machine_without_isolation_is_refused_with_the_sandbox_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in for the sandbox package's command line on an old kernel: same contract, other answer."""
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "__main__.py").write_text(
        "print('machine   Linux 3.10'); print('sealed    no   this kernel has no seccomp filters'); "
        "print('chosen    none: generated code is refused on this machine'); raise SystemExit(1)"
    )
    monkeypatch.setattr(preflight, "REPOSITORY", tmp_path)
    with pytest.raises(
        StackError, match=r"cannot isolate generated code.*sealed no this kernel has no seccomp filters"
    ):
        preflight.check_sandbox()


def test_the_lock_is_exclusive_and_tells_who_has_it(home: Home) -> None:
    assert holder_pid(home) is None
    with exclusive(home):
        assert holder_pid(home) == os.getpid()
        with pytest.raises(StackError, match=rf"already running on .* \(process {os.getpid()}\)"), exclusive(home):
            pass
        assert holder_pid(home) == os.getpid()
    assert holder_pid(home) is None
    with exclusive(home):
        assert holder_pid(home) == os.getpid()


def test_a_secret_is_made_once_and_an_empty_file_is_refused(home: Home) -> None:
    path = home.secrets / "secret_key"
    first = read_or_create(path)
    assert len(first) == 64
    assert read_or_create(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("\n")
    with pytest.raises(StackError, match="secret_key is empty: restore it from a backup, or remove it"):
        read_or_create(path)


def test_the_application_gets_nothing_of_celerys_or_libpqs_own_variables(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "SPADEWORK_PUBLIC_URL", "SPADEWORK_SECRET_KEY", "SPADEWORK_SECRET_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere")
    monkeypatch.setenv("PGSERVICE", "other")
    environment = application_environment(home, database_url="postgresql://d", redis_url="redis://r", port=8400)
    assert "CELERY_BROKER_URL" not in environment
    assert "PGSERVICE" not in environment
    assert environment["SPADEWORK_PUBLIC_URL"] == "http://127.0.0.1:8400"
    assert environment["SPADEWORK_SECRET_KEY_FILE"] == str(home.secrets / "secret_key")
    monkeypatch.setenv("DATABASE_URL", "postgresql://their-server/db")
    assert application_environment(home, database_url="d", redis_url="r", port=1)["PGSERVICE"] == "other"


def test_the_last_address_in_a_commands_words_is_found() -> None:
    assert last_url(["see http://one.example/a.", "then <https://two.example/b>, please"]) == "https://two.example/b"
    assert last_url(["nothing here"]) is None


def test_the_frame_holds_a_long_address_in_one_piece() -> None:
    address = "http://127.0.0.1:8400/" + "x" * 100
    assert f"| {address} |" in framed("Open:", address)
