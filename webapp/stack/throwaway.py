"""A pair of real servers for tests: in a temporary directory, without fsync, gone when the caller is."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Event

from webapp.stack.credentials import read_or_create
from webapp.stack.errors import StackError
from webapp.stack.paths import Home
from webapp.stack.postgres import FAST_AND_UNSAFE, postgres_server
from webapp.stack.service import Service
from webapp.stack.spawn import spawn
from webapp.stack.valkey import valkey_server

_POLL_S = 0.02


@contextmanager
def throwaway_services() -> Iterator[dict[str, str]]:
    """Start PostgreSQL and Valkey; yields the environment variables that lead to them; stops and deletes everything.

    Call it from the main thread. Takes about a second.

    Raises:
        StackError: a server did not come up; the text quotes its log.
    """
    root = Path(tempfile.mkdtemp(prefix="spadework-test-"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, root, ignore_errors=True)
        if os.geteuid() == 0:
            root.chmod(0o711)  # without user namespaces, root's PostgreSQL runs as another user
        home = Home(root / "home")
        home.create()
        home.root.chmod(0o711)
        broker = valkey_server(home, durable=False)
        _start(broker.service(), home, cleanup)
        database = postgres_server(home, settings=FAST_AND_UNSAFE)
        database.ensure_cluster(sync=False)
        _start(database.service(), home, cleanup)
        database.ensure_database()
        key_file = home.secrets / "secret_key"
        read_or_create(key_file)
        yield {
            "DATABASE_URL": database.url,
            "REDIS_URL": broker.url,
            "SPADEWORK_HOME": str(home.root),
            "SPADEWORK_SECRET_KEY_FILE": str(key_file),
        }


def _start(service: Service, home: Home, cleanup: ExitStack) -> None:
    log = home.logs / f"{service.name}.log"
    service.before_start()
    with log.open("ab") as output:
        process = spawn(
            service.argv,
            death_signal=service.death_signal,
            identity=service.identity,
            env=service.env,
            cwd=service.cwd,
            stdout=output,
        )
    cleanup.callback(_stop, process, service)
    deadline = time.monotonic() + service.start_deadline_s
    while not service.ready(process.pid):
        if process.poll() is not None or time.monotonic() > deadline:
            raise StackError(f"the test {service.name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        Event().wait(_POLL_S)


def _stop(process: Popen[bytes], service: Service) -> None:
    for step in service.stop:
        if process.poll() is None:
            process.send_signal(step.signal)
        try:
            process.wait(step.grace_s)
        except TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()
