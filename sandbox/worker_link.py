"""Host side of one worker: frames answered in order, one deadline per call, the zygote's word as the proof of death."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, NamedTuple

from sandbox.errors import HostError, SandboxUnavailable
from sandbox.isolation.tiers import UNSANDBOXED
from sandbox.limits import Limits
from sandbox.patience import Patience
from sandbox.protocol import HEADER_BYTES, ProtocolError, body_length, decode_body, encode_frame, split_body
from sandbox.replies import Texts
from sandbox.zygote_link import ZygoteLink

_PROGRESS = struct.Struct("<III")
_STAGES = ("load", "parse", "load", "reset", "step", "end", "solution", "measure")
_CHUNK_BYTES = 1 << 16
_INCOMPLETE: Final = object()
# Polling needs a processor of its own.
_MAY_SPIN = len(os.sched_getaffinity(0)) > 1
_SPIN_S = 1e-3

AnswerHandler = Callable[[Any, Exception | None], None]
"""Hears of one request: its `Reply`, or None and an error that `WorkerLink.lost` explains."""


class Reply(NamedTuple):
    """What a worker answered: one value for each call, in order (or its greeting), and the observations they refer to."""

    answers: Any
    texts: Texts


class _Expected(NamedTuple):
    """A frame on its way: who hears of it, bounds of its reply, and what that must carry (`number` 0: the greeting)."""

    handler: AnswerHandler
    most_bytes: int
    most_commas: int
    number: int = 0
    calls: int = 0

    def answers_in(self, message: Any) -> Any:
        """The answers of a reply, or the whole greeting; raises `ProtocolError` for what cannot be the reply."""
        if not self.number:
            return message
        if type(message) is not list or len(message) != 2 or message[0] != self.number:
            raise ProtocolError("the reply does not belong to the request")
        if type(message[1]) is not list or len(message[1]) != self.calls:
            raise ProtocolError("the reply has the wrong number of answers")
        return message[1]


class WorkerLost(Exception):
    """The worker is gone, confirmed. `cause`: `timeout`, `ended`, `memory` or `protocol`; `index`: the call it was in."""

    def __init__(self, cause: str, index: int, stage: str, status: int | None, detail: str = "") -> None:
        """`status`: exit code, negative for a signal, None when unknown."""
        super().__init__(cause, index, stage, status, detail)
        self.cause = cause
        self.index = index
        self.stage = stage
        self.status = status
        self.detail = detail

    @property
    def from_outside(self) -> bool:
        """True when the machine or an operator killed it: nothing inside can send SIGKILL, and we did not."""
        return self.cause == "ended" and self.status in (None, -9)


class WorkerLink:
    """One live worker process."""

    def __init__(self, zygote: ZygoteLink, pid: int, channel: socket.socket, page: mmap.mmap, limits: Limits) -> None:
        """Use `start`."""
        self._zygote = zygote
        self._pid = pid
        self._channel = channel
        self._page = page
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._waiting: deque[_Expected] = deque()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._sequence = 0
        self._status: int | None = None
        self._closed = False
        self._violated = False
        self._patience = Patience()
        self._watch = _Watch(self)
        self._loop.add_reader(channel.fileno(), self._on_readable)

    @classmethod
    async def start(cls, zygote: ZygoteLink, limits: Limits) -> WorkerLink:
        """Fork a worker and read its self-test; raises `SandboxUnavailable` unless every answer is `denied`."""
        pid, channel, page = await zygote.fork()
        link = cls(zygote, pid, channel, page, limits)
        first: asyncio.Future[Any] = link._loop.create_future()
        link._expect(_Expected(_into(first), 65_536, 1_000))
        try:
            hello = (await asyncio.wait_for(first, limits.spawn_s)).answers
            answers = hello.get("self_test") if isinstance(hello, dict) else None
            if zygote.tier == UNSANDBOXED and answers == {}:
                return link
            if not isinstance(answers, dict) or not answers or set(answers.values()) != {"denied"}:
                raise SandboxUnavailable(f"the {zygote.tier} tier does not isolate: {_complaint(hello)}")
        except (TimeoutError, ProtocolError, EOFError) as error:
            await link.close()
            raise HostError(f"a worker failed to start: {type(error).__name__}: {error}") from error
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def usable(self) -> bool:
        """False once the worker has gone or is being closed; one that broke the protocol is still to be blamed for it."""
        return not self._closed and (self._violated or not self._gone.done())

    # --- frames -----------------------------------------------------------------------------------------------------

    def request(self, items: list[list[Any]], hard_s: float, on_answer: AnswerHandler) -> None:
        """Send one frame of calls, each bounded by `hard_s` seconds; the worker does frames one after the other.

        `on_answer` is called once, from the event loop or at once: with the reply, or with what `lost` wants.
        After an error the frames behind it are forgotten: none of their calls was begun.
        """
        if self._violated:
            on_answer(None, ProtocolError("bytes nobody asked for"))
        elif self._gone.done():
            on_answer(None, EOFError("the worker has ended"))
        else:
            self._sequence += 1
            data = encode_frame([self._sequence, items])
            self._watch.begin(hard_s, len(items))
            calls, limits = len(items), self._limits
            bounds = limits.reply_bytes(calls), limits.reply_commas(calls)
            self._expect(_Expected(on_answer, *bounds, self._sequence, calls))
            self._send(data)
            if _MAY_SPIN and self._patience.try_now():
                # After whoever is ready to run now, so that their calls gather for the next frame meanwhile.
                self._loop.call_soon(self._await_briefly)

    async def call(self, items: list[list[Any]], hard_s: float) -> Reply:
        """Answers to `items`, in order, each call bounded by `hard_s` seconds; raises `WorkerLost`."""
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self.request(items, hard_s, _into(answer))
        try:
            return await answer
        except (TimeoutError, EOFError, ProtocolError) as error:
            raise await self.lost(error) from error
        finally:
            self._finish(None, EOFError("nobody waits any more"))

    @property
    def waits(self) -> bool:
        """True while a frame is on its way."""
        return bool(self._waiting)

    def time_out(self) -> None:
        """End what is on its way: it took too long."""
        self._finish(None, TimeoutError())

    def progress(self) -> tuple[int, int, int]:
        """Count of calls begun, index of the current one in its frame, its stage: written by the worker."""
        done, index, stage = _PROGRESS.unpack_from(self._page, 0)
        return done, index, stage

    def _await_briefly(self) -> None:
        """Poll for the reply while no other worker owes one: for short steps, sleeping and waking up would take longer."""
        ends_at = perf_counter() + _SPIN_S
        while self._waiting and self._zygote.in_flight == len(self._waiting):
            self._on_readable()
            os.sched_yield()  # the worker may be waiting for this very processor
            if perf_counter() >= ends_at:
                self._patience.missed()
                return
        self._patience.hit()

    def _expect(self, expected: _Expected) -> None:
        self._waiting.append(expected)
        self._zygote.in_flight += 1

    def _finish(self, message: Any, error: Exception | None) -> None:
        """Tell who waits for the oldest frame; an error ends all of them, and the oldest is to blame."""
        if not self._waiting:
            return
        handler = self._waiting.popleft().handler
        self._zygote.in_flight -= 1
        if error is not None:
            self._zygote.in_flight -= len(self._waiting)
            self._waiting.clear()
        handler(message, error)

    def _send(self, data: bytes) -> None:
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + data)
            return
        try:
            sent = self._channel.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the reader sees the end-of-file
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._loop.add_writer(self._channel.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        try:
            self._unsent = self._unsent[self._channel.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._loop.remove_writer(self._channel.fileno())

    def _on_readable(self) -> None:
        try:
            part = self._channel.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._at_end()
            return
        if self._closed or not self._waiting:
            # Unasked bytes, or a frame after a verdict: never kept. An endless stream of them would keep the host busy,
            # so the worker is killed at once and the next call hears why.
            if not self._violated and not self._closed:
                self._violated = True
                self._zygote.kill(self._pid)
            return
        self._received += part
        try:
            while self._waiting and (message := self._complete()) is not _INCOMPLETE:
                self._finish(message, None)
        except ProtocolError as error:
            self._finish(None, error)

    def _complete(self) -> Any:
        """What the oldest frame expects once all of it is there, else `_INCOMPLETE`; raises `ProtocolError`."""
        received, expected = self._received, self._waiting[0]
        if len(received) < HEADER_BYTES:
            return _INCOMPLETE
        size = HEADER_BYTES + body_length(received, expected.most_bytes)
        if len(received) < size:
            return _INCOMPLETE
        body = bytes(memoryview(received)[HEADER_BYTES:size])
        del received[:size]
        if received and len(self._waiting) == 1:
            raise ProtocolError("more bytes than one reply")
        line, texts = split_body(body)
        if line.count(b",") > expected.most_commas:
            raise ProtocolError("more values than the calls can have")
        return Reply(expected.answers_in(decode_body(line)), Texts(texts))

    def _at_end(self) -> None:
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        if not self._gone.done():
            self._gone.set_result(None)
        self._finish(None, EOFError("the worker ended"))

    # --- ends -------------------------------------------------------------------------------------------------------

    async def lost(self, error: Exception) -> WorkerLost:
        """After a failed frame: kill, confirm, and describe the loss."""
        _, index, stage = self.progress()
        causes = {TimeoutError: "timeout", ProtocolError: "protocol"}
        cause = next((name for kind, name in causes.items() if isinstance(error, kind)), "ended")
        detail = str(error)
        status = await self._exit_status() if cause == "ended" else None
        if cause == "ended" and status is None and self._zygote.alive:
            # Closing its socket looks like an end, and would be nobody's fault.
            cause, detail = "protocol", "it closed its channel and lives"
        elif (
            cause == "ended"
            and status in (None, -9)
            and self._zygote.group is not None
            and self._zygote.group.take_kill()
        ):
            cause = "memory"
        await self.close()
        return WorkerLost(cause, index, _STAGES[stage] if stage < len(_STAGES) else "step", status, detail)

    async def _exit_status(self) -> int | None:
        """Exit code (negative: signal) once the zygote has told it; None when it does not in `close_s` seconds."""
        if self._status is None:
            self._status = await self._zygote.exit_status(self._pid, self._limits.close_s)
        return self._status

    async def _kill(self) -> None:
        """SIGKILL, confirmed by the zygote, or by end-of-file when that is gone; a zygote that does not do it is killed
        with all its workers. End-of-file alone proves nothing: a program can close its socket and live on."""
        if self._status is not None:
            return
        self._zygote.kill(self._pid)
        if await self._exit_status() is not None:
            return
        self._zygote.destroy()
        done, _ = await asyncio.wait((self._gone,), timeout=self._limits.close_s)
        if not done:
            raise HostError(f"worker {self._pid} could not be killed")

    async def close(self) -> None:
        """Kill the worker if it lives, and free what belongs to it. Twice is allowed."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._kill()
        finally:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())
            self._watch.stop()
            self._channel.close()
            self._page.close()


