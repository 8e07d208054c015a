"""The sockets. `/ws/runs/<id>/?cursor=N` follows one run without a gap, `/ws/runs/` says which runs have something new."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError, InterfaceError

from webapp.runs.journal import LIST_GROUP
from webapp.runs.live import hub as hubs
from webapp.runs.live.access import may_watch, session_key_of
from webapp.runs.live.hub import Hub
from webapp.runs.live.store import frame_after, last_cursor

log = logging.getLogger(__name__)

BAD_MESSAGE = 4400
FORBIDDEN = 4403
RUN_GONE = 4404
CURSOR_AHEAD = 4409
TRY_AGAIN = 1013
SERVER_FAILED = 1011

CREDIT = 4  # frames a client may have that it has not acknowledged
MESSAGE_CHARS = 200
CHANGES_EVERY_S = 0.5
_INT8 = 2**63 - 1


class _Watched(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """A socket with background tasks, closed when its user's right to it ends."""

    recheck_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tasks: list[asyncio.Task[None]] = []

    async def _is_allowed(self) -> bool:
        return bool(await database_sync_to_async(may_watch)(session_key_of(self.scope)))

    def _begin(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        self._tasks = [asyncio.create_task(self._guarded(item)) for item in (*coroutines, self._recheck())]

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (DatabaseError, InterfaceError) as error:
            log.warning("a socket is closed because the database is away: %s", error)
            await self.close(TRY_AGAIN)
        except Exception:
            log.exception("a socket is closed because of a bug")
            await self.close(SERVER_FAILED)
            raise

    async def _recheck(self) -> None:
        while True:
            await asyncio.sleep(self.recheck_s)
            if not await self._is_allowed():
                await self.close(FORBIDDEN)
                return

    async def disconnect(self, code: int) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class RunConsumer(_Watched):
    """Events of one run after a cursor, in order, at most CREDIT unacknowledged frames at a time, and its status."""

    hub: Hub | None = None

    async def connect(self) -> None:
        """Refuse strangers before accepting; say by close code what else is wrong."""
        if not await self._is_allowed():
            await self.close()
            return
        await self.accept()
        run_id = int(self.scope["url_route"]["kwargs"]["run_id"])
        cursor = _cursor_in(self.scope["query_string"])
        if cursor is None:
            await self.close(BAD_MESSAGE)
            return
        newest = await database_sync_to_async(last_cursor)(run_id)
        if newest is None:
            await self.close(RUN_GONE)
            return
        if cursor > newest:
            await self.close(CURSOR_AHEAD)
            return
        self.cursor = cursor
        self.unacknowledged: deque[int] = deque()
        self.credit = asyncio.Event()
        self.credit.set()
        self.hub = await hubs.join(run_id)
        self._begin(self._send_events(self.hub), self._send_status(self.hub))

    async def disconnect(self, code: int) -> None:
        """Leave the hub."""
        await super().disconnect(code)
        if self.hub is not None:
            await hubs.leave(self.hub)
            self.hub = None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """An acknowledgement; anything else ends the socket."""
        acknowledged = _acknowledged_in(text_data)
        if self.hub is None or acknowledged is None or acknowledged > self.cursor:
            await self.close(BAD_MESSAGE)
            return
        while self.unacknowledged and self.unacknowledged[0] <= acknowledged:
            self.unacknowledged.popleft()
        if len(self.unacknowledged) < CREDIT:
            self.credit.set()

    async def _send_events(self, hub: Hub) -> None:
        while True:
            await self.credit.wait()
            frame = hub.frame_from(self.cursor)
            if frame is None and self.cursor < hub.head:
                frame = await database_sync_to_async(frame_after)(hub.run_id, self.cursor)
            if frame is None:
                async with hub.news:
                    await hub.news.wait_for(lambda: hub.head > self.cursor)
                continue
            self.cursor = frame.last
            self.unacknowledged.append(frame.last)
            if len(self.unacknowledged) >= CREDIT:
                self.credit.clear()
            await self.send(text_data=frame.text)

    async def _send_status(self, hub: Hub) -> None:
        sent = 0
        while True:
            async with hub.news:
                await hub.news.wait_for(lambda: hub.status_number > sent)  # noqa: B023  read again at every turn
            sent = hub.status_number
            if hub.status is None:
                await self.close(RUN_GONE)
                return
            await self.send(text_data=hub.status)


class RunListConsumer(_Watched):
    """Says which runs have something new, at most every CHANGES_EVERY_S."""

    groups = (LIST_GROUP,)

    async def connect(self) -> None:
        """Refuse strangers."""
        self.changed: set[int] = set()
        self.news = asyncio.Event()
        if not await self._is_allowed():
            await self.close()
            return
        await self.accept()
        self._begin(self._send_changes())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is expected from the page."""
        await self.close(BAD_MESSAGE)

    async def run_wake(self, message: dict[str, Any]) -> None:
        """A run has something new."""
        self.changed.add(int(message["run"]))
        self.news.set()

    async def _send_changes(self) -> None:
        while True:
            await self.news.wait()
            self.news.clear()
            runs = [{"id": run_id} for run_id in sorted(self.changed)]
            self.changed.clear()
            await self.send(text_data=json.dumps({"type": "changed", "runs": runs}))
            await asyncio.sleep(CHANGES_EVERY_S)


def _cursor_in(query_string: bytes) -> int | None:
    """The cursor a socket starts after, None when it is malformed."""
    values = parse_qs(query_string.decode("latin1"), keep_blank_values=True).get("cursor", ["0"])
    text = values[0]
    if len(values) != 1 or not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return int(text) if int(text) <= _INT8 else None


def _acknowledged_in(text: str | None) -> int | None:
    """The cursor a client acknowledges, None when the message is anything else."""
    if text is None or len(text) > MESSAGE_CHARS:
        return None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("type") != "ack":
        return None
    to = message.get("to")
    return to if isinstance(to, int) and not isinstance(to, bool) and to >= 0 else None
