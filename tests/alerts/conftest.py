"""A run whose log the test writes, and a real receiver of webhooks. Models are imported late: Django is not set up yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from spadework_client import WebhookRefused, verify_webhook
from tests.pages.conftest import as_role, operator, viewer
from tests.runs.eventwriter import EventWriter

__all__ = ["as_role", "operator", "viewer"]


class Receiver:
    """Takes what it is sent and answers with ``status``; with a ``secret`` it answers 401 to what is not signed with that."""

    def __init__(self) -> None:
        self.status = 200
        self.secret = ""
        self.first_answers: list[int] = []  # before ``status``
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers.items()), body))
                status = receiver.answer(dict(self.headers.items()), body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{receiver.server.server_port}/elsewhere")
                self.end_headers()
                self.wfile.write(b"thanks\x00")

            def log_message(self, *_: Any) -> None:
                return

        self.answered: list[int] = []
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?team=rl"

    def answer(self, headers: dict[str, str], body: bytes) -> int:
        """The status for a request."""
        status = self.first_answers.pop(0) if self.first_answers else self.status
        if self.secret:
            try:
                verify_webhook(self.secret, headers, body)
            except WebhookRefused:
                status = 401
        self.answered.append(status)
        return status


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.SPADEWORK_WEBHOOK_PRIVATE = True
    one = Receiver()
    threading.Thread(target=one.server.serve_forever, daemon=True).start()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def person(db: None, as_role: Callable[[str], Any]) -> Any:
    """An operator."""
    from webapp.accounts.models import User

    as_role("operator")
    return User.objects.get(username="operator-person")


@pytest.fixture
def run(person: Any, tmp_path: Path) -> Any:
    """A run in state `starting`, as the supervisor leaves it when it has just launched the trainer."""
    from trainer.config import RunConfig
    from webapp.runs.models import Run

    return Run.objects.create(
        name="tanks", slug="tanks-1", owner=person, config=RunConfig().model_dump(mode="json"), seed=0,
        directory=str(tmp_path / "run"), total_rollouts=4, status="starting", attempt=1, gpu_set="test",
    )  # fmt: skip


@pytest.fixture
def webhook(receiver: Receiver, person: Any) -> Any:
    """One that wants everything."""
    from webapp.alerts.services import create_webhook

    return create_webhook(actor=person, name="chat", url=receiver.url)[0]


@pytest.fixture
def writer(run: Any) -> EventWriter:
    return EventWriter(Path(run.directory))


@pytest.fixture
def ingest(run: Any) -> Callable[[], int]:
    """Take in what was written, by the real ingest, as a fresh process would."""
    from webapp.runs.ingest import Ingester

    return lambda: Ingester(run_id=run.pk, directory=Path(run.directory)).drain()
