"""`python -m webapp.stack` as a person uses it: the whole stack on real parts, started, hurt, asked and stopped."""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.stack.processes import is_alive, processes_mentioning, wait_until
from webapp.stack.paths import REPOSITORY
from webapp.stack.spawn import SAME_USER, Identity, IdentityKind, spawn
from webapp.stack.throwaway import throwaway_services

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # minutes only on a machine that others keep busy

SERVICES = ["database", "broker", "web", "gpu", "try", "default"]
START_S = 240


class Person:
    """Runs our commands on one data directory, like somebody with a shell."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        unwanted = (
            "DATABASE_URL",
            "REDIS_URL",
            "SPADEWORK_PUBLIC_URL",
            "SPADEWORK_SECRET_KEY_FILE",
            "SPADEWORK_SECRET_KEY",
        )
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.environment = {**kept, "SPADEWORK_HOME": str(home), **variables}

    def run(self, *arguments: str, timeout_s: float = START_S) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "webapp.stack", *arguments]
        return subprocess.run(
            command,
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, identity: Identity = SAME_USER, arguments: tuple[str, ...] = ()) -> "Foreground":
        return Foreground(self, identity, arguments)

    def state(self) -> dict[str, dict[str, object]]:
        try:
            services = json.loads((self.home / "state.json").read_text())["services"]
        except FileNotFoundError:
            return {}
        return {service["name"]: service for service in services}

    def url(self) -> str:
        return str(json.loads((self.home / "state.json").read_text())["url"])

    def all_up(self) -> bool:
        state = self.state()
        return list(state) == SERVICES and all(service["state"] == "up" for service in state.values())


class Foreground:
    """`up` in a terminal that a test reads."""

    def __init__(self, person: Person, identity: Identity, arguments: tuple[str, ...]) -> None:
        self.person = person
        self.output = person.home.with_suffix(".output")
        with self.output.open("wb") as output:
            self.process = spawn(
                [sys.executable, "-m", "webapp.stack", "up", *arguments],
                identity=identity,
                env=person.environment,
                cwd=REPOSITORY,
                stdout=output,
            )
        wait_until(
            lambda: "ready: http" in self.text() or self.process.poll() is not None, within_s=START_S, what="the start"
        )
        assert self.process.poll() is None, self.text()

    def text(self) -> str:
        return self.output.read_text()

    def end(self, number: signal.Signals = signal.SIGINT) -> str:
        self.process.send_signal(number)
        self.process.wait(120)
        return self.text()


def health(url: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def nothing_left(home: Path) -> bool:
    return processes_mentioning(str(home)) == []


@pytest.fixture(scope="module")
def blocker() -> Iterator[socket.socket]:
    """A program that sits on the wished-for port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, blocker: socket.socket) -> Person:
    return Person(tmp_path_factory.mktemp("up") / "home", SPADEWORK_PORT=str(blocker.getsockname()[1]))


@pytest.fixture(scope="module")
def up(person: Person) -> Iterator[Foreground]:
    started = person.start()
    yield started
    if started.process.poll() is None:
        started.end()
    wait_until(lambda: nothing_left(person.home), what="the end of every process")


