"""The order of the queue, changed by people, and the notes workers leave about themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from trainer.config import RunConfig
from webapp.accounts.models import AuditEntry, User
from webapp.runs import presence, services, services_queue
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.selectors_queue import queued_runs
from webapp.runs.supervision.lease import claim_next

pytestmark = pytest.mark.django_db


@pytest.fixture
def queued(operator: User, settings: Any, tmp_path: Path) -> Callable[[str], Run]:
    settings.SPADEWORK_HOME = tmp_path

    def make(name: str) -> Run:
        draft = services.create_run(actor=operator, config=RunConfig(), name=name)
        return services.start_run(actor=operator, run_id=draft.pk)

    return make


@pytest.fixture
def notes(settings: Any) -> Iterator[None]:
    yield
    with Redis.from_url(settings.SPADEWORK_REDIS_URL) as client:
        for key in client.scan_iter(match="spadework:worker:test*"):
            client.delete(key)


def order() -> list[str]:
    return [run.name for run in queued_runs()]


@pytest.mark.parametrize(
    ("name", "to", "after"),
    [("c", "first", "cabd"), ("c", "up", "acbd"), ("b", "down", "acbd"), ("a", "last", "bcda"), ("a", "up", "abcd"), ("d", "down", "abcd")],
)  # fmt: skip
def test_a_run_is_moved_and_the_others_keep_their_order(
    name: str, to: str, after: str, queued: Callable[[str], Run], operator: User
) -> None:
    runs = {letter: queued(letter) for letter in "abcd"}
    place = services_queue.move_in_queue(actor=operator, run_id=runs[name].pk, to=to)
    assert "".join(order()) == after
    assert place == after.index(name) + 1
    entry = AuditEntry.objects.get(action="run.moved_in_queue")
    assert entry.detail == {"from": "abcd".index(name) + 1, "to": place}


def test_what_is_queued_later_stands_behind_what_was_moved(queued: Callable[[str], Run], operator: User) -> None:
    runs = {letter: queued(letter) for letter in "ab"}
    services_queue.move_in_queue(actor=operator, run_id=runs["a"].pk, to="last")
    queued("c")
    assert order() == ["b", "a", "c"]


def test_a_worker_takes_the_first_of_the_queue_not_the_oldest(queued: Callable[[str], Run], operator: User) -> None:
    queued("old")
    new = queued("new")
    services_queue.move_in_queue(actor=operator, run_id=new.pk, to="first")
    claim = claim_next(gpu_set="test")
    assert claim is not None
    assert claim.run_id == new.pk
    assert order() == ["old"]
    with pytest.raises(ActRefused, match="does not wait"):
        services_queue.move_in_queue(actor=operator, run_id=new.pk, to="first")


@pytest.mark.usefixtures("notes")
def test_a_worker_is_listed_while_it_says_that_it_is_there() -> None:
    presence.announce(name="test@here", queues=["gpu", "default"])
    presence.announce(name="test@there", queues=["default"])
    found = {one.name: one for one in presence.workers() or () if one.name.startswith("test")}
    assert [(name, one.queues, one.takes_runs) for name, one in found.items()] == [
        ("test@here", ["default", "gpu"], True), ("test@there", ["default"], False),
    ]  # fmt: skip
    assert found["test@here"].memory_bytes > 1 << 28
    presence.withdraw(name="test@here")
    assert [one.name for one in presence.workers() or () if one.name.startswith("test")] == ["test@there"]


@pytest.mark.usefixtures("notes")
def test_a_note_expires_by_itself(settings: Any) -> None:
    presence.announce(name="test@here", queues=["gpu"])
    with Redis.from_url(settings.SPADEWORK_REDIS_URL) as client:
        assert 0 < client.ttl("spadework:worker:test@here") <= presence.EXPIRES_S


def test_without_valkey_nobody_is_guessed_to_be_there(settings: Any) -> None:
    settings.SPADEWORK_REDIS_URL = "redis://127.0.0.1:1/0"
    assert presence.workers() is None


def test_what_a_gpu_does_not_say_is_not_zero() -> None:
    one, other = presence.parse_gpus(
        "0, NVIDIA H200, 37, 1024, 143771\n1, Some GPU, odd name, [N/A], [N/A], 80000\nnonsense\n"
    )
    assert (one.name, one.busy_percent, one.used_mib, one.total_mib) == ("NVIDIA H200", 37.0, 1024.0, 143771.0)
    assert (other.index, other.name, other.busy_percent, other.used_mib) == ("1", "Some GPU, odd name", None, None)
