"""One environment version on the host: its queue of calls, its episodes, its worker, and their recovery by replay.

Calls that wait for the same worker are gathered into one frame. When the worker is lost, the call it was in gets the
fault, every other episode is rebuilt in a new worker from its seed and actions, and each replayed reply is compared with
the recorded one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox import replies
from sandbox.errors import EnvironmentFault, FaultKind, HostError
from sandbox.limits import Limits
from sandbox.results import EpisodeHandle, Opened, Stepped
from sandbox.worker_link import WorkerLink, WorkerLost

_ATTEMPTS = 3


@dataclass
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


@dataclass(slots=True)
class Job:
    """One call waiting for its reply. `answer` is None for calls nobody waits for."""

    item: list[Any]
    answer: asyncio.Future[Any] | None
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


def _fingerprint(result: Opened | Stepped) -> int:
    if isinstance(result, Opened):
        return hash((result.observation, tuple(result.info.items())))
    flags = (result.terminated, result.truncated)
    return hash((result.observation, result.reward, flags, tuple(result.info.items())))


def fault_of_loss(lost: WorkerLost, hard_s: float) -> EnvironmentFault:
    """The typed fault of the call a worker was lost in."""
    kind: FaultKind
    if lost.cause == "timeout":
        kind, message = "timeout", f"did not end within {hard_s:g} s and did not react; the worker was killed"
    elif lost.cause == "protocol":
        kind, message = "contract", f"the worker sent something that is no valid reply: {lost.detail}"
    elif lost.status is None:
        kind, message = "crash", "the worker ended"
    elif lost.status < 0:
        kind, message = "crash", f"the worker was ended by signal {-lost.status}"
    elif lost.status == 70:
        kind, message = "crash", "the worker broke down"
    else:
        kind, message = "exit", f"the program ended its process with code {lost.status}"
    return EnvironmentFault(kind, lost.stage, message)


class Version:
    """One loaded program."""

    def __init__(
        self,
        number: int,
        source: str,
        limits: Limits,
        start_worker: Callable[[Version], Awaitable[WorkerLink]],
        counters: Counters,
    ) -> None:
        """`start_worker` gives a fresh sealed worker of the right flavour, or raises."""
        self.number = number
        self.source = source
        self.class_name = ""
        self.limits = limits
        self.counters = counters
        self.episodes: dict[int, EpisodeRecord] = {}
        self.worker: WorkerLink | None = None
        self.closed = False
        self.last_used = 0.0
        self._start_worker = start_worker
        self._queue: deque[Job] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._next_episode = 0

    # --- calls ------------------------------------------------------------------------------------------------------

    def submit(self, item: list[Any], *, wait: bool = True) -> asyncio.Future[Any] | None:
        """Queue one call; the future gives a result value or an `EnvironmentFault` value, or raises `HostError`."""
        if self.closed:
            raise HostError("the environment handle is closed")
        loop = asyncio.get_running_loop()
        answer = loop.create_future() if wait else None
        self._queue.append(Job(item, answer))
        if self._drain is None or self._drain.done():
            self._drain = loop.create_task(self._drain_queue())
        return answer

    def new_episode_number(self) -> int:
        """A number never used before in this version."""
        self._next_episode += 1
        return self._next_episode

    @property
    def idle(self) -> bool:
        """True when its worker could be put to sleep without loss."""
        return not self.episodes and not self._queue and (self._drain is None or self._drain.done())

    async def _drain_queue(self) -> None:
        while self._queue:
            jobs = [self._queue.popleft() for _ in range(min(len(self._queue), self.limits.batch_items))]
            try:
                await self._run(jobs)
            except WorkerLost as lost:
                await self._recover(jobs, lost)
            except EnvironmentFault as fault:
                # The program no longer loads: the version is lost, not the machinery.
                self._settle_all(jobs, fault)
            except asyncio.CancelledError:
                self._fail([*jobs, *self._queue], HostError("the sandbox was closed"))
                self._queue.clear()
                raise
            except Exception as error:  # noqa: BLE001
                # Whatever the machinery met, the callers must hear of it instead of waiting for ever.
                self._fail(jobs, error)

    async def _run(self, jobs: list[Job]) -> None:
        worker = await self.ensure_worker()
        if any(record.fault is not None for record in self.episodes.values()):
            jobs = self._without_faulted(jobs)
        self.counters.frames += 1
        self.counters.calls += len(jobs)
        answers = await worker.call([job.item for job in jobs], self.limits.step_hard_s)
        self.last_used = asyncio.get_running_loop().time()
        for job, answer in zip(jobs, answers, strict=True):
            self._settle(job, self._judge(job.item, answer))

    def _without_faulted(self, jobs: list[Job]) -> list[Job]:
        """Settle steps of episodes that a replay has just found faulty; the rest still runs."""
        left: list[Job] = []
        for job in jobs:
            record = self.episodes.get(job.item[1]) if job.item[0] == "step" else None
            if record is not None and record.fault is not None:
                self._settle(job, record.fault)
            else:
                left.append(job)
        return left

    def _judge(self, item: list[Any], answer: Any) -> Any:
        """Result or fault of one reply; keeps the episode's record."""
        try:
            fault = replies.fault_of(answer, self.limits)
            if fault is not None:
                return fault
            if item[0] == "step":
                return replies.stepped_of(answer, self.limits)
            if item[0] == "reset":
                return replies.opened_of(answer, EpisodeHandle(self.number, item[1]), self.limits)
            if item[0] == "solution":
                return replies.solution_of(answer, self.limits)
            if item[0] == "measure":
                return replies.measures_of(answer, self.limits)
        except replies.BadReply as error:
            return EnvironmentFault("contract", item[0], f"the worker's reply was refused: {error}")
        return None

    def _settle(self, job: Job, result: Any) -> None:
        item = job.item
        if isinstance(result, EnvironmentFault):
            self.counters.faults += 1
        if item[0] == "reset" and isinstance(result, Opened):
            self.episodes[item[1]] = EpisodeRecord(item[2], item[3], _fingerprint(result))
        elif item[0] == "step":
            record = self.episodes.get(item[1])
            if record is not None:
                record.busy = False
                if isinstance(result, Stepped):
                    record.actions.append(item[2])
                    record.stepped.append(_fingerprint(result))
                    record.over = result.terminated or result.truncated
                else:
                    record.fault = result
        if job.answer is not None and not job.answer.done():
            job.answer.set_result(result)
        elif job.answer is not None and isinstance(result, Opened):
            # The caller was cancelled and will never learn the handle.
            self.episodes.pop(item[1], None)
            self.submit(["end", item[1]], wait=False)

    def _settle_all(self, jobs: list[Job], fault: EnvironmentFault) -> None:
        for job in jobs:
            self._settle(job, fault)

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        for job in jobs:
            record = self.episodes.get(job.item[1]) if job.item[0] == "step" else None
            if record is not None:
                record.busy = False
            if job.answer is not None and not job.answer.done():
                job.answer.set_exception(error)

    # --- worker -----------------------------------------------------------------------------------------------------

    async def ensure_worker(self) -> WorkerLink:
        """The live worker with the program loaded and all episodes in it; raises `EnvironmentFault` or `HostError`."""
        if self.worker is not None and self.worker.usable:
            return self.worker
        killed = 0
        while killed < _ATTEMPTS:
            worker = await self._start_worker(self)
            self.worker = worker
            try:
                await self._load(worker)
                await self._replay(worker)
            except WorkerLost as lost:
                # Each loss that is not from outside has put a fault on one episode, so this ends.
                self.counters.workers_lost += 1
                killed += 1 if lost.from_outside else 0
                self.worker = None
                continue
            return worker
        raise HostError(f"the worker was killed from outside {_ATTEMPTS} times while starting")

    async def _load(self, worker: WorkerLink) -> None:
        hard_s = self.limits.load_s + self.limits.hard_margin_s
        try:
            answer = (await worker.call([["load", self.source]], hard_s))[0]
            fault = replies.fault_of(answer, self.limits)
            name = "" if fault is not None else replies.class_name_of(answer)
        except replies.BadReply as error:
            fault = EnvironmentFault("contract", "load", f"the worker's reply was refused: {error}")
        except WorkerLost as lost:
            if lost.from_outside:
                raise
            self.counters.workers_lost += 1
            fault = fault_of_loss(lost, hard_s)
        if fault is not None:
            await self.drop_worker()
            raise fault
        self.class_name = name

    async def _replay(self, worker: WorkerLink) -> None:
        """Rebuild every open episode; one that differs or fails gets the fault `nondeterministic`."""
        for number, record in list(self.episodes.items()):
            if record.fault is not None or record.over:
                continue
            self.counters.episodes_replayed += 1
            items: list[list[Any]] = [["reset", number, record.seed, record.max_turns]]
            items += [["step", number, action] for action in record.actions]
            expected = [record.opened, *record.stepped]
            try:
                for start in range(0, len(items), self.limits.batch_items):
                    part = items[start : start + self.limits.batch_items]
                    answers = await worker.call(part, self.limits.step_hard_s)
                    for item, answer, fingerprint in zip(part, answers, expected[start:], strict=False):
                        result = self._judge(item, answer)
                        if not isinstance(result, Opened | Stepped) or _fingerprint(result) != fingerprint:
                            record.fault = record.fault or _different(item[0])
            except WorkerLost as lost:
                if not lost.from_outside:
                    record.fault = _different(lost.stage)
                raise

    async def _recover(self, jobs: list[Job], lost: WorkerLost) -> None:
        """After a loss in a frame: the culprit's call gets its fault, the others run again."""
        self.counters.workers_lost += 1
        await self.drop_worker()
        again: list[Job] = []
        for index, job in enumerate(jobs):
            if not lost.from_outside and index == min(lost.index, len(jobs) - 1):
                self._settle(job, fault_of_loss(lost, self.limits.step_hard_s))
                continue
            # Nothing inside can send SIGKILL: the machine or an operator did. Once is bad luck, thrice is a report.
            job.attempts += 1 if lost.from_outside else 0
            if job.attempts >= _ATTEMPTS:
                self._fail([job], HostError(f"the worker was killed from outside {_ATTEMPTS} times during a call"))
            else:
                again.append(job)
        self._queue.extendleft(reversed(again))

    async def drop_worker(self) -> None:
        """End the worker, keep the records."""
        worker, self.worker = self.worker, None
        if worker is not None:
            await worker.close()

    async def close(self) -> None:
        """End everything of this version."""
        self.closed = True
        if self._drain is not None and not self._drain.done():
            self._drain.cancel()
            await asyncio.wait((self._drain,))
        self._fail(list(self._queue), HostError("the environment handle was closed"))
        self._queue.clear()
        self.episodes.clear()
        await self.drop_worker()


def _different(stage: str) -> EnvironmentFault:
    return EnvironmentFault(
        "nondeterministic", stage, "replaying the episode's seed and actions in a new worker gave a different reply"
    )
