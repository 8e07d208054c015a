"""Sockets through the whole ASGI application: origin, session, catch-up, gaplessness, credit, rights that end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from django.utils import timezone

from tests.runs.eventwriter import EventWriter
from tests.runs.sockets import SocketClient
from webapp.runs import journal, services
from webapp.runs.ingest import Ingester
from webapp.runs.live import consumers
from webapp.runs.live import hub as hubs
from webapp.runs.models import Event, Run

pytestmark = pytest.mark.django_db(transaction=True)

ORIGIN = "http://127.0.0.1:8400"


@pytest.fixture
def writer(run: Run) -> EventWriter:
    return EventWriter(Path(run.directory))


@pytest.fixture
def client_of_operator(operator: Any) -> Client:
    client = Client()
    client.force_login(operator, backend="django.contrib.auth.backends.ModelBackend")
    return client


def cookie_of(client: Client) -> str:
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"


def socket(path: str, cookie: str | None, origin: str | None = ORIGIN) -> SocketClient:
    from webapp.asgi import application

    headers = []
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if cookie is not None:
        headers.append((b"cookie", cookie.encode()))
    return SocketClient(application, path, headers)


@asynccontextmanager
async def connected(path: str, cookie: str) -> AsyncIterator[SocketClient]:
    communicator = socket(path, cookie)
    assert await communicator.connect()
    try:
        yield communicator
    finally:
        await communicator.disconnect()


async def next_events(communicator: SocketClient, *, acknowledge: bool = True, timeout_s: float = 30) -> dict[str, Any]:
    while True:
        frame = json.loads(await communicator.receive_text(timeout=timeout_s))
        if frame["type"] == "events":
            if acknowledge:
                await communicator.send_text(json.dumps({"type": "ack", "to": frame["to"]}))
            return frame


async def next_status(communicator: SocketClient, timeout_s: float = 30) -> dict[str, Any]:
    while True:
        frame = json.loads(await communicator.receive_text(timeout=timeout_s))
        if frame["type"] == "status":
            return frame


@sync_to_async
def ingest(run: Run) -> int:
    return Ingester(run_id=run.pk, directory=Path(run.directory)).drain()


async def test_a_socket_catches_up_and_then_follows(run: Run, writer: EventWriter, client_of_operator: Client) -> None:
    writer.start()
    writer.rollouts(range(2))
    await ingest(run)
    async with connected(f"/ws/runs/{run.pk}/?cursor=0", cookie_of(client_of_operator)) as live:
        first = await next_events(live)
        assert first["from"] == 1
        assert [event["c"] for event in first["events"]] == list(range(1, first["to"] + 1))
        assert first["events"][0]["k"] == "run_started"
        assert first["events"][0]["p"]["sandbox_tier"] == "sealed"
        writer.rollouts(range(2, 3))
        await ingest(run)
        second = await next_events(live)
        assert second["from"] == first["to"] + 1
        assert second["events"][0]["k"] == "rollout_started"


async def test_a_socket_gets_only_what_comes_after_its_cursor(
    run: Run, writer: EventWriter, client_of_operator: Client
) -> None:
    writer.start()
    writer.rollouts(range(1))
    await ingest(run)
    async with connected(f"/ws/runs/{run.pk}/?cursor=5", cookie_of(client_of_operator)) as live:
        assert (await next_events(live))["from"] == 6


async def test_case_12_an_event_reaches_the_page_within_a_second_without_waiting_for_the_next(
    run: Run, writer: EventWriter, client_of_operator: Client
) -> None:
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        await next_status(live)
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(5):
            writer.emit("warning", message="tick")
            started = loop.time()
            await ingest(run)
            await next_events(live)
            waits.append(loop.time() - started)
        assert sorted(waits)[2] < 1.0


async def test_case_23_nothing_is_missed_or_doubled_over_reconnects(
    run: Run, writer: EventWriter, client_of_operator: Client
) -> None:
    cookie = cookie_of(client_of_operator)
    writer.start()
    done = asyncio.Event()

    async def write() -> None:
        for number in range(12):
            writer.rollouts(range(number, number + 1))
            await ingest(run)
            await asyncio.sleep(0.01)
        done.set()

    task = asyncio.create_task(write())
    seen: list[int] = []
    frames = 0
    while True:
        async with connected(f"/ws/runs/{run.pk}/?cursor={seen[-1] if seen else 0}", cookie) as live:
            for _ in range(2):
                newest = await sync_to_async(lambda: Run.objects.get(pk=run.pk).last_cursor)()
                if done.is_set() and seen and seen[-1] == newest:
                    break
                frame = await next_events(live)
                frames += 1
                assert frame["from"] == (seen[-1] if seen else 0) + 1
                seen += [event["c"] for event in frame["events"]]
            else:
                continue
            break
    await task
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == await sync_to_async(Event.objects.filter(run=run).count)()
    assert frames > 2


async def test_two_sockets_share_one_hub_and_the_last_one_ends_it(run: Run, client_of_operator: Client) -> None:
    cookie = cookie_of(client_of_operator)
    loop = asyncio.get_running_loop()
    path = f"/ws/runs/{run.pk}/"
    async with connected(path, cookie) as one, connected(path, cookie) as two:
        await next_status(one)
        await next_status(two)
        assert hubs._hubs[loop][run.pk].subscribers == 2
    assert hubs._hubs[loop] == {}


async def test_a_client_that_does_not_acknowledge_gets_four_frames(
    run: Run, writer: EventWriter, client_of_operator: Client
) -> None:
    writer.start()
    for _ in range(1200):  # six frames of 200
        writer.emit("warning", message="x")
    await ingest(run)
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        frames = [await next_events(live, acknowledge=False) for _ in range(4)]
        await asyncio.sleep(1.5)
        more = [json.loads(live.output_queue.get_nowait()["text"]) for _ in range(live.output_queue.qsize())]
        assert "events" not in [frame["type"] for frame in more]
    assert frames[-1]["to"] == 800


async def test_an_acknowledgement_gives_credit_back(run: Run, writer: EventWriter, client_of_operator: Client) -> None:
    writer.start()
    for _ in range(1200):
        writer.emit("warning", message="x")
    await ingest(run)
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        total = 0
        while total < 1203:  # 2 of the start, 1200 warnings, the change to running
            total = (await next_events(live))["to"]
    assert total == 1203


async def test_a_malformed_message_ends_the_socket(run: Run, client_of_operator: Client) -> None:
    for message in (
        "ack",
        "[]",
        '{"type":"ack"}',
        '{"type":"ack","to":-1}',
        '{"type":"ack","to":true}',
        '{"type":"ack","to":99999}',
        "x" * 1000,
    ):
        async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
            await live.send_text(message)
            assert await live.close_code() == consumers.BAD_MESSAGE, message


async def test_a_malformed_cursor_is_named_by_its_close_code(run: Run, client_of_operator: Client) -> None:
    for cursor in ("-1", "abc", "", "1e3", "9223372036854775808", "1&cursor=2"):
        async with connected(f"/ws/runs/{run.pk}/?cursor={cursor}", cookie_of(client_of_operator)) as live:
            assert await live.close_code() == consumers.BAD_MESSAGE, cursor


async def test_a_cursor_beyond_the_log_and_a_run_that_is_gone_have_codes_of_their_own(
    run: Run, client_of_operator: Client
) -> None:
    cookie = cookie_of(client_of_operator)
    async with connected(f"/ws/runs/{run.pk}/?cursor=10", cookie) as live:
        assert await live.close_code() == consumers.CURSOR_AHEAD
    async with connected(f"/ws/runs/{run.pk + 1000}/", cookie) as live:
        assert await live.close_code() == consumers.RUN_GONE


@pytest.mark.parametrize("path", ["/ws/runs/", "/ws/runs/{id}/"])
async def test_strangers_and_foreign_pages_are_refused(run: Run, client_of_operator: Client, path: str) -> None:
    path = path.format(id=run.pk)
    cookie = cookie_of(client_of_operator)
    for refused in (
        socket(path, None),
        socket(path, f"{settings.SESSION_COOKIE_NAME}=made-up"),
        socket(path, cookie, origin="http://127.0.0.1:8888"),
        socket(path, cookie, origin="https://127.0.0.1:8400"),
        socket(path, cookie, origin="null"),
        socket(path, cookie, origin=None),
    ):
        assert not await refused.connect()


async def test_a_user_without_a_role_is_refused(run: Run, client_of_operator: Client, operator: Any) -> None:
    await sync_to_async(operator.groups.clear)()
    assert not await socket(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)).connect()


@pytest.mark.parametrize(
    ("how", "path"),
    [
        ("logout", "/ws/runs/{id}/"),
        ("role", "/ws/runs/{id}/"),
        ("deactivated", "/ws/runs/{id}/"),
        ("role", "/ws/runs/"),
    ],
)
async def test_a_socket_ends_when_the_right_to_it_does(
    run: Run, client_of_operator: Client, operator: Any, monkeypatch: pytest.MonkeyPatch, how: str, path: str
) -> None:
    monkeypatch.setattr(consumers._Watched, "recheck_s", 0.2)

    def end() -> None:
        if how == "logout":
            client_of_operator.session.flush()
        elif how == "role":
            operator.groups.clear()
        else:
            type(operator).objects.filter(pk=operator.pk).update(is_active=False)

    async with connected(path.format(id=run.pk), cookie_of(client_of_operator)) as live:
        await asyncio.sleep(0.5)
        await sync_to_async(end)()
        assert await live.close_code() == consumers.FORBIDDEN


async def test_status_frames_say_how_the_run_is(run: Run, operator: Any, client_of_operator: Client) -> None:
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        first = await next_status(live)
        assert (first["status"], first["last_event_age_s"], first["cursor"]) == ("starting", None, 0)
        await sync_to_async(services.stop_run)(actor=operator, run_id=run.pk)
        while (status := await next_status(live))["status"] == "starting":
            continue
        assert status["status"] == "stopping"


async def test_a_status_frame_says_how_old_its_estimate_is(run: Run, client_of_operator: Client) -> None:
    measured_at = timezone.now() - timedelta(minutes=25)
    await Run.objects.filter(pk=run.pk).aupdate(eta_s=3600.0, eta_at=measured_at)
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        status = await next_status(live)
    assert status["eta_s"] == 3600.0
    assert 1500 <= status["eta_age_s"] <= (timezone.now() - measured_at).total_seconds()


async def test_a_quiet_socket_outlives_the_redis_time_out(run: Run, client_of_operator: Client, operator: Any) -> None:
    cookie = cookie_of(client_of_operator)
    async with connected(f"/ws/runs/{run.pk}/", cookie) as live, connected("/ws/runs/", cookie) as runs:
        await asyncio.sleep(7)
        await sync_to_async(services.rename_run)(actor=operator, run_id=run.pk, name="quiet")
        assert (await next_events(live))["events"][0]["k"] == "renamed"
        assert json.loads(await runs.receive_text()) == {"type": "changed", "runs": [{"id": run.pk}]}


async def test_a_lost_wake_up_costs_seconds_and_no_event(
    run: Run, client_of_operator: Client, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "poke", lambda run_id: None)
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        await next_status(live)
        await sync_to_async(services.rename_run)(actor=operator, run_id=run.pk, name="unheard")
        assert (await next_events(live))["events"][0]["p"]["to"] == "unheard"


async def test_a_huge_misfit_is_named_but_not_sent(run: Run, writer: EventWriter, client_of_operator: Client) -> None:
    writer.raw(writer.line("hologram", {"voxels": "x" * 200_000}))
    await ingest(run)
    async with connected(f"/ws/runs/{run.pk}/", cookie_of(client_of_operator)) as live:
        event = (await next_events(live))["events"][0]
        assert (event["k"], event["x"]) == ("hologram", "too large to send")
        assert event["p"] == {"chars": 200_013}
