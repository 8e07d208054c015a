"""One reader per process and run: reads each new batch of events once and hands the encoded frame to every socket.

Consumers' queries all go through one thread, so a query per socket and batch would collapse at a few dozen sockets. The channel layer
only says "look"; a lost message costs at most POLL_S, because the hub looks by itself as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from webapp.runs.journal import run_group
from webapp.runs.live.store import Frame, frame_after, last_cursor, status_text

log = logging.getLogger(__name__)

RING = 64
POLL_S = 2.0
STATUS_EVERY_S = 5.0
STATUS_AT_MOST_EVERY_S = 1.0


class Hub:
    """Follows one run while somebody is subscribed. `news` is notified at every new frame or status."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.head = 0  # everything up to here has been read
        self.status: str | None = None
        self.status_number = 0
        self.gone = False
        self.subscribers = 0
        self.news = asyncio.Condition()
        self._ring: deque[Frame] = deque(maxlen=RING)
        self._wake = asyncio.Event()
        self._status_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin at the newest cursor: older events come from the database, by the socket that wants them."""
        self.head = await database_sync_to_async(last_cursor)(self.run_id) or 0
        await self._read_status()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._follow())]
        for task in self._tasks:
            task.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Let go of the channel layer and end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def frame_from(self, cursor: int) -> Frame | None:
        """The frame that starts right after ``cursor``, if the ring still has it."""
        return next((frame for frame in self._ring if frame.first == cursor + 1), None)

    async def _listen(self) -> None:
        """Wait for wake-ups. A receive must not be cancelled and repeated: the layer takes a cancelled one as good-bye."""
        layer = get_channel_layer()
        while True:
            try:
                channel = await layer.new_channel()
                await layer.group_add(run_group(self.run_id), channel)
                while True:
                    await layer.receive(channel)
                    self._wake.set()
            except (RedisError, OSError) as error:
                log.warning("run %s: wake-ups are away (%s); looking every %s s", self.run_id, error, POLL_S)
                await asyncio.sleep(POLL_S)

    async def _follow(self) -> None:
        while True:
            try:
                moved = await self._read_events()
                since = time.monotonic() - self._status_at
                woken = self._wake.is_set()
                if moved or since >= STATUS_EVERY_S or (woken and since >= STATUS_AT_MOST_EVERY_S):
                    await self._read_status()
            except (DatabaseError, InterfaceError) as error:
                log.warning("run %s: the database is away (%s); looking again in %s s", self.run_id, error, POLL_S)
                await asyncio.sleep(POLL_S)
            try:
                await asyncio.wait_for(self._wake.wait(), POLL_S)
            except TimeoutError:
                continue

    async def _read_events(self) -> bool:
        self._wake.clear()
        moved = False
        while frame := await database_sync_to_async(frame_after)(self.run_id, self.head):
            self._ring.append(frame)
            self.head = frame.last
            moved = moved or frame.moved
            async with self.news:
                self.news.notify_all()
        return moved

    async def _read_status(self) -> None:
        self.status = await database_sync_to_async(status_text)(self.run_id)
        self.gone = self.status is None
        self.status_number += 1
        self._status_at = time.monotonic()
        async with self.news:
            self.news.notify_all()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a hub has failed; its sockets stand still", exc_info=task.exception())


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Hub]] = WeakKeyDictionary()
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def join(run_id: int) -> Hub:
    """The hub of the run in this process, started by its first subscriber."""
    loop = asyncio.get_running_loop()
    async with _locks.setdefault(loop, asyncio.Lock()):
        hubs = _hubs.setdefault(loop, {})
        hub = hubs.get(run_id)
        if hub is None:
            hub = Hub(run_id)
            await hub.start()
            hubs[run_id] = hub
        hub.subscribers += 1
        return hub


async def leave(hub: Hub) -> None:
    """Give the hub back; the last subscriber ends it."""
    loop = asyncio.get_running_loop()
    async with _locks.setdefault(loop, asyncio.Lock()):
        hub.subscribers -= 1
        if hub.subscribers == 0:
            _hubs[loop].pop(hub.run_id, None)
            await hub.stop()
