"""The asynchronous host: zygotes, environment versions, episodes. Use `sandbox.Sandbox` from synchronous code.

Every method must be called on one event loop whose thread lives as long as the host (see `zygote_link`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from sandbox import cgroup
from sandbox.calls import Counters, EpisodeRecord, Gather, Job
from sandbox.cgroup import ControlGroup
from sandbox.errors import EnvironmentFault, HostError, SandboxUnavailable
from sandbox.inside.modules import flavour_of
from sandbox.isolation.tiers import TIERS, UNSANDBOXED
from sandbox.limits import GuessRule, Limits
from sandbox.results import EnvironmentHandle, EpisodeHandle, Opened, Report, Stepped
from sandbox.version import Version
from sandbox.worker_link import WorkerLink
from sandbox.zygote_link import ZygoteLink

OVERRIDE = "SPADEWORK_SANDBOX_OVERRIDE"
OVERRIDE_WORDS = "run-generated-code-without-isolation"
REFUSAL = "generated code is not run on this machine: "
_log = logging.getLogger("sandbox")
_SEED_BITS = 63
_ATTEMPTS = 3
_SPARE_PROCESSES = 64
_CLOSED = "the sandbox was closed"


class SandboxHost:
    """Loads programs, opens episodes, steps them; every program in sealed processes of its own."""

    def __init__(self, limits: Limits | None = None, minimum_tier: str = "sealed", *, only: bool = False) -> None:
        """`minimum_tier`: the weakest tier of `TIERS` the operator accepts (with `only`: the one to use); raises
        `ValueError` for an unknown one.

        When no tier works and the operator has set the environment variable `OVERRIDE` to `OVERRIDE_WORDS`, code runs
        without isolation, in tier `none`, after a critical log record. It does not override a stronger `minimum_tier`.
        """
        if minimum_tier not in TIERS:
            raise ValueError(f"minimum_tier must be one of {', '.join(TIERS)}, not {minimum_tier!r}")
        self.limits = limits or Limits()
        self.counters = Counters()
        self.tier = ""
        self.layers: list[str] = []
        self._tiers = (minimum_tier,) if only else TIERS[: TIERS.index(minimum_tier) + 1]
        self._zygotes: dict[str, ZygoteLink] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._versions: dict[int, Version] = {}
        self._next_version = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._being_started: set[int] = set()
        self._closed = False
        self._group: ControlGroup | None = None
        self._may_override = not only and minimum_tier == TIERS[-1]

    async def start(self) -> None:
        """Find the strongest tier that passes its self-test; raises `SandboxUnavailable` when none does."""
        self._group = cgroup.create(self.limits.total_memory_bytes, self.limits.max_workers + _SPARE_PROCESSES)
        complaints: list[str] = []
        for tier in self._tiers:
            try:
                await self._try_tier(tier)
            except (SandboxUnavailable, HostError) as error:
                complaints.append(str(error))
            else:
                return
        why = "; ".join(complaints)
        if self._may_override and os.environ.get(OVERRIDE) == OVERRIDE_WORDS:
            _log.critical(
                "GENERATED CODE RUNS WITHOUT ISOLATION, because %s is set. No tier works here: %s", OVERRIDE, why
            )
            await self._try_tier(UNSANDBOXED)
            return
        raise SandboxUnavailable(f"{REFUSAL}{why} (`python -m sandbox check` tells tier by tier)")

    async def _try_tier(self, tier: str) -> None:
        """Use this tier when a worker of it passes its self-test; raises `SandboxUnavailable` or `HostError`."""
        zygote = await ZygoteLink.start("plain", tier, self.limits, self._group)
        try:
            trial = await WorkerLink.start(zygote, self.limits)
        except BaseException:
            await zygote.close(self.limits.close_s)
            raise
        await trial.close()
        self._zygotes["plain"] = zygote
        self.tier = tier
        self.layers = zygote.layers

    # --- processes --------------------------------------------------------------------------------------------------

    async def _zygote(self, flavour: str) -> ZygoteLink:
        lock = self._starting.setdefault(flavour, asyncio.Lock())
        async with lock:
            zygote = self._zygotes.get(flavour)
            if zygote is not None and zygote.alive:
                return zygote
            if zygote is not None:
                del self._zygotes[flavour]
                await zygote.close(self.limits.close_s)
            self._check_open()
            if not self.tier:
                raise HostError("the sandbox host was not started; await start() first")
            zygote = await ZygoteLink.start(flavour, self.tier, self.limits, self._group)
            self._zygotes[flavour] = zygote
            return zygote

    async def _start_worker(self, version: Version) -> WorkerLink:
        await self._make_room(version)
        # Counted from here on: many that start at the same time must not all see the same free place.
        self._being_started.add(version.number)
        try:
            return await self._start_in(flavour_of(version.source))
        finally:
            self._being_started.discard(version.number)

    async def _start_in(self, flavour: str) -> WorkerLink:
        problems: list[str] = []
        # The tier is proven, so a failure now is a killed process or a passing shortage: try again, then say so.
        for _ in range(_ATTEMPTS):
            try:
                worker = await WorkerLink.start(await self._zygote(flavour), self.limits)
            except (HostError, SandboxUnavailable) as error:
                self._check_open()
                problems.append(str(error))
                continue
            self.counters.workers_started += 1
            return worker
        raise HostError(f"no worker could be started in {_ATTEMPTS} attempts: {'; '.join(dict.fromkeys(problems))}")

    async def _make_room(self, wanted_by: Version) -> None:
        """Back-pressure: at most `max_workers` live; idle versions without episodes are put to sleep first."""
        ends_at = asyncio.get_running_loop().time() + self.limits.room_s
        while self._live_workers(wanted_by) >= self.limits.max_workers:
            idle = [v for v in self._versions.values() if v is not wanted_by and v.worker is not None and v.idle]
            if idle:
                await min(idle, key=lambda version: version.last_used).drop_worker()
                continue
            if asyncio.get_running_loop().time() > ends_at:
                raise HostError(
                    f"all {self.limits.max_workers} workers are busy; close environments or raise max_workers"
                )
            await asyncio.sleep(0.01)

    def _live_workers(self, apart_from: Version) -> int:
        held = (
            v.worker is not None or v.number in self._being_started
            for v in self._versions.values()
            if v is not apart_from
        )
        return sum(held)

    def _check_open(self) -> None:
        if self._closed:
            raise HostError("the sandbox is closed")

    # --- calls ------------------------------------------------------------------------------------------------------

    async def load(self, source: str) -> EnvironmentHandle:
        """Compile and run a program's module body in a worker of its own; raises `EnvironmentFault`."""
        self._check_open()
        self._check_source(source)
        self._next_version += 1
        version = Version(self._next_version, source, self.limits, self._start_worker, self.counters)
        self._versions[version.number] = version
        try:
            await version.ensure_worker()
        except BaseException:
            self._versions.pop(version.number, None)
            await asyncio.shield(version.close())
            raise
        return EnvironmentHandle(version.number, version.class_name, self._close_soon)

    def _check_source(self, source: str) -> None:
        if not isinstance(source, str):
            raise HostError(f"the source must be str, not {type(source).__name__}")
        try:
            size = len(source.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise EnvironmentFault("contract", "parse", f"the source is not UTF-8 text (at {error.start})") from error
        if size > self.limits.source_bytes:
            raise EnvironmentFault("contract", "parse", f"{size} bytes of source, more than {self.limits.source_bytes}")
        if "\0" in source:
            raise EnvironmentFault("contract", "parse", "the source holds NUL characters")
        if not source.strip():
            raise EnvironmentFault("contract", "parse", "the source is empty")

    async def reset_many(
        self, requests: Sequence[tuple[EnvironmentHandle, int, int]]
    ) -> list[Opened | EnvironmentFault]:
        """Open one episode per (environment, seed, max_turns), answers in order; raises `HostError`."""
        requests = list(requests)
        found = []
        for environment, seed, max_turns in requests:
            self._check_whole(seed, 0, 2**_SEED_BITS - 1, "seed")
            self._check_whole(max_turns, 1, 100_000, "max_turns")
            found.append(self._version(environment.number))
        gather = Gather(len(found))
        for place, (version, (_, seed, max_turns)) in enumerate(zip(found, requests, strict=True)):
            version.submit(["reset", version.new_episode_number(), seed, max_turns], gather, place)
        for version in dict.fromkeys(found):
            version.pump()
        try:
            return await gather.answers()
        except BaseException:
            # Nobody will learn the handles of those that did open.
            await self.end_many([answer.episode for answer in gather.found() if isinstance(answer, Opened)])
            raise

    async def step_many(self, requests: Sequence[tuple[EpisodeHandle, str]]) -> list[Stepped | EnvironmentFault]:
        """One action per episode, answers in order; raises `HostError` for an episode that is over, unknown or busy."""
        self._check_open()
        requests = list(requests)
        gather = Gather(len(requests))
        claimed: list[tuple[Version, EpisodeRecord, Job]] = []
        try:
            for place, (episode, action) in enumerate(requests):
                version = self._versions.get(episode.environment) or self._version(episode.environment)
                item = ["step", episode.number, self._check_action(action)]
                record = self._claim(version, episode)
                claimed.append((version, record, Job(item, gather, place, record)))
        except BaseException:
            # All or nothing: a senseless request among them leaves every episode as it was.
            for _, record, _ in claimed:
                record.busy = False
            raise
        touched: dict[int, Version] = {}
        for version, record, job in claimed:
            if record.fault is None:
                version.enqueue(job)
                touched[version.number] = version
            else:
                record.busy = False
                gather.put(job.place, record.fault)
        for version in touched.values():
            version.pump()
        return await gather.answers()

    @staticmethod
    def _claim(version: Version, episode: EpisodeHandle) -> EpisodeRecord:
        """Mark an episode as being stepped; raises `HostError` when it cannot be."""
        record = version.episodes.get(episode.number)
        if record is None:
            raise HostError(f"episode {episode.number} of environment {episode.environment} was ended or never opened")
        if record.busy:
            raise HostError(f"episode {episode.number} already has a step in flight")
        if record.over:
            raise HostError(f"episode {episode.number} is over; it cannot be stepped")
        record.busy = True
        return record

    async def solution(self, environment: EnvironmentHandle, seed: int, max_turns: int) -> list[str] | None:
        """What `solution()` returns after `reset(seed)`: the actions as written; None when there is no usable answer."""
        self._check_whole(seed, 0, 2**_SEED_BITS - 1, "seed")
        self._check_whole(max_turns, 1, 100_000, "max_turns")
        answer = await self._one(environment, ["solution", seed, max_turns])
        return None if isinstance(answer, EnvironmentFault) else answer

    async def measure(self, environment: EnvironmentHandle) -> dict[str, float]:
        """Measures of the source: lines, state variables."""
        answer = await self._one(environment, ["measure"])
        return {} if isinstance(answer, EnvironmentFault) else answer

    async def _one(self, environment: EnvironmentHandle, item: list[Any]) -> Any:
        gather = Gather(1)
        version = self._version(environment.number)
        version.submit(item, gather)
        version.pump()
        return (await gather.answers())[0]

    async def end_many(self, episodes: Sequence[EpisodeHandle]) -> None:
        """Forget episodes; unknown ones are ignored. Does not wait for the worker."""
        touched: dict[int, Version] = {}
        for episode in episodes:
            version = self._versions.get(episode.environment)
            if version is None or version.closed or version.episodes.pop(episode.number, None) is None:
                continue
            if version.worker is not None:
                version.submit(["end", episode.number])
                touched[version.number] = version
        for version in touched.values():
            version.pump()

    async def examine(self, source: str, kind: str, seeds: Sequence[int], guess: GuessRule) -> Report:
        """The gates `parse` to `solvable` (see `sandbox.gates`)."""
        from sandbox.gates import examine

        return await examine(self, source, kind, seeds, guess)

    def environments(self) -> list[EnvironmentHandle]:
        """Handles of all open environments."""
        return [EnvironmentHandle(v.number, v.class_name, self._close_soon) for v in self._versions.values()]

    async def drop_workers(self) -> None:
        """End every worker but keep the episodes: the next call rebuilds them by replay (memory pressure, tests)."""
        for version in list(self._versions.values()):
            await version.drop_worker()

    async def time_a_fork(self, source: str) -> float:
        """Seconds from asking the zygote that serves `source` to a worker that passed its self-test."""
        zygote = await self._zygote(flavour_of(source))
        started = time.perf_counter()
        worker = await WorkerLink.start(zygote, self.limits)
        elapsed = time.perf_counter() - started
        await worker.close()
        return elapsed

    def statistics(self) -> dict[str, int]:
        """Counts since the start, and what is open now."""
        live = sum(1 for version in self._versions.values() if version.worker is not None)
        episodes = sum(len(version.episodes) for version in self._versions.values())
        return {**self.counters.as_dict(), "versions": len(self._versions), "workers": live, "episodes": episodes}

    # --- ends -------------------------------------------------------------------------------------------------------

    def _close_soon(self, number: int) -> None:
        version = self._versions.pop(number, None)
        if version is not None:
            version.closed = True
            task = asyncio.get_running_loop().create_task(version.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close_environment(self, environment: EnvironmentHandle) -> None:
        """Stop the worker of one version and wait for its end."""
        version = self._versions.pop(environment.number, None)
        if version is not None:
            await version.close()

    async def close(self) -> None:
        """End every process of this host and wait for the proof."""
        self._closed = True
        versions, self._versions = list(self._versions.values()), {}
        for version in versions:
            version.closed = True
        await asyncio.gather(*(version.close(_CLOSED) for version in versions), *self._closing, return_exceptions=True)
        zygotes, self._zygotes = list(self._zygotes.values()), {}
        for zygote in zygotes:
            await zygote.close(self.limits.close_s)
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)  # it may wait for the kernel, and others use this loop

    # --- checks -----------------------------------------------------------------------------------------------------

    def _version(self, number: int) -> Version:
        self._check_open()
        version = self._versions.get(number)
        if version is None:
            raise HostError(f"environment {number} is closed or belongs to another sandbox")
        return version

    @staticmethod
    def _check_whole(value: int, low: int, high: int, name: str) -> None:
        if type(value) is not int or not low <= value <= high:
            # The interpreter itself refuses to write an integer of thousands of digits.
            huge = isinstance(value, int) and value.bit_length() > 512
            shown = f"one of {value.bit_length()} bits" if huge else repr(value)
            raise HostError(f"{name} must be an int in [{low}, {high}], not {shown}")

    def _check_action(self, action: str) -> str:
        """The action, lone surrogates replaced: a model's text must not be able to break a frame."""
        if type(action) is not str:
            raise HostError(f"an action must be str, not {type(action).__name__}")
        if len(action) > self.limits.action_chars:
            raise HostError(f"an action of {len(action)} characters exceeds the limit of {self.limits.action_chars}")
        return action if action.isascii() else action.encode("utf-8", "replace").decode("utf-8")