def test_the_page_answers_on_a_free_port_of_this_machine_only(
    up: Foreground, person: Person, blocker: socket.socket
) -> None:
    taken = blocker.getsockname()[1]
    port = int(person.url().rpartition(":")[2])
    assert f"port {taken} is taken, using {port}" in up.text()
    assert health(person.url()) == (200, {"status": "ok", "database": "ok", "redis": "ok"})
    listening = subprocess.run(
        ["/bin/cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True
    ).stdout
    (line,) = [line for line in listening.splitlines() if f":{port:04X} 0" in line and " 0A " in line]
    assert line.split()[1] == f"0100007F:{port:04X}"


def test_secrets_are_generated_and_for_the_owner_only(up: Foreground, person: Person) -> None:
    files = sorted((person.home / "secrets").iterdir())
    assert [file.name for file in files] == [
        "broker_password",
        "database_admin_password",
        "database_password",
        "secret_key",
    ]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert len({file.read_text() for file in files}) == 4
    assert min(len(file.read_text()) for file in files) == 64


def test_a_second_up_names_the_first_and_fails(up: Foreground, person: Person) -> None:
    second = person.run("up")
    assert second.returncode == 1
    (line,) = second.stderr.splitlines()
    assert f"already running on {person.home} (process {up.process.pid})" in line
    assert "make down" in line
    assert person.all_up()


def test_status_tells_what_is_proven(up: Foreground, person: Person) -> None:
    status = person.run("status")
    assert status.returncode == 0
    assert person.url() in status.stdout
    assert [line.split()[:2] for line in status.stdout.splitlines()[1:]] == [[name, "up"] for name in SERVICES]


def test_env_leads_other_programs_to_the_services(up: Foreground, person: Person) -> None:
    lines = person.run("env").stdout.splitlines()
    values = dict(shlex.split(line.removeprefix("export "))[0].split("=", 1) for line in lines)
    assert values["SPADEWORK_PUBLIC_URL"] == person.url()
    with psycopg.connect(values["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT count(*) > 0 FROM django_migrations").fetchone() == (True,)


def test_manage_runs_a_command_on_the_stack(up: Foreground, person: Person) -> None:
    link = person.run("manage", "demo_link")
    assert link.returncode == 0, link.stderr
    assert link.stdout.startswith(person.url() + "/")


@pytest.mark.parametrize("name", SERVICES)
def test_a_killed_process_comes_back_by_itself(up: Foreground, person: Person, name: str) -> None:
    victim = int(str(person.state()[name]["pid"]))
    os.kill(victim, signal.SIGKILL)
    wait_until(
        lambda: person.state()[name]["pid"] != victim and person.all_up(), within_s=180, what=f"the return of {name}"
    )
    wait_until(lambda: health(person.url())[0] == 200, within_s=60, what="health")
    assert f"{name} was ended by SIGKILL; starting it again in" in up.text()


def test_ctrl_c_stops_everything_in_order_and_leaves_nothing(up: Foreground, person: Person) -> None:
    pids = [int(str(service["pid"])) for service in person.state().values()]
    output = up.end()
    assert up.process.returncode == 0
    assert not any(map(is_alive, pids))
    wait_until(lambda: nothing_left(person.home), within_s=30, what="the end of every process")
    after = output.rpartition("stopping")[2]
    assert max(after.index(f"{name} stopped") for name in ("web", "gpu", "try", "default")) < after.index(
        "database stopped"
    )
    assert not (person.home / "state.json").exists()
    status = person.run("status")
    assert (status.returncode, status.stdout.split()[:2]) == (3, ["not", "running"])
    assert "start it with `make up` first" in person.run("manage", "check").stderr


def test_in_the_background_killed_up_again_and_down(up: Foreground, person: Person) -> None:
    up.process.wait(120)
    assert person.run("up", "--detach").returncode == 0
    assert health(person.url())[0] == 200
    os.kill(int((person.home / "lock").read_text()), signal.SIGKILL)
    wait_until(lambda: nothing_left(person.home), what="the end of every process")

    again = person.run("up", "--detach")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "ready: http://127.0.0.1:" in again.stdout
    assert "made a new database" not in again.stdout
    assert "static files" not in again.stdout, "nothing that is there already is made again"
    assert health(person.url())[0] == 200
    assert person.run("down").stdout == "stopped\n"
    assert nothing_left(person.home)
    assert person.run("down").stdout == "was not running\n"


def test_it_needs_no_root(tmp_path: Path, up: Foreground, person: Person) -> None:
    """In a user namespace, because the interpreter may lie where a really different user cannot read it."""
    other = Person(tmp_path / "home", SPADEWORK_PORT="8490")
    other.home.mkdir()
    shutil.copytree(person.home / "static", other.home / "static")  # collecting them again would only take time
    shutil.copy(person.home / "static.collected", other.home)
    started = other.start(Identity(IdentityKind.NAMESPACE, 65534, 65534))
    assert health(other.url())[0] == 200
    started.end()
    assert started.process.returncode == 0
    wait_until(lambda: nothing_left(other.home), what="the end of every process")


def test_the_servers_run_for_a_user_id_without_a_name() -> None:
    """PostgreSQL refuses such a user; a namespace gives it one."""
    print_role = "import os, psycopg; print(psycopg.connect(os.environ['DATABASE_URL']).execute('SELECT current_user').fetchone())"
    process = spawn(
        [sys.executable, "-m", "webapp.stack", "throwaway", "--", sys.executable, "-c", print_role],
        identity=Identity(IdentityKind.NAMESPACE, 54321, 54321),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, output) == (0, b"('spadework',)\n")


def test_a_wrong_setting_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    person = Person(tmp_path / "home", DATABASE_URL="postgresql://me:hush@127.0.0.1:1/db")
    refused = person.run("up")
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("spadework: DATABASE_URL: connection ")
    assert line.endswith("; correct it, or unset it to use the embedded one")
    assert "hush" not in refused.stdout + refused.stderr
    assert nothing_left(person.home)


def test_given_services_are_used_and_parts_can_run_on_different_machines(tmp_path: Path) -> None:
    with throwaway_services() as services:
        urls = {name: services[name] for name in ("DATABASE_URL", "REDIS_URL")}
        person = Person(tmp_path / "home", SPADEWORK_PORT="8495", **urls)
        refused = person.run(
            "up", "--only", "gpu"
        )  # nobody has run the migrations: a worker must not do it behind the web part
        assert refused.returncode == 1
        assert "migrations have not been run on this database" in refused.stderr
        with psycopg.connect(services["DATABASE_URL"]) as connection:
            assert connection.execute("SELECT to_regclass('django_migrations')").fetchone() == (None,)
        for parts in (("web",), ("gpu",)):
            started = person.start(arguments=tuple(word for part in parts for word in ("--only", part)))
            assert "using the database of DATABASE_URL" in started.text()
            assert "using the broker of REDIS_URL" in started.text()
            assert list(person.state()) == list(parts)
            started.end()
            assert started.process.returncode == 0
        assert not (person.home / "postgres" / "data").exists()


def test_in_the_background_a_wrong_setting_is_told_too(tmp_path: Path) -> None:
    refused = Person(tmp_path / "home", SPADEWORK_PORT="http").run("up", "--detach")
    assert (refused.returncode, refused.stderr) == (
        1,
        "spadework: SPADEWORK_PORT is 'http': must be a number from 1 to 65535\n",
    )
