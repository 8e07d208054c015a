"""The embedded PostgreSQL on the real binaries: safe by default, and back after every kind of death."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.stack.processes import is_alive, root_only, wait_until
from webapp.stack import postgres
from webapp.stack.errors import StackError
from webapp.stack.leftovers import children_of
from webapp.stack.paths import Home
from webapp.stack.postgres import FAST_AND_UNSAFE, PostgresServer, installed_binaries, postgres_server
from webapp.stack.spawn import IdentityKind, spawn


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


@contextmanager
def started(server: PostgresServer) -> Iterator[subprocess.Popen[bytes]]:
    service = server.service()
    server.ensure_cluster(sync=False)
    service.before_start()
    process = spawn(
        service.argv,
        death_signal=service.death_signal,
        identity=service.identity,
        env=service.env,
        cwd=service.cwd,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: service.ready(process.pid), within_s=service.start_deadline_s, what="the database")
        server.ensure_database()
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


def stopped(pid: int) -> bool:
    """Stop the process; False when it has ended, as the one that served a connection does soon after it."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return True


def write_row(server: PostgresServer) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value int)")
        connection.execute("INSERT INTO kept VALUES (7)")


def read_rows(server: PostgresServer) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT value FROM kept").fetchall()


def test_it_is_postgresql_18_from_the_wheel_whatever_path_says(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PGPORT", "1")
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server) as process:
        assert Path(f"/proc/{process.pid}/exe").readlink() == installed_binaries() / "postgres"
        with psycopg.connect(server.url) as connection:
            assert connection.info.server_version // 10000 == 18


def test_the_application_is_no_superuser_and_there_is_no_tcp_port(home: Home) -> None:
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server), psycopg.connect(server.url) as connection:
        role = connection.execute("SELECT rolsuper, rolcreatedb FROM pg_roles WHERE rolname = current_user").fetchone()
        assert role == (False, True)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert connection.execute("SHOW data_checksums").fetchone() == ("on",)


def test_a_wrong_password_is_refused(home: Home) -> None:
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server), pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host=str(server.sockets), user="spadework", password="guess", dbname="spadework")


@root_only
def test_another_user_cannot_even_reach_the_socket(home: Home) -> None:
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server):
        for path in (server.sockets, server.data, home.secrets):
            assert path.stat().st_mode & 0o077 == 0
        look = subprocess.run(
            ["/bin/ls", str(server.sockets)], user=65534, group=65534, extra_groups=[], capture_output=True, check=False
        )
        assert look.returncode != 0


def test_data_survive_a_restart_and_a_kill(home: Home) -> None:
    server = postgres_server(home)
    with started(server):
        write_row(server)
    with started(server) as process:
        assert read_rows(server) == [(7,)]
        write_row(server)
        process.kill()
        process.wait()
    with started(server):
        assert read_rows(server) == [(7,), (7,)]


def test_a_pid_file_whose_number_now_belongs_to_another_program_does_not_stop_the_start(home: Home) -> None:
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server) as process:
        process.kill()
        process.wait()
        pid_file = server.data / "postmaster.pid"
        stale = pid_file.read_text().splitlines()
        bystander = subprocess.Popen(["/bin/sleep", "600"])
        pid_file.write_text("\n".join([str(bystander.pid), *stale[1:]]) + "\n")
    try:
        with started(server):
            assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_server_that_outlived_its_supervisor_is_stopped_first(home: Home) -> None:
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server) as orphan:
        write_row(server)
        with started(server):
            assert orphan.poll() is not None
            assert read_rows(server) == [(7,)]


