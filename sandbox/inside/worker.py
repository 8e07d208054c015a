"""The loop of a worker: read a frame of calls, answer each, never let the program's failure be more than an answer."""

from __future__ import annotations

import contextlib
import gc
import io
import mmap
import os
import select
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from sandbox.inside import checks
from sandbox.inside.clock import Clock, SoftTimeout
from sandbox.inside.program import FILE_NAME, ParseFailure, Program, count_state_variables
from sandbox.patience import Patience
from sandbox.protocol import HEADER_BYTES, ProtocolError, body_length, decode_body, encode_frame

# Stage numbers written to the progress page, so that the host knows where a killed worker was.
STAGES: tuple[str, ...] = ("idle", "parse", "load", "reset", "step", "end", "solution", "measure")
PROGRESS = struct.Struct("<III")
_OK, _FAULT = "ok", "fault"
_OBSERVED = ("reset", "step")
_CHUNK_BYTES = 1 << 16
_MAY_SPIN = len(os.sched_getaffinity(0)) > 1
_SPIN_S = 1e-3
# Address space kept back, so that a fault can be described when the program has used up the rest.
_SPARE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Settings:
    """The part of `Limits` a worker needs, in the same units."""

    step_soft_s: float
    load_s: float
    observation_chars: int
    stdout_bytes: int
    traceback_chars: int
    info_entries: int
    reward_abs: float
    solution_actions: int
    action_chars: int
    frame_bytes: int


