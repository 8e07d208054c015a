"""The trainer's `try` as a child process: lines in and out, neither of which can block us for ever. Imported by tasks only."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.conf import settings

from webapp.runs.models import Run
from webapp.runs.supervision.proctree import Process, family, identify, kill_all
from webapp.runs.supervision.trainer_process import trainer_environment
from webapp.stack.spawn import spawn

ANSWER_BYTES = 16 * 1024**2
_PIECE_BYTES = 64 * 1024
_WRITE_WITHIN_S = 30.0
_GONE_WITHIN_S = 5.0
_SAID_CHARS = 1500
_NICE = 5  # a session must not slow a run down more than it has to


class ChildFailed(Exception):
    """The process ended, or does not keep to the protocol. The text is for people, who read it as why the session ended."""


def try_command(run: Run, checkpoint: str) -> list[str]:
    """The command line that tries a checkpoint of the run with what an installation allows."""
    device = settings.SPADEWORK_TRY_DEVICE
    command = [sys.executable, "-m", "trainer", "try", run.directory, "--checkpoint", checkpoint, "--device", device]
    command += ["--nice", str(_NICE)]
    if device == "cpu":
        command += ["--memory-bytes", str(settings.SPADEWORK_TRY_MEMORY_BYTES)]
    return command


class TryChild:
    """One process in a session of its own; the kernel kills it when the thread that started it ends."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        """Start it. Call from the main thread. Raises OSError."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        requests_in, requests_out = os.pipe()
        answers_in, answers_out = os.pipe()
        try:
            self._popen = spawn(
                command, death_signal=signal.SIGKILL, env=trainer_environment(os.environ), cwd=settings.BASE_DIR,
                stdin=requests_in, stdout=answers_out, stderr=self._errors,
            )  # fmt: skip
        except BaseException:
            for descriptor in (requests_in, requests_out, answers_in, answers_out):
                os.close(descriptor)
            self._errors.close()
            raise
        os.close(requests_in)
        os.close(answers_out)
        self._to, self._from = requests_out, answers_in
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._pending = bytearray()
        self._has_line = False
        self.process = identify(self._popen.pid) or Process(self._popen.pid, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, request: dict[str, Any]) -> None:
        """Write one request. Raises ChildFailed when the process is gone or does not read."""
        data = memoryview((json.dumps(request) + "\n").encode("ascii"))
        deadline = time.monotonic() + _WRITE_WITHIN_S
        while data:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._to], [], left)[1]:
                raise ChildFailed("the model's process does not read what it is asked")
            try:
                data = data[os.write(self._to, data[:_PIECE_BYTES]) :]
            except BrokenPipeError:
                raise ChildFailed(self.last_words()) from None

    def answers(self, within_s: float) -> list[dict[str, Any]]:
        """What it has said, after waiting at most that long for something. Raises ChildFailed when it has ended or talks nonsense."""
        if not self._has_line and select.select([self._from], [], [], within_s)[0]:
            self._read()
        if not self._has_line:
            return []
        *lines, self._pending = self._pending.split(b"\n")
        self._has_line = False
        try:
            found = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            raise ChildFailed(f"the model's process said something that is not JSON: {error}") from error
        if not all(isinstance(one, dict) for one in found):
            raise ChildFailed("the model's process said something that is no answer")
        return found

    def _read(self) -> None:
        while len(self._pending) <= ANSWER_BYTES:
            try:
                piece = os.read(self._from, _PIECE_BYTES)
            except BlockingIOError:
                return
            if not piece:
                if self._has_line:
                    return  # its last answers first
                raise ChildFailed(self.last_words())
            self._pending += piece
            self._has_line = self._has_line or b"\n" in piece
        if not self._has_line:
            raise ChildFailed(f"the model's process gave an answer of more than {ANSWER_BYTES} bytes")

    def last_words(self) -> str:
        """Why it ended, as far as it said."""
        self._wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 4 * _SAID_CHARS))
        said = self._errors.read().decode("utf-8", "replace").strip()
        last = said.rpartition("trainer: ")[2].partition(": ")[2] if "trainer: " in said else said[-_SAID_CHARS:]
        code = self._popen.returncode
        if code is not None and code < 0:
            return f"The model's process was killed ({_signal_name(-code)}); the machine may be short of memory. {last}".strip()
        return last[:_SAID_CHARS] or f"The model's process ended with {code}."

    def _wait(self) -> None:
        deadline = time.monotonic() + _GONE_WITHIN_S
        while self._popen.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL it and everything it started, its sandbox too; wait until they are gone."""
        members = {self.process} | family(self.process)
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()
        kill_all(members | family(self.process), within_s=_GONE_WITHIN_S)
        for descriptor in (self._to, self._from):
            os.close(descriptor)
        self._errors.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