def test_a_start_waits_for_the_helpers_of_a_killed_server(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold its shared memory; here they are stopped, as on a machine too busy to let them notice."""
    monkeypatch.setattr(postgres, "_HELPERS_END_S", 1.0)
    server = postgres_server(home)
    with started(server) as process:
        write_row(server)
        helpers = [pid for pid in children_of(process.pid) if stopped(pid)]
        assert helpers
        process.kill()
        process.wait()
    with started(server):
        assert read_rows(server) == [(7,)]
        assert not any(map(is_alive, helpers))


def test_a_half_made_cluster_is_thrown_away(home: Home) -> None:
    (home.postgres / "data.new").mkdir()
    (home.postgres / "data.new" / "PG_VERSION").write_text("18\n")
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server):
        assert not (home.postgres / "data.new").exists()


def test_a_cluster_of_another_version_is_named_and_left_alone(home: Home) -> None:
    server = postgres_server(home)
    server.data.mkdir()
    (server.data / "PG_VERSION").write_text("15\n")
    with pytest.raises(StackError, match=r"was made by PostgreSQL 15, this is 18: dump it with 15"):
        server.ensure_cluster()
    assert (server.data / "PG_VERSION").read_text() == "15\n"


def test_a_lost_administrator_password_is_one_clear_line(home: Home) -> None:
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    with started(server):
        (home.secrets / "database_admin_password").write_text("other")
        with pytest.raises(StackError, match=r"cannot prepare the database in .*password authentication failed"):
            server.ensure_database()


@pytest.fixture
def reachable_parent() -> Iterator[Path]:
    parent = Path("/tmp") / f"sw-reachable-{os.getpid()}"
    parent.mkdir(mode=0o755)
    yield parent
    subprocess.run(["/bin/rm", "-r", str(parent)], check=True)


Identify = Callable[[str], None]


@pytest.fixture
def identify(monkeypatch: pytest.MonkeyPatch) -> Identify:
    return lambda word: monkeypatch.setenv("SPADEWORK_POSTGRES_IDENTITY", word)


@root_only
def test_without_namespaces_root_drops_to_nobody_outside_its_closed_home(
    home: Home, reachable_parent: Path, identify: Identify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data directory is under a 0700 directory: cluster and binaries move, no directory is opened up, data come along."""
    monkeypatch.setattr(postgres, "_REACHABLE_PARENTS", (reachable_parent,))
    monkeypatch.setattr(
        postgres, "reachable_by_others", lambda path: path.is_relative_to(reachable_parent)
    )  # binaries too
    before = home.root.stat().st_mode
    with started(postgres_server(home, settings=FAST_AND_UNSAFE)):
        write_row(postgres_server(home))
    identify("drop")
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    assert server.identity.kind is IdentityKind.DROP
    assert server.cluster.parent == reachable_parent
    assert server.binaries.is_relative_to(server.cluster)
    with started(server) as process:
        assert Path(f"/proc/{process.pid}").stat().st_uid == 65534
        assert read_rows(server) == [(7,)]
        assert (server.data.stat().st_uid, server.sockets.stat().st_uid) == (65534, 65534)
    assert home.root.stat().st_mode == before
    identify("auto")
    back = postgres_server(home, settings=FAST_AND_UNSAFE)
    assert back.data == server.data
    with started(back):
        assert read_rows(back) == [(7,)]
        assert back.data.stat().st_uid == 0


@root_only
def test_without_namespaces_the_data_stay_where_they_are_when_nobody_can_get_there(
    reachable_parent: Path, identify: Identify
) -> None:
    identify("drop")
    home = Home(reachable_parent / "home")
    home.create()
    server = postgres_server(home, settings=FAST_AND_UNSAFE)
    assert server.cluster == home.postgres
    with started(server):
        write_row(server)
        home.create()  # what `status` and `env` do meanwhile
        assert read_rows(server) == [(7,)]
        assert home.root.stat().st_mode & 0o777 == 0o711
        assert home.secrets.stat().st_mode & 0o777 == 0o700
    assert (server.data.stat().st_uid, server.data.stat().st_mode & 0o777) == (65534, 0o700)
    server.sockets.rmdir()


def test_a_wrong_identity_setting_is_named(home: Home, identify: Identify) -> None:
    identify("yes")
    with pytest.raises(StackError, match="SPADEWORK_POSTGRES_IDENTITY is 'yes': must be auto, namespace or drop"):
        postgres_server(home)
