"""The measurements. Each returns plain numbers; `report` compares them with what issue "sandbox/" asks for."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.bench.programs import HANGING, REALISTIC, TRIVIAL, Case
from sandbox.errors import EnvironmentFault, HostError
from sandbox.host import SandboxHost
from sandbox.inside.modules import provided_names
from sandbox.limits import Limits
from sandbox.results import EnvironmentHandle, EpisodeHandle, Opened

_SLICE_S = 0.2


class InProcess:
    """The same episodes in this process, without any boundary: the upper limit."""

    def __init__(self, case: Case, episodes: int) -> None:
        names = provided_names()
        exec(compile(case.source, "<benchmark>", "exec"), names)  # noqa: S102 - our own two programs, never generated ones
        self._instances = [names[case.class_name]() for _ in range(episodes)]
        for seed, instance in enumerate(self._instances):
            instance.reset(seed=seed)
        self._actions = case.actions
        self._turn = 0

    def rate(self, seconds: float) -> float:
        """Steps per second, every episode one step in turn."""
        steps, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            # A single episode steps too fast to look at the clock each time.
            for _ in range(max(1, 300 // len(self._instances))):
                action = self._actions[self._turn % len(self._actions)]
                self._turn += 1
                for instance in self._instances:
                    if instance.step(action)[2]:
                        instance.reset(seed=steps)
                    steps += 1
        return steps / (time.perf_counter() - started)


class Sandboxed:
    """Episodes of one program in sandboxed workers, each worker's episodes stepped together by a task of its own."""

    def __init__(
        self, host: SandboxHost, handles: list[EnvironmentHandle], episodes: int, actions: Sequence[str]
    ) -> None:
        """`episodes` per handle are kept open; one that ends is replaced."""
        self._host = host
        self._handles = handles
        self._episodes = episodes
        self._actions = actions
        self._live: dict[int, list[EpisodeHandle]] = {}
        self._seed = 0

    async def _fill(self, handle: EnvironmentHandle) -> list[EpisodeHandle]:
        live = self._live.setdefault(handle.number, [])
        while len(live) < self._episodes:
            seeds = range(self._seed, self._seed + self._episodes - len(live))
            self._seed += len(seeds)
            opened = await self._host.reset_many([(handle, seed, 10**5) for seed in seeds])
            live += [answer.episode for answer in opened if isinstance(answer, Opened)]
        return live

    async def _drive(self, handle: EnvironmentHandle, ends_at: float) -> int:
        steps, turn = 0, 0
        while time.perf_counter() < ends_at:
            live = await self._fill(handle)
            action = self._actions[turn % len(self._actions)]
            answers = await self._host.step_many([(episode, action) for episode in live])
            steps, turn = steps + len(answers), turn + 1
            ended = [e for e, a in zip(live, answers, strict=True) if isinstance(a, EnvironmentFault) or a.terminated]
            if ended:
                await self._host.end_many(ended)
                self._live[handle.number] = [episode for episode in live if episode not in ended]
        return steps

    async def rate(self, seconds: float) -> float:
        """Steps per second of all workers together."""
        for handle in self._handles:
            await self._fill(handle)
        started = time.perf_counter()
        counts = await asyncio.gather(*(self._drive(handle, started + seconds) for handle in self._handles))
        return sum(counts) / (time.perf_counter() - started)


async def compare(
    host: SandboxHost, case: Case, versions: int, episodes: int, rounds: int
) -> tuple[float, float, float]:
    """(steps/s in process, steps/s sandboxed, median ratio), measured in turns so that both see the same machine."""
    bare = InProcess(case, versions * episodes)
    handles = [await host.load(case.source) for _ in range(versions)]
    boxed = Sandboxed(host, handles, episodes, case.actions)
    await boxed.rate(_SLICE_S)
    pairs = [(bare.rate(_SLICE_S / 2), await boxed.rate(_SLICE_S), bare.rate(_SLICE_S / 2)) for _ in range(rounds)]
    await _close_all(host)
    ratios = [rate / ((before + after) / 2) for before, rate, after in pairs]
    in_process = statistics.median((before + after) / 2 for before, _, after in pairs)
    return in_process, statistics.median(rate for _, rate, _ in pairs), statistics.median(ratios)


async def _open(host: SandboxHost, source: str, versions: int, episodes: int) -> list[EpisodeHandle]:
    handles = [await host.load(source) for _ in range(versions)]
    requests = [(handle, seed, 10**5) for seed in range(episodes) for handle in handles]
    opened = await host.reset_many(requests)
    return [answer.episode for answer in opened if isinstance(answer, Opened)]


