"""Calls on their way to workers: who waits for which answer, and how many there were."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any


class Gather:
    """The answers one caller waits for, in order, filled as frames come back. `answers` awaits them all."""

    __slots__ = ("_found", "_future", "_left")

    def __init__(self, number: int) -> None:
        """`number` calls will be answered."""
        self._found: list[Any] = [None] * number
        self._left = number
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not number:
            self._future.set_result(None)

    @property
    def abandoned(self) -> bool:
        """True when nobody waits any more: the caller was cancelled, or has been told of a failure."""
        return self._left > 0 and self._future.done()

    def put(self, place: int, answer: Any) -> None:
        """One answer: a result or an `EnvironmentFault` value."""
        self._found[place] = answer
        self._left -= 1
        if not self._left and not self._future.done():
            self._future.set_result(None)

    def fail(self, error: Exception) -> None:
        """The machinery failed: the caller gets `error` raised."""
        if not self._future.done():
            self._future.set_exception(error)

    async def answers(self) -> list[Any]:
        """All answers; raises the first failure."""
        await self._future
        return self._found

    def found(self) -> list[Any]:
        """What is there so far."""
        return [answer for answer in self._found if answer is not None]


@dataclass(slots=True)
class Job:
    """One call waiting for its reply, which goes to `place` of `gather`; None when nobody waits."""

    item: list[Any]
    gather: Gather | None
    place: int
    attempts: int = 0


@dataclass
class Counters:
    """Statistics of a host."""

    calls: int = 0
    frames: int = 0
    workers_started: int = 0
    workers_lost: int = 0
    episodes_replayed: int = 0
    faults: int = 0

    def as_dict(self) -> dict[str, int]:
        """Plain numbers."""
        return dict(vars(self))
