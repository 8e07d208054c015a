"""The synchronous, thread-safe sandbox: an event loop on a thread of its own, as long-lived as the object."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Self, TypeVar

from sandbox.errors import EnvironmentFault, HostError
from sandbox.gates import DEFAULT_SEEDS
from sandbox.host import SandboxHost
from sandbox.limits import GuessRule, Limits
from sandbox.results import EnvironmentHandle, EpisodeHandle, Opened, Report, Stepped

_T = TypeVar("_T")
_CLOSED = "this Sandbox is closed"


class Sandbox:
    """Loads and plays generated environments. Any thread may call any method; calls of several threads run together.

    Not usable across `os.fork`: make one per process.
    """

    def __init__(self, limits: Limits | None = None, minimum_tier: str = "sealed", *, only: bool = False) -> None:
        """Start the strongest tier; raises `SandboxUnavailable` when this machine reaches no tier of at least
        `minimum_tier` (with `only`: not this very tier), `ValueError` when that is no tier."""
        self._owner = os.getpid()
        self._closed = False
        self._order = threading.Lock()
        self._host = SandboxHost(limits, minimum_tier, only=only)
        self._loop = asyncio.SelectorEventLoop()
        # The parent-death signal of the zygotes is tied to this thread: it lives until close().
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-host", daemon=True)
        self._thread.start()
        try:
            self._call(self._host.start())
        except BaseException:
            self.close()
            raise

    @property
    def tier(self) -> str:
        """The isolation reached, to be stored with every result."""
        return self._host.tier

    @property
    def layers(self) -> list[str]:
        """Names of the layers around the workers, beside rlimits and seccomp."""
        return list(self._host.layers)

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._host.limits

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        if os.getpid() != self._owner:
            work.close()
            raise HostError("this Sandbox is used in a forked child; make one Sandbox per process")
        if threading.current_thread() is self._thread:
            work.close()
            raise HostError("the sandbox's own thread cannot wait for itself")
        # Under the lock, so that nothing is handed to the loop after the order to close it.
        with self._order:
            if self._closed:
                work.close()
                raise HostError(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise HostError(_CLOSED) from error
        except BaseException:
            future.cancel()
            raise

    def load(self, source: str) -> EnvironmentHandle:
        """Compile a program and run its module body in a worker of its own; raises `EnvironmentFault`."""
        handle = self._call(self._host.load(source))
        return dataclasses.replace(handle, _close=self._close_environment)

    def _close_environment(self, number: int) -> None:
        if not self._closed:
            self._call(self._host.close_environment(EnvironmentHandle(number, "", lambda _: None)))

    def reset_many(self, requests: Sequence[tuple[EnvironmentHandle, int, int]]) -> list[Opened | EnvironmentFault]:
        """Open one episode per (environment, seed, max_turns); answers in order, faults as values."""
        return self._call(self._host.reset_many(requests))

    def step_many(self, requests: Sequence[tuple[EpisodeHandle, str]]) -> list[Stepped | EnvironmentFault]:
        """One action per episode; answers in order, faults as values. After a fault the episode is dead.

        Raises `HostError` for an episode that is over, ended, or named twice.
        """
        return self._call(self._host.step_many(requests))

    def end_many(self, episodes: Sequence[EpisodeHandle]) -> None:
        """Forget episodes; unknown ones are ignored."""
        self._call(self._host.end_many(episodes))

    def solution(self, env: EnvironmentHandle, seed: int, max_turns: int) -> list[str] | None:
        """Actions of `solution()` right after `reset(seed)`, as written by the program; None when there are none."""
        return self._call(self._host.solution(env, seed, max_turns))

    def examine(
        self,
        source: str,
        kind: str = "game",
        seeds: Sequence[int] = DEFAULT_SEEDS,
        guess: GuessRule = GuessRule(),  # noqa: B008 - frozen
    ) -> Report:
        """The gates `parse` to `solvable` in fresh workers; raises `HostError` only for the machinery."""
        return self._call(self._host.examine(source, kind, seeds, guess))

    def statistics(self) -> dict[str, int]:
        """Counts since the start, and what is open now."""

        async def read() -> dict[str, int]:
            return self._host.statistics()

        return self._call(read())

    def close(self) -> None:
        """End every process of this sandbox and wait for it. Twice is allowed, and from several threads; in a forked child
        it does nothing. Calls that still wait raise `HostError`."""
        if os.getpid() != self._owner:
            return
        with self._order:
            first, self._closed = not self._closed, True
        if not first:
            self._thread.join()
            return
        try:
            asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _shut_down(self) -> None:
        """Close the host, then end what still waits for it: a stopped loop would leave it waiting for ever."""
        try:
            await self._host.close()
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def __enter__(self) -> Self:
        """The sandbox itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