class CappedText(io.TextIOBase):
    """Standard output of the program: keeps the first bytes of each call, drops the rest."""

    def __init__(self, cap_bytes: int) -> None:
        """Start empty."""
        super().__init__()
        self._cap = cap_bytes
        self.parts: list[str] = []
        self._room = cap_bytes

    def write(self, text: str) -> int:
        """Keep what fits."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._room > 0:
            part = text[: self._room]
            self.parts.append(part)
            self._room -= len(part.encode("utf-8", "replace"))
        return len(text)

    def writable(self) -> bool:
        """Yes."""
        return True

    def take(self) -> str:
        """What was printed since the last call, as clean text; starts anew."""
        if not self.parts:
            return ""
        text = "".join(self.parts).encode("utf-8", "replace")[: self._cap].decode("utf-8", "replace")
        self.parts.clear()
        self._room = self._cap
        return text


class Worker:
    """Serves one program on one socket until end-of-file."""

    def __init__(self, settings: Settings) -> None:
        """Made before the fork, by the zygote, because what a new process makes first costs it page faults; see `attach`."""
        self._settings = settings
        self._buffer = bytearray()
        self._clock = Clock(min(settings.step_soft_s, settings.load_s))
        self._output = CappedText(settings.stdout_bytes)
        self._program: Program | None = None
        self._reserve: mmap.mmap | None = None
        self._poll = select.poll()
        self._patience = Patience()
        self._done = 0
        self._stage = "idle"
        self._calls: dict[str, tuple[int, float, Callable[..., Any]]] = {
            "load": (2, settings.load_s, self._load),
            "reset": (3, settings.step_soft_s, self._reset),
            "step": (4, settings.step_soft_s, self._step),
            "end": (5, settings.step_soft_s, self._end),
            "solution": (6, settings.step_soft_s, self._solution),
            "measure": (7, settings.step_soft_s, self._measure),
        }
        self._input = io.StringIO("")

    def attach(self, descriptor: int, progress: mmap.mmap) -> None:
        """After the fork: `descriptor` is the blocking socket to the host, `progress` the page the host watches."""
        self._descriptor = descriptor
        self._progress = progress
        self._poll.register(descriptor, select.POLLIN)
        # Here, because a page shared with other workers would carry messages between programs.
        self._reserve = mmap.mmap(-1, _SPARE_BYTES)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = self._output  # type: ignore[assignment, misc]
        sys.stdin = sys.__stdin__ = self._input  # type: ignore[assignment, misc]

    # --- frames -----------------------------------------------------------------------------------------------------

    def send(self, message: object, texts: Sequence[str] = ()) -> None:
        """Write one frame completely."""
        data = memoryview(encode_frame(message, texts))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> Any:
        """The next message, or None at end-of-file."""
        buffer = self._buffer
        if not buffer and _MAY_SPIN and self._patience.try_now():
            self._await_briefly()
        while len(buffer) < HEADER_BYTES or len(buffer) < HEADER_BYTES + body_length(
            buffer, self._settings.frame_bytes
        ):
            part = os.read(self._descriptor, _CHUNK_BYTES)
            if not part:
                return None
            buffer += part
        size = HEADER_BYTES + body_length(buffer, self._settings.frame_bytes)
        body = bytes(memoryview(buffer)[HEADER_BYTES:size])
        del buffer[:size]
        return decode_body(body)

    def _await_briefly(self) -> None:
        """Poll for the next frame: while frames come quickly, sleeping and waking up would take longer than a frame."""
        ends_at = perf_counter() + _SPIN_S
        while not self._poll.poll(0):
            os.sched_yield()  # the host may be waiting for this very processor
            if perf_counter() >= ends_at:
                self._patience.missed()
                return
        self._patience.hit()

    def serve(self) -> None:
        """Answer frames until the host closes."""
        while (message := self.receive()) is not None:
            number, items = message
            self._clock.start()
            replies = [self._answer(index, item) for index, item in enumerate(items)]
            try:
                self.send([number, replies], _without_observations(items, replies))
            except (ProtocolError, TypeError) as error:
                # The program put something unencodable into a checked reply: that is a fault of each call in the frame.
                fault = [_FAULT, "contract", "step", f"the reply has no form on the wire: {error}", None, "", ""]
                self.send([number, [fault] * len(items)])
            self._note(0, 0)

    # --- one call ---------------------------------------------------------------------------------------------------

    def _note(self, index: int, stage: int) -> None:
        self._done += 1
        PROGRESS.pack_into(self._progress, 0, self._done & 0xFFFFFFFF, index, stage)

    def _answer(self, index: int, item: list[Any]) -> list[Any]:
        stage, limit_s, call = self._calls[item[0]]
        self._done += 1
        PROGRESS.pack_into(self._progress, 0, self._done & 0xFFFFFFFF, index, stage)
        self._stage = STAGES[stage]
        clock = self._clock
        try:
            try:
                clock.ends_at = perf_counter() + limit_s
                reply: list[Any] = call(*item[1:])
                clock.ends_at = None
            except BaseException as error:  # noqa: BLE001 - whatever the program raises is its answer
                clock.ends_at = None
                reply = self._fault(error, self._stage, limit_s)
                if stage == 4:
                    self._end(item[1])
        except SoftTimeout:
            # The tick fell between the call's end and the line that disarms it.
            clock.ends_at = None
            reply = [_FAULT, "timeout", STAGES[stage], f"longer than {limit_s:g} s", None, "", ""]
        if self._output.parts:
            printed = self._output.take()
            if reply[0] == _OK:
                reply.append(printed)
            else:
                reply[-1] = printed
        return reply

    def _load(self, source: str) -> list[Any]:
        self._note(0, 1)
        self._stage = "parse"
        self._program = program = Program(source)
        self._note(0, 2)
        self._stage = "load"
        program.try_load()
        return [_OK, program.class_name]

    def _loaded(self) -> Program:
        if self._program is None:
            raise RuntimeError("no program is loaded")
        return self._program

    def _reset(self, number: int, seed: int, max_turns: int) -> list[Any]:
        episode, answer = self._loaded().open_episode(seed, max_turns)
        if type(answer) is not tuple or len(answer) != 2:
            raise checks.ContractViolation(f"reset must return (observation, info), not {_shape(answer)}")
        observation = checks.check_observation(answer[0], self._settings.observation_chars, "reset")
        info = checks.numbers_of(answer[1], "reset", self._settings.info_entries)
        self._loaded().episodes[number] = episode
        return [_OK, observation, info]

    def _step(self, number: int, action: str) -> list[Any]:
        if self._program is None:
            raise RuntimeError("no program is loaded")
        answer = self._program.step(number, action)
        if type(answer) is not tuple or len(answer) != 5:
            expected = "(observation, reward, terminated, truncated, info)"
            raise checks.ContractViolation(f"step must return {expected}, not {_shape(answer)}")
        observation, reward, terminated, truncated, info = answer
        settings = self._settings
        # What most steps return passes at a glance; the rest is looked at closely.
        if type(reward) is not float or not -settings.reward_abs <= reward <= settings.reward_abs:
            reward = checks.check_reward(reward, settings.reward_abs)
        if type(terminated) is not bool or type(truncated) is not bool:
            checks.check_flag(terminated, "terminated")
            checks.check_flag(truncated, "truncated")
        return [
            _OK,
            checks.check_observation(observation, settings.observation_chars, "step"),
            reward,
            terminated,
            truncated,
            checks.numbers_of(info, "step", settings.info_entries),
        ]

    def _end(self, number: int) -> list[Any]:
        # The contract's close() is not called: an episode may also end by a kill, so nothing can depend on it.
        self._loaded().episodes.pop(number, None)
        return [_OK]

    def _solution(self, seed: int, max_turns: int) -> list[Any]:
        value = self._loaded().solution(seed, max_turns)
        return [_OK, checks.check_solution(value, self._settings.solution_actions, self._settings.action_chars)]

    def _measure(self) -> list[Any]:
        program = self._loaded()
        variables = count_state_variables(program.code, program.class_name)
        return [_OK, {"lines": float(program.lines), "state_variables": float(variables)}]

    # --- faults -----------------------------------------------------------------------------------------------------

    def _fault(self, error: BaseException, stage: str, limit_s: float) -> list[Any]:
        if isinstance(error, ParseFailure):
            kind = "exception" if error.message.startswith(("SyntaxError", "Indentation", "Tab")) else "contract"
            return [_FAULT, kind, "parse", _clean(error.message, 500), error.line, "", ""]
        if isinstance(error, checks.ContractViolation):
            return [_FAULT, error.kind, stage, _clean(error.message, 500), None, "", ""]
        if isinstance(error, MemoryError):
            if self._reserve is not None:
                self._reserve.close()
                self._reserve = None
            gc.collect()
            reply = [_FAULT, "memory", stage, "the memory limit was reached", _line_of(error), "", ""]
            with contextlib.suppress(OSError):
                self._reserve = mmap.mmap(-1, _SPARE_BYTES)
            return reply
        if isinstance(error, SoftTimeout):
            return [_FAULT, "timeout", stage, f"longer than {limit_s:g} s", _line_of(error), self._trace(error), ""]
        kind = "exit" if isinstance(error, SystemExit) else "exception"
        return [_FAULT, kind, stage, self._message(error, limit_s), _line_of(error), self._trace(error), ""]

    def _message(self, error: BaseException, limit_s: float) -> str:
        """Type and text of an exception; its `__str__` is the program's code, so the clock runs."""
        name = _clean(str(type(error).__name__), 100)
        try:
            self._clock.ends_at = perf_counter() + limit_s
            text = str(error)
        except BaseException:  # noqa: BLE001 - the program can raise anything here
            text = "(no text: its __str__ failed)"
        finally:
            self._clock.ends_at = None
        return f"{name}: {_clean(text, 500)}" if text else name

    def _trace(self, error: BaseException) -> str:
        """The frames inside the generated source, newest last."""
        try:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE_NAME]
            return _clean("".join(traceback.format_list(frames[-30:])), self._settings.traceback_chars)
        except BaseException:  # noqa: BLE001 - the program can raise anything here
            return ""


def _without_observations(items: list[list[Any]], replies: list[list[Any]]) -> list[str]:
    """Take the observations out of the replies, and leave their lengths."""
    texts = []
    for item, reply in zip(items, replies, strict=True):
        if reply[0] == _OK and item[0] in _OBSERVED:
            texts.append(reply[1])
            reply[1] = len(reply[1])
    return texts


def _shape(value: Any) -> str:
    if type(value) is tuple:
        return f"a tuple of {len(value)}"
    return f"{type(value).__name__}"


def _clean(text: str, cap_chars: int) -> str:
    return text[:cap_chars].encode("utf-8", "replace").decode("utf-8")


def _line_of(error: BaseException) -> int | None:
    """Line of the generated source where the exception passed last."""
    line = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILE_NAME:
            line = step.tb_lineno
        step = step.tb_next
    return line
