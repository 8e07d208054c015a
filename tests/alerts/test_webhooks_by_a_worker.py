"""Webhooks as they really go: an event log is taken in here, a real worker with the product's own schedule sends the alert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import current_app

from tests.alerts.conftest import Receiver
from tests.browser.processes import running_worker
from tests.runs.eventwriter import EventWriter
from tests.runs.processes import environment_of_tests

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def worker(transactional_db: None, tmp_path: Path) -> Iterator[Any]:
    """The product's worker with its scheduler, allowed to call receivers on this machine."""
    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge("default")
    environment = environment_of_tests(SPADEWORK_WEBHOOK_PRIVATE="on")
    with running_worker(environment, tmp_path, "--beat", "--schedule", str(tmp_path / "beat")) as process:
        yield process


@pytest.fixture
def signed(receiver: Receiver, person: Any) -> Any:
    """A webhook whose receiver knows the secret and takes nothing that is not signed with it."""
    from webapp.alerts.services import create_webhook

    webhook, receiver.secret = create_webhook(actor=person, name="chat", url=receiver.url)
    return webhook


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(0.1)


def lose_everything(writer: EventWriter, ingest: Callable[[], int]) -> None:
    """A rollout in which nothing is won, recorded and taken in."""
    writer.start()
    writer.open_rollout(0)
    writer.emit("metrics", values={"win_rate/unhinted": 0.0}, not_finite={})
    ingest()


def test_an_alert_reaches_its_receiver_signed(
    run: Any, writer: EventWriter, ingest: Callable[[], int], signed: Any, receiver: Receiver, worker: Any
) -> None:
    lose_everything(writer, ingest)
    wait_until(lambda: signed.deliveries.filter(state="delivered").exists(), "the delivery")
    assert receiver.answered == [200]
    ((_, body),) = receiver.got
    told = json.loads(body)
    assert (told["type"], told["rollout"], told["run"]["id"]) == ("never_won", 0, run.pk)
    delivery = signed.deliveries.get()
    assert (delivery.tries, delivery.status, delivery.answer) == (1, 200, "thanks␀")


def test_what_the_receiver_failed_to_take_comes_again(
    run: Any, writer: EventWriter, ingest: Callable[[], int], signed: Any, receiver: Receiver, worker: Any
) -> None:
    receiver.first_answers = [503]
    lose_everything(writer, ingest)
    wait_until(lambda: signed.deliveries.filter(tries=1, status=503).exists(), "the first try")
    signed.refresh_from_db()
    assert signed.failures == 1
    wait_until(lambda: signed.deliveries.filter(state="delivered").exists(), "the second try")
    assert receiver.answered == [503, 200]  # 401 would be a wrong signature
    (first, first_body), (second, second_body) = receiver.got
    assert first_body == second_body
    assert first["X-Spadework-Delivery"] == second["X-Spadework-Delivery"]
    assert int(second["X-Spadework-Timestamp"]) - int(first["X-Spadework-Timestamp"]) >= 10  # WAITS_S[0]
    assert first["X-Spadework-Signature"] != second["X-Spadework-Signature"]
    delivery = signed.deliveries.get()
    assert (delivery.tries, delivery.status) == (2, 200)
    signed.refresh_from_db()
    assert signed.failures == 0


def test_a_receiver_with_another_secret_refuses_and_the_webhook_says_so(
    run: Any, writer: EventWriter, ingest: Callable[[], int], signed: Any, receiver: Receiver, worker: Any
) -> None:
    receiver.secret = "spwh_another"
    lose_everything(writer, ingest)
    wait_until(lambda: signed.deliveries.filter(tries=1, status__isnull=False).exists(), "the first try")
    delivery = signed.deliveries.get()
    assert (delivery.state, delivery.status) == ("waiting", 401)
