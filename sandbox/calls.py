"""Calls on their way to workers: who waits for which answer, what a replay needs, and how many there were."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sandbox.errors import EnvironmentFault
from sandbox.results import Opened, Stepped


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


def fingerprint(result: Opened | Stepped) -> int:
    """Equal for equal results, the printed text aside."""
    if isinstance(result, Opened):
        return hash((result.observation, tuple(result.info.items())))
    observation, reward, terminated, truncated, info, _ = result
    return hash((observation, reward, terminated, truncated, tuple(info.items()) if info else ()))


@dataclass(slots=True)
class EpisodeRecord:
    """What rebuilding an episode needs: seed, turns, actions, and a fingerprint of every reply."""

    seed: int
    max_turns: int
    opened: int
    actions: list[str] = field(default_factory=list)
    stepped: list[int] = field(default_factory=list)
    over: bool = False
    busy: bool = False
    fault: EnvironmentFault | None = None

    def add(self, action: str, result: Stepped) -> None:
        """One more step was made."""
        self.actions.append(action)
        self.stepped.append(fingerprint(result))
        self.over = result.terminated or result.truncated
        self.busy = False


@dataclass(slots=True)
class Job:
    """One call waiting for its reply, which goes to `place` of `gather`; None when nobody waits. A step has a `record`."""

    item: list[Any]
    gather: Gather | None
    place: int
    record: EpisodeRecord | None = None
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