async def _close_all(host: SandboxHost) -> None:
    for handle in list(host.environments()):
        await host.close_environment(handle)


async def fork_ms(host: SandboxHost, source: str, times: int = 20) -> float:
    """Median milliseconds from asking the zygote to a worker that passed its self-test."""
    await _close_all(host)
    await host.load(source)
    measured = []
    for _ in range(times):
        measured.append(await host.time_a_fork(source) * 1_000)
    await _close_all(host)
    return statistics.median(measured)


async def worker_private_mib(host: SandboxHost) -> float:
    """Private memory of a worker with one realistic program and 16 episodes, in MiB."""
    before = set(_own_descendants())
    await _open(host, REALISTIC.source, 1, 16)
    (worker,) = set(_own_descendants()) - before
    private = 0
    for line in Path(f"/proc/{worker}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Private_"):
            private += int(line.split()[1])
    await _close_all(host)
    return private / 1024


def _own_descendants() -> list[int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found, pending = [], [os.getpid()]
    while pending:
        parent = pending.pop()
        children = [pid for pid, its in parents.items() if its == parent]
        found += children
        pending += children
    return found


async def recovery_ms(host: SandboxHost) -> float:
    """Milliseconds until 32 realistic episodes of 10 steps answer again after their worker was killed."""
    live = await _open(host, REALISTIC.source, 1, 32)
    for turn in range(10):
        await host.step_many([(episode, REALISTIC.actions[1 if turn % 2 else 5]) for episode in live])
    await host.drop_workers()
    started = time.perf_counter()
    answers = await host.step_many([(episode, REALISTIC.actions[1]) for episode in live])
    elapsed = time.perf_counter() - started
    if any(isinstance(answer, Exception) for answer in answers):
        raise HostError("a replayed episode answered differently")
    await _close_all(host)
    return elapsed * 1_000


async def hung_neighbour_cost(rounds: int) -> float:
    """Median share of speed that 8 episodes of one environment lose while another environment hangs."""
    slice_s = 2 * _SLICE_S
    host = SandboxHost(Limits(step_soft_s=1.5 * slice_s, step_hard_s=3 * slice_s))
    await host.start()
    boxed = Sandboxed(host, [await host.load(REALISTIC.source)], 8, REALISTIC.actions)
    hanging = await host.load(HANGING)
    await boxed.rate(slice_s)
    lost = []
    for _ in range(rounds):
        before = await boxed.rate(slice_s / 2)
        (opened,) = await host.reset_many([(hanging, 1, 10**5)])
        if not isinstance(opened, Opened):
            raise HostError("the hanging environment did not open")
        hung = asyncio.ensure_future(host.step_many([(opened.episode, "x")]))
        await asyncio.sleep(0.02)
        beside = await boxed.rate(slice_s)
        if hung.done():
            raise HostError("the hanging environment answered too early")
        await hung
        after = await boxed.rate(slice_s / 2)
        lost.append(1 - beside / ((before + after) / 2))
    await host.close()
    return statistics.median(lost)


def run(rounds: int = 9, report: Callable[[str, float], None] | None = None) -> dict[str, float]:
    """Every measurement, name to value; `report` hears of each as it is made. `rounds` of 0.4 s for each comparison."""
    found: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        found[name] = value
        if report is not None:
            report(name, value)

    async def all_of_them() -> None:
        host = SandboxHost(Limits(max_workers=64))
        await host.start()
        try:
            for case in (TRIVIAL, REALISTIC):
                for words, versions, episodes in _SHAPES:
                    bare, boxed, share = await compare(host, case, versions, episodes, rounds)
                    note(f"{case.name} {words}, in process, steps/s", bare)
                    note(f"{case.name} {words}, sandboxed, steps/s", boxed)
                    note(f"{case.name} {words}, share of in process", share)
            note("fork without numpy, ms", await fork_ms(host, TRIVIAL.source))
            note("fork with numpy, ms", await fork_ms(host, "import numpy\n" + TRIVIAL.source))
            note("worker private memory, MiB", await worker_private_mib(host))
            note("recovery of 32 episodes, ms", await recovery_ms(host))
        finally:
            await host.close()
        note("share lost beside a hung environment", await hung_neighbour_cost(rounds))

    asyncio.run(all_of_them())
    return found


# Words, workers, episodes per worker.
_SHAPES = (("unbatched", 1, 1), ("batched 32", 1, 32), ("16 workers x 16", 16, 16))
