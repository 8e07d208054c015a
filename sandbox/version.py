"""One environment version on the host: its queue of calls, its episodes, its worker, and their recovery by replay.

Calls that wait for the same worker are gathered into one frame. When the worker is lost, the call it was in gets the
fault, every other episode is rebuilt in a new worker from its seed and actions, and each replayed reply is compared with
the recorded one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from sandbox import replies
from sandbox.calls import Counters, EpisodeRecord, Gather, Job, fingerprint
from sandbox.errors import EnvironmentFault, FaultKind, HostError
from sandbox.limits import Limits
from sandbox.protocol import ProtocolError
from sandbox.results import EpisodeHandle, Opened, Stepped
from sandbox.worker_link import Reply, WorkerLink, WorkerLost

_ATTEMPTS = 3
# Fewer calls than this do not go out as a second frame.
_WORTH_A_FRAME = 16


def fault_of_loss(lost: WorkerLost, hard_s: float) -> EnvironmentFault:
    """The typed fault of the call a worker was lost in."""
    kind: FaultKind
    if lost.cause == "timeout":
        kind, message = "timeout", f"did not end within {hard_s:g} s and did not react; the worker was killed"
    elif lost.cause == "memory":
        kind, message = "memory", "the workers together reached their memory limit, and the kernel ended this one"
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
        self._flights: deque[list[Job]] = deque()
        self._carrier: WorkerLink | None = None
        self._repair: asyncio.Task[None] | None = None
        self._preparing = False
        self._next_episode = 0

    # --- calls ------------------------------------------------------------------------------------------------------

    def submit(self, item: list[Any], gather: Gather | None = None, place: int = 0) -> None:
        """Queue one call; `gather` gets a result, an `EnvironmentFault` value, or a failure. Raises `HostError` when closed.

        Nothing is sent before `pump`, so that calls submitted together travel together.
        """
        self.enqueue(Job(item, gather, place))

    def enqueue(self, job: Job) -> None:
        """Queue a call that is made already; raises `HostError` when closed."""
        if self.closed:
            raise HostError("the environment handle is closed")
        self._queue.append(job)

    def new_episode_number(self) -> int:
        """A number never used before in this version."""
        self._next_episode += 1
        return self._next_episode

    @property
    def idle(self) -> bool:
        """True when its worker could be put to sleep without loss."""
        busy = self.episodes or self._queue or self._flights or self._preparing
        return not busy and self._repair is None

    def pump(self) -> None:
        """Send what is queued; start or replace the worker first when there is none.

        Two frames may be on their way, so that the host looks at the answers of one while the worker does the other.
        What is submitted meanwhile gathers for the next frame.
        """
        if self._repair is not None or self.closed:
            return
        while size := self._next_frame():
            if self.worker is None or not self.worker.usable:
                self._repair = asyncio.get_running_loop().create_task(self._mend())
                return
            self._send(self.worker, size)

    def _next_frame(self) -> int:
        """How many calls to send now: half of a large queue first, the rest behind it; none while two frames are out."""
        queued, limit = len(self._queue), self.limits.batch_items
        if not self._flights:
            return min(queued if queued < 2 * _WORTH_A_FRAME else (queued + 1) // 2, limit)
        return min(queued, limit) if len(self._flights) == 1 and queued >= _WORTH_A_FRAME else 0

    def _send(self, worker: WorkerLink, size: int) -> None:
        jobs = [self._queue.popleft() for _ in range(size)]
        self.counters.frames += 1
        self.counters.calls += size
        self._flights.append(jobs)
        self._carrier = worker
        try:
            worker.request([job.item for job in jobs], self.limits.step_hard_s, self._on_answer)
        except ProtocolError as error:
            self._flights.pop()
            self._fail(jobs, HostError(f"a call has no form on the wire: {error}"))

    def _on_answer(self, reply: Reply | None, error: Exception | None) -> None:
        if self.closed:
            return  # close() tells the callers
        jobs = self._flights.popleft()
        loop = asyncio.get_running_loop()
        if reply is None or error is not None:
            # The frame behind it was not begun.
            self._queue.extendleft(reversed(self._take_flights()))
            self._repair = loop.create_task(self._mend(jobs, error))
            return
        self.last_used = loop.time()
        self.pump()  # first, so that the worker goes on while its answers are looked at
        for job, answer in zip(jobs, reply.answers, strict=True):
            try:
                result = self._judge(job.item, answer, reply.texts)
            except Exception as failure:  # noqa: BLE001
                # A reply nobody thought of: the caller must hear of it instead of waiting for ever.
                self._fail([job], HostError(f"judging a reply failed: {type(failure).__name__}: {failure}"))
            else:
                self._settle(job, result)
        self.pump()

    def _take_flights(self) -> list[Job]:
        jobs = [job for flight in self._flights for job in flight]
        self._flights.clear()
        return jobs

    async def _mend(self, jobs: Sequence[Job] = (), error: Exception | None = None) -> None:
        """Settle what a lost frame (`jobs`, `error`) means for its calls, then have a worker ready for what is queued."""
        try:
            if error is not None and self._carrier is not None:
                lost = await self._carrier.lost(error)
                await self.drop_worker()
                self._after_loss(jobs, lost)
                jobs = ()
            if self._queue:
                await self.ensure_worker()
                self._queue = deque(self._without_faulted(self._queue))
        except EnvironmentFault as fault:
            # The program no longer loads: the version is lost, not the machinery.
            self._settle_all(self._take_queue(), fault)
        except asyncio.CancelledError:
            self._fail([*jobs, *self._take_queue()], HostError("the environment was closed meanwhile"))
            raise
        except Exception as failure:  # noqa: BLE001
            # Whatever the machinery met, the callers must hear of it instead of waiting for ever.
            self._fail([*jobs, *self._take_queue()], failure)
        finally:
            self._repair = None
        self.pump()

    def _take_queue(self) -> list[Job]:
        jobs = list(self._queue)
        self._queue.clear()
        return jobs

    def _without_faulted(self, jobs: Iterable[Job]) -> list[Job]:
        """Settle steps of episodes that a replay has just found faulty; the rest still runs."""
        left: list[Job] = []
        for job in jobs:
            if job.record is not None and job.record.fault is not None:
                self._settle(job, job.record.fault)
            else:
                left.append(job)
        return left

    def _judge(self, item: list[Any], answer: Any, texts: replies.Texts) -> Any:
        """Result or fault of one reply."""
        try:
            if item[0] == "step" and type(answer) is list and answer and answer[0] == "ok":
                return replies.stepped_of(answer, texts, self.limits)
            fault = replies.fault_of(answer, self.limits)
            if fault is not None:
                return fault
            if item[0] == "reset":
                return replies.opened_of(answer, texts, EpisodeHandle(self.number, item[1]), self.limits)
            if item[0] == "solution":
                return replies.solution_of(answer, self.limits)
            if item[0] == "measure":
                return replies.measures_of(answer, self.limits)
        except replies.BadReply as error:
            return EnvironmentFault("contract", item[0], f"the worker's reply was refused: {error}")
        return None

    def _settle(self, job: Job, result: Any) -> None:
        """Keep the episode's record, and tell who waits."""
        item, gather, record = job.item, job.gather, job.record
        if record is not None and type(result) is Stepped:
            record.add(item[2], result)
        elif type(result) is EnvironmentFault:
            self.counters.faults += 1
            if record is not None:
                record.busy = False
                record.fault = result
        elif type(result) is Opened:
            if gather is None or gather.abandoned:
                # The caller will never learn the handle.
                if not self.closed:
                    self.submit(["end", item[1]])
            else:
                self.episodes[item[1]] = EpisodeRecord(item[2], item[3], fingerprint(result))
        if gather is not None:
            gather.put(job.place, result)

    def _settle_all(self, jobs: list[Job], fault: EnvironmentFault) -> None:
        for job in jobs:
            self._settle(job, fault)

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        for job in jobs:
            if job.record is not None:
                job.record.busy = False
            if job.gather is not None:
                job.gather.fail(error)

    # --- worker -----------------------------------------------------------------------------------------------------

    async def ensure_worker(self) -> WorkerLink:
        """The live worker with the program loaded and all episodes in it; raises `EnvironmentFault` or `HostError`."""
        if self.worker is not None and self.worker.usable:
            return self.worker
        # One that ended between calls (a program's alarm can do that) still holds a socket and a page here.
        await self.drop_worker()
        # While it loads it looks idle, but must not be put to sleep to make room for another.
        self._preparing = True
        try:
            return await self._prepared()
        finally:
            self._preparing = False

    async def _prepared(self) -> WorkerLink:
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
            answer = (await worker.call([["load", self.source]], hard_s)).answers[0]
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
                    reply = await worker.call(part, self.limits.step_hard_s)
                    for item, answer, expected_print in zip(part, reply.answers, expected[start:], strict=False):
                        result = self._judge(item, answer, reply.texts)
                        if not isinstance(result, Opened | Stepped) or fingerprint(result) != expected_print:
                            record.fault = record.fault or _different(item[0])
            except WorkerLost as lost:
                if not lost.from_outside:
                    record.fault = _different(lost.stage)
                raise

    def _after_loss(self, jobs: Sequence[Job], lost: WorkerLost) -> None:
        """After a loss in a frame: the culprit's call gets its fault, the others go back to the head of the queue."""
        self.counters.workers_lost += 1
        again: list[Job] = []
        for index, job in enumerate(jobs):
            if not lost.from_outside and index == min(lost.index, len(jobs) - 1):
                self._settle(job, fault_of_loss(lost, self.limits.step_hard_s))
                continue
            # Nothing inside can send SIGKILL: the machine or an operator did. Once is bad luck, thrice is a report.
            job.attempts += 1 if lost.from_outside else 0
            if job.attempts >= _ATTEMPTS:
                self._fail(
                    [job],
                    HostError(f"the worker was killed from outside (out of memory?) {_ATTEMPTS} times during a call"),
                )
            else:
                again.append(job)
        self._queue.extendleft(reversed(again))

    async def drop_worker(self) -> None:
        """End the worker, keep the records."""
        worker, self.worker = self.worker, None
        if worker is not None:
            await worker.close()

    async def close(self, reason: str = "the environment handle was closed") -> None:
        """End everything of this version; calls that still wait get `HostError` with this reason."""
        self.closed = True
        self._fail([*self._take_flights(), *self._take_queue()], HostError(reason))
        if self._repair is not None:
            self._repair.cancel()
            await asyncio.wait((self._repair,))
        self.episodes.clear()
        await self.drop_worker()


def _different(stage: str) -> EnvironmentFault:
    return EnvironmentFault(
        "nondeterministic", stage, "replaying the episode's seed and actions in a new worker gave a different reply"
    )
