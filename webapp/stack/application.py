"""Our own processes: their environment, how each is started, and how each proves that it works."""

import http.client
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from webapp.stack.credentials import read_or_create
from webapp.stack.paths import REPOSITORY, Home
from webapp.stack.service import Service, StopStep

_HEALTH_TIMEOUT_S = 2.0
# Celery obeys these over the settings, libpq (PGOPTIONS, PGSERVICE, …) fills in from these what the URL leaves out.
_CELERYS_PREFIX = "CELERY_"
_LIBPQS_PREFIX = "PG"
# The first step lets an idle worker end at once. A busy one is then told to end its pool's children (they get SIGTERM,
# with time to stop what they watch over).
_WORKER_STOP = (StopStep(signal.SIGTERM, 3), StopStep(signal.SIGQUIT, 12))


@dataclass(frozen=True)
class Application:
    """Everything the web server and the workers need to be told."""

    home: Home
    environment: Mapping[str, str]
    address: str
    port: int
    listener_fd: int

    @property
    def url(self) -> str:
        """Where people open it."""
        return self.environment["SPADEWORK_PUBLIC_URL"]

    def manage(self, *arguments: str) -> list[str]:
        """The command line of a management command."""
        return [sys.executable, str(REPOSITORY / "manage.py"), *arguments]

    def web(self) -> Service:
        """The web server; up when /healthz says that it reaches database and broker."""
        return Service(
            name="web",
            argv=[sys.executable, "-m", "webapp.stack.web", str(self.listener_fd)],
            ready=lambda _pid: self._web_answers(),
            stop=(StopStep(signal.SIGTERM, 8),),
            start_deadline_s=180,  # three interpreters at once on a busy machine
            env=self.environment,
            cwd=REPOSITORY,
            pass_fds=(self.listener_fd,),
        )

    def gpu_worker(self) -> Service:
        """Supervises training, one run at a time."""
        return self._worker("gpu", concurrency=1)

    def default_worker(self) -> Service:
        """Exports, imports, play sessions, housekeeping; holds the scheduler of periodic tasks."""
        schedule = self.home.root / "beat-schedule"
        return self._worker("default", "--beat", "--schedule", str(schedule), concurrency=2)

    def try_worker(self) -> Service:
        """Holds sessions in which people try a checkpoint. A queue of its own: they last long, and a run must not wait for them."""
        return self._worker("try", concurrency=2)

    def _worker(self, queue: str, *more: str, concurrency: int) -> Service:
        ready_file = self.home.root / f"worker-{queue}.ready"
        return Service(
            name=queue,
            argv=[
                *(sys.executable, "-m", "webapp.stack.worker", str(ready_file)),
                *("--app", "webapp.celery", "worker", "--queues", queue, "--hostname", f"{queue}@%h"),
                *("--concurrency", str(concurrency), "--prefetch-multiplier", "1", "--loglevel", "WARNING"),
                *("--without-gossip", "--without-mingle", *more),
            ],
            ready=lambda pid: ready_file.exists() and ready_file.read_text() == str(pid),
            stop=_WORKER_STOP,
            start_deadline_s=180,  # three interpreters at once on a busy machine
            env={**self.environment, "OMP_WAIT_POLICY": "passive"},  # waiting threads must not eat the other cores
            cwd=REPOSITORY,
            before_start=lambda: ready_file.unlink(missing_ok=True),
        )

    def _web_answers(self) -> bool:
        connection = http.client.HTTPConnection(self.address, self.port, timeout=_HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", "/healthz", headers={"Host": urlsplit(self.url).netloc})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        # Moved: the way to HTTPS, when SPADEWORK_PUBLIC_URL is one; the proxy that speaks it is not ours to check.
        return status in (http.HTTPStatus.OK, http.HTTPStatus.MOVED_PERMANENTLY)


def application_environment(home: Home, *, database_url: str, redis_url: str, port: int) -> dict[str, str]:
    """The variables every process of the application gets: ours over the caller's, nothing of Celery's.

    libpq's own variables are kept for a server that the caller named (a root certificate, say), not for the embedded one.
    """
    foreign = (_CELERYS_PREFIX,) if os.environ.get("DATABASE_URL") else (_CELERYS_PREFIX, _LIBPQS_PREFIX)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    kept.setdefault("SPADEWORK_PUBLIC_URL", f"http://127.0.0.1:{port}")
    if "SPADEWORK_SECRET_KEY" not in kept and "SPADEWORK_SECRET_KEY_FILE" not in kept:
        key_file = home.secrets / "secret_key"
        read_or_create(key_file)
        kept["SPADEWORK_SECRET_KEY_FILE"] = str(key_file)
    python_path = os.pathsep.join(filter(None, [str(REPOSITORY), kept.get("PYTHONPATH", "")]))
    return {
        **kept,
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "SPADEWORK_HOME": str(home.root),
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
    }


def last_url(lines: list[str]) -> str | None:
    """The last web address in what a command wrote."""
    words = [word.strip(".,;()<>") for line in lines for word in line.split()]
    return next((word for word in reversed(words) if word.startswith(("http://", "https://"))), None)
