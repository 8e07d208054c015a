"""The environments of the current set in the sandbox: loaded when first used, stepped in batches, machinery failures as values."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sandbox import (
    EnvironmentFault,
    EnvironmentHandle,
    EpisodeHandle,
    GuessRule,
    HostError,
    Opened,
    Report,
    Sandbox,
    Stepped,
)
from trainer.errors import InfrastructureError

_T = TypeVar("_T")
_EXAMINED_AT_ONCE = 4


class EnvironmentPool:
    """Loaded environments by key. `seconds` adds up the time spent waiting for the sandbox."""

    def __init__(
        self, sandbox: Sandbox, *, kind: str, guess: GuessRule, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sandbox = sandbox
        self._guess = guess
        self._kind = kind
        self._clock = clock
        self._handles: dict[str, EnvironmentHandle | EnvironmentFault] = {}
        self._threads = ThreadPoolExecutor(_EXAMINED_AT_ONCE, thread_name_prefix="examine")
        self.seconds = 0.0

    @property
    def tier(self) -> str:
        return self._sandbox.tier

    def examine(self, sources: Sequence[str]) -> list[Report]:
        """The sandbox's gates over several programs, a few at once; verdicts in order. Raises `InfrastructureError`."""
        return self._timed(
            lambda: list(
                self._threads.map(lambda source: self._sandbox.examine(source, self._kind, guess=self._guess), sources)
            )
        )

    def reset_many(
        self, requests: Sequence[tuple[str, str, int]], *, max_turns: int
    ) -> list[Opened | EnvironmentFault | HostError]:
        """Open one episode per (key, source, seed), in order. A `HostError` is everybody's: it says nothing about a program."""
        results: list[Opened | EnvironmentFault | HostError | None] = [None] * len(requests)
        open_requests: list[tuple[int, tuple[EnvironmentHandle, int, int]]] = []
        for index, (key, source, seed) in enumerate(requests):
            handle = self._handle(key, source)
            if isinstance(handle, EnvironmentHandle):
                open_requests.append((index, (handle, seed, max_turns)))
            else:
                results[index] = handle
        answers = self._many(lambda: self._sandbox.reset_many([r for _, r in open_requests]), len(open_requests))
        for (index, _), answer in zip(open_requests, answers, strict=True):
            results[index] = answer
        return [r for r in results if r is not None]

    def step_many(self, moves: Sequence[tuple[EpisodeHandle, str]]) -> list[Stepped | EnvironmentFault | HostError]:
        """One action per episode, in order."""
        longest = self._sandbox.limits.action_chars
        return self._many(lambda: self._sandbox.step_many([(e, a[:longest]) for e, a in moves]), len(moves))

    def end_many(self, episodes: Sequence[EpisodeHandle]) -> None:
        """Forget finished episodes."""
        if episodes:
            self._many(lambda: [self._sandbox.end_many(episodes)], 1)  # type: ignore[func-returns-value]

    def solutions(self, key: str, source: str, seeds: Sequence[int], *, max_turns: int) -> list[list[str] | None]:
        """What `solution()` returns for each seed; None where it has no usable answer."""
        handle = self._handle(key, source)
        if not isinstance(handle, EnvironmentHandle):
            return [None] * len(seeds)
        return self._timed(
            lambda: list(self._threads.map(lambda s: self._sandbox.solution(handle, s, max_turns), seeds))
        )

    def retire(self, key: str) -> None:
        """Stop the worker of an environment that will not be played again."""
        handle = self._handles.pop(key, None)
        if isinstance(handle, EnvironmentHandle):
            self._timed(handle.close)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._sandbox.close()

    def _handle(self, key: str, source: str) -> EnvironmentHandle | EnvironmentFault | HostError:
        """The loaded environment; a program that no longer loads keeps its fault, a machinery failure is tried again."""
        if key not in self._handles:
            started = self._clock()
            try:
                self._handles[key] = self._sandbox.load(source)
            except EnvironmentFault as fault:
                self._handles[key] = fault
            except HostError as error:
                return error
            finally:
                self.seconds += self._clock() - started
        return self._handles[key]

    def _many(self, call: Callable[[], Sequence[_T]], count: int) -> list[_T | HostError]:
        started = self._clock()
        try:
            return list(call())
        except HostError as error:
            return [error] * count
        finally:
            self.seconds += self._clock() - started

    def _timed(self, call: Callable[[], _T]) -> _T:
        started = self._clock()
        try:
            return call()
        except HostError as error:
            raise InfrastructureError(
                f"the sandbox failed: {error}; `python -m sandbox check` tells what it needs"
            ) from error
        finally:
            self.seconds += self._clock() - started
