"""`up`: everything from an empty data directory to a page that answers, then keeping it so until told to stop."""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from webapp.stack import preflight, static_files
from webapp.stack.application import Application, application_environment, last_url
from webapp.stack.console import Console
from webapp.stack.errors import StackError
from webapp.stack.lock import exclusive
from webapp.stack.paths import Home
from webapp.stack.postgres import PostgresServer, postgres_server
from webapp.stack.restore import refuse_cut_short
from webapp.stack.running import Running
from webapp.stack.supervisor import StopRequested, Supervisor
from webapp.stack.valkey import ValkeyServer, valkey_server

PARTS = ("web", "gpu", "try", "default")
_COMMAND_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Backing:
    """The two servers behind the application: embedded ones to start, or none where a URL was given."""

    database: PostgresServer | None
    broker: ValkeyServer | None
    database_url: str
    redis_url: str


def backing_services(home: Home) -> Backing:
    """DATABASE_URL and REDIS_URL where given, embedded servers where not.

    Raises:
        StackError: an embedded server cannot be had on this machine.
    """
    database = None if os.environ.get("DATABASE_URL") else postgres_server(home)
    broker = None if os.environ.get("REDIS_URL") else valkey_server(home)
    return Backing(
        database=database,
        broker=broker,
        database_url=database.url if database else os.environ["DATABASE_URL"],
        redis_url=broker.url if broker else os.environ["REDIS_URL"],
    )


def up(
    home: Home,
    *,
    demo: bool,
    console: Console,
    parts: Sequence[str] = PARTS,
    on_ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Start everything, call `on_ready` with the address, and run until SIGINT, SIGTERM or SIGHUP.

    `parts` leaves out processes of the application that run on another machine; who runs the web server also brings
    the database to its present form.

    Raises:
        StackError: something prevents the start; what had been started is stopped again.
    """
    with ExitStack() as cleanup:
        cleanup.enter_context(exclusive(home))
        refuse_cut_short(home)
        cleanup.callback(home.state.unlink, missing_ok=True)
        listener, wished_port = preflight.bind_port()
        cleanup.enter_context(listener)
        preflight.check_disk(home.root)
        backing = backing_services(home)
        if backing.database is None:
            preflight.check_database(backing.database_url)
            console.say("using the database of DATABASE_URL")
        if backing.broker is None:
            preflight.check_broker(backing.redis_url)
            console.say("using the broker of REDIS_URL")
        preflight.check_sandbox()
        address, port = listener.getsockname()[:2]
        if port != wished_port:
            console.say(f"port {wished_port} is taken, using {port}")
        started = time.time()
        environment = application_environment(
            home, database_url=backing.database_url, redis_url=backing.redis_url, port=port
        )
        application = Application(home, environment, address, port, listener.fileno())

        def record(running: Sequence[Running]) -> None:
            try:
                _write_state(home, url=application.url, started=started, running=running)
            except OSError as error:  # a full disk: `status` is out of date, everything else goes on
                console.say(f"cannot write {home.state}: {error.strerror}")

        supervisor = cleanup.enter_context(Supervisor(console, on_change=record))
        try:
            _start_backing(supervisor, backing, console)
            if "web" in parts:
                _prepare(supervisor, application, console)
            makers = {
                "web": application.web,
                "gpu": application.gpu_worker,
                "try": application.try_worker,
                "default": application.default_worker,
            }
            supervisor.start(*(makers[part]() for part in PARTS if part in parts))
            if demo:
                _show_demo(supervisor, application, console)
            else:
                console.say(f"ready: {application.url}")
            on_ready(application.url)
            supervisor.watch()
        except StopRequested:
            console.say("told to stop while starting")
        console.say("stopping")
    console.say("everything has stopped; the data stays in " + str(home.root))


def _start_backing(supervisor: Supervisor, backing: Backing, console: Console) -> None:
    if backing.database is not None and backing.database.ensure_cluster():
        console.say(f"made a new database in {backing.database.data}")
    embedded = [server.service() for server in (backing.database, backing.broker) if server is not None]
    supervisor.start(*embedded)
    if backing.database is not None:
        backing.database.ensure_database()


def _prepare(supervisor: Supervisor, application: Application, console: Console) -> None:
    def command(name: str, *options: str) -> None:
        argv = application.manage(name, "--noinput", *options)
        supervisor.run(name, argv, env=application.environment, deadline_s=_COMMAND_DEADLINE_S)

    command("migrate")
    console.say("the database has the present form")
    # A directory of the administrator's own choosing is filled every time: we do not know who else writes there.
    if "SPADEWORK_STATIC_ROOT" in application.environment or not static_files.are_collected(application.home):
        command(
            "collectstatic", "--verbosity=0", "--clear", "--ignore=rest_framework"
        )  # its pages for browsers are not used
        static_files.mark_collected(application.home)
        console.say("static files are in place")


def _show_demo(supervisor: Supervisor, application: Application, console: Console) -> None:
    def command(name: str, *, secret: bool) -> list[str]:
        return supervisor.run(
            name, application.manage(name), env=application.environment, deadline_s=_COMMAND_DEADLINE_S, secret=secret
        )

    # The link signs an administrator in: it goes to this terminal and into no log file.
    link = last_url(command("demo_link", secret=True))
    if link is None:
        raise StackError("manage.py demo_link printed no address")
    run_url = last_url(command("start_demo_run", secret=False)) or application.url
    console.plain(
        framed(
            "Spadework is up. Open this address (it signs you in, once):",
            "",
            f"    {link}",
            "",
            f"A demo run is going on at {run_url}",
            "Ctrl-C here stops everything; the data stays.",
        )
    )


def framed(*lines: str) -> str:
    """Text in a box, so that it is found among log lines. Lines are not broken: an address must stay one word."""
    width = max(len(line) for line in lines)
    edge = "+" + "-" * (width + 2) + "+"
    return "\n".join(["", edge, *(f"| {line:<{width}} |" for line in lines), edge, ""])


def _write_state(home: Home, *, url: str, started: float, running: Sequence[Running]) -> None:
    state = {
        "pid": os.getpid(),
        "url": url,
        "started": started,
        "services": [
            {
                "name": one.service.name,
                "state": one.state,
                "pid": one.pid,
                "restarts": one.restarts,
                "since_s": time.time(),
            }
            for one in running
        ],
    }
    part = home.state.with_suffix(".part")
    part.write_text(json.dumps(state, indent=1))
    part.rename(home.state)