class _Watch:
    """Deadline of what is on its way: no call may stand still for `hard_s`, and all together get `hard_s` each.

    The timer outlives the frame: arming and cancelling one for every frame costs more than a look at an idle worker.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._hard_s = self._ends_at = self._moved_at = 0.0
        self._done = 0

    def begin(self, hard_s: float, calls: int) -> None:
        now = self._loop.time()
        self._hard_s = hard_s
        if self._link.waits:
            self._ends_at += hard_s * calls
        else:
            self._ends_at = now + hard_s * calls
            self._moved_at = now
            self._done = self._link.progress()[0]
        if self._timer is None or self._timer.when() > now + hard_s:
            self.stop()
            self._timer = self._loop.call_later(hard_s / 8, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._link.waits:
            return
        now = self._loop.time()
        done = self._link.progress()[0]
        if done != self._done:
            self._done, self._moved_at = done, now
        if now >= self._ends_at or now - self._moved_at >= self._hard_s:
            self._link.time_out()
        else:
            self._timer = self._loop.call_later(self._hard_s / 8, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _into(future: asyncio.Future[Any]) -> Callable[[Any, Exception | None], None]:
    """A handler that settles a future."""

    def settle(value: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    return settle


def _complaint(hello: Any) -> str:
    if isinstance(hello, dict) and isinstance(hello.get("failed"), str):
        return str(hello["failed"])
    if isinstance(hello, dict) and isinstance(hello.get("self_test"), dict):
        open_doors = [f"{question}: {answer}" for question, answer in hello["self_test"].items() if answer != "denied"]
        return "; ".join(open_doors)[:500]
    return "no self-test was sent"
