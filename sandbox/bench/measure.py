"""The measurements. Each returns plain numbers; `report` compares them with what issue "sandbox/" asks for."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from sandbox.bench.programs import HANGING, REALISTIC, TRIVIAL
from sandbox.errors import HostError
from sandbox.host import SandboxHost
from sandbox.inside.modules import provided_names
from sandbox.limits import Limits
from sandbox.results import EpisodeHandle, Opened

_ACTIONS = (
    r"\boxed{move north}",
    r"\boxed{call}",
    r"\boxed{move east}",
    r"\boxed{move south}",
    r"\boxed{move west}",
    "hm",
)


def in_process(source: str, class_name: str, seconds: float) -> float:
    """Steps per second of one instance in this process: the upper limit."""
    names = provided_names()
    exec(compile(source, "<benchmark>", "exec"), names)  # noqa: S102 - our own two programs, never generated ones
    instance = names[class_name]()
    instance.reset(seed=1)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(50):
            for action in _ACTIONS:
                if instance.step(action)[2]:
                    instance.reset(seed=steps)
                steps += 1
    return steps / (time.perf_counter() - started)


async def _open(host: SandboxHost, source: str, versions: int, episodes: int) -> list[EpisodeHandle]:
    handles = [await host.load(source) for _ in range(versions)]
    requests = [(handle, seed, 10**5) for seed in range(episodes) for handle in handles]
    opened = await host.reset_many(requests)
    return [answer.episode for answer in opened if isinstance(answer, Opened)]


async def sandboxed(host: SandboxHost, source: str, versions: int, episodes: int, seconds: float) -> float:
    """Steps per second of `episodes` episodes in each of `versions` workers, all stepped together."""
    live = await _open(host, source, versions, episodes)
    if len(live) != versions * episodes:
        raise HostError("a benchmark episode did not open")
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        action = _ACTIONS[(steps // len(live)) % len(_ACTIONS)]
        answers = await host.step_many([(episode, action) for episode in live])
        steps += len(answers)
        ended = [place for place, answer in enumerate(answers) if isinstance(answer, Exception) or answer.terminated]
        for place in ended:
            await host.end_many([live[place]])
        if ended:
            live = [episode for place, episode in enumerate(live) if place not in set(ended)] or live[:1]
    rate = steps / (time.perf_counter() - started)
    await _close_all(host)
    return rate


async def pipelined(host: SandboxHost, source: str, versions: int, episodes: int, seconds: float) -> float:
    """Like `sandboxed`, but each version is driven by its own task, so that workers and host overlap."""
    live = await _open(host, source, versions, episodes)
    ends_at = time.perf_counter() + seconds

    async def drive(mine: list[EpisodeHandle]) -> int:
        steps = 0
        while time.perf_counter() < ends_at and mine:
            action = _ACTIONS[(steps // len(mine)) % len(_ACTIONS)]
            answers = await host.step_many([(episode, action) for episode in mine])
            steps += len(answers)
            pairs = zip(mine, answers, strict=True)
            mine = [episode for episode, answer in pairs if not isinstance(answer, Exception) and not answer.terminated]
        return steps

    groups: dict[int, list[EpisodeHandle]] = {}
    for episode in live:
        groups.setdefault(episode.environment, []).append(episode)
    started = time.perf_counter()
    counts = await asyncio.gather(*(drive(mine) for mine in groups.values()))
    rate = sum(counts) / (time.perf_counter() - started)
    await _close_all(host)
    return rate


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
    await _open(host, REALISTIC, 1, 16)
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
    live = await _open(host, REALISTIC, 1, 32)
    for turn in range(10):
        await host.step_many([(episode, _ACTIONS[1 if turn % 2 else 5]) for episode in live])
    await host.drop_workers()
    started = time.perf_counter()
    answers = await host.step_many([(episode, _ACTIONS[1]) for episode in live])
    elapsed = time.perf_counter() - started
    if any(isinstance(answer, Exception) for answer in answers):
        raise HostError("a replayed episode answered differently")
    await _close_all(host)
    return elapsed * 1_000


async def hung_neighbour_cost(seconds: float) -> float:
    """Share of speed one environment loses while another one hangs (its worker gets its own core's share at most)."""
    host = SandboxHost(Limits(step_soft_s=3 * seconds + 5, step_hard_s=4 * seconds + 6))
    await host.start()
    alone = await sandboxed(host, REALISTIC, 1, 8, seconds)
    hung = await _open(host, HANGING, 1, 1)
    task = asyncio.ensure_future(host.step_many([(hung[0], "x")]))
    await asyncio.sleep(0.05)
    handle = await host.load(REALISTIC)
    opened = await host.reset_many([(handle, seed, 10**5) for seed in range(8)])
    live = [answer.episode for answer in opened if isinstance(answer, Opened)]
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        steps += len(await host.step_many([(episode, "hm") for episode in live]))
    beside = steps / (time.perf_counter() - started)
    await host.close()
    await asyncio.gather(task, return_exceptions=True)
    return 1 - beside / alone


def run(seconds: float = 1.0, report: Callable[[str, float], None] | None = None) -> dict[str, float]:
    """Every measurement, name to value; `report` hears of each as it is made."""
    found: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        found[name] = value
        if report is not None:
            report(name, value)

    async def all_of_them() -> None:
        host = SandboxHost(Limits(max_workers=64))
        await host.start()
        try:
            for kind, source, class_name in (
                ("trivial", TRIVIAL, "TrivialEnv"),
                ("realistic", REALISTIC, "GridRescueEnv"),
            ):
                base = in_process(source, class_name, seconds)
                note(f"{kind} in process, steps/s", base)
                for words, work in _shapes(host, source, seconds):
                    rate = await work
                    note(f"{kind} {words}, steps/s", rate)
                    note(f"{kind} {words}, share of in process", rate / base)
            note("fork without numpy, ms", await fork_ms(host, TRIVIAL))
            note("fork with numpy, ms", await fork_ms(host, "import numpy\n" + TRIVIAL))
            note("worker private memory, MiB", await worker_private_mib(host))
            note("recovery of 32 episodes, ms", await recovery_ms(host))
        finally:
            await host.close()
        note("share lost beside a hung environment", await hung_neighbour_cost(seconds))

    asyncio.run(all_of_them())
    return found


def _shapes(host: SandboxHost, source: str, seconds: float) -> list[tuple[str, Coroutine[Any, Any, float]]]:
    return [
        ("unbatched", sandboxed(host, source, 1, 1, seconds)),
        ("batched 32", sandboxed(host, source, 1, 32, seconds)),
        ("16 workers x 16", pipelined(host, source, 16, 16, seconds)),
    ]
