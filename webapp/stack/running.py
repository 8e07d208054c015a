"""One process under supervision: its pipe, its state, and how it is brought to an end."""

import enum
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

from webapp.stack.service import Service, StopStep
from webapp.stack.spawn import spawn

_READ_BYTES = 65536
_LONGEST_LINE_BYTES = 8192
_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 30.0
_STEADY_AFTER_S = 60.0


class State(enum.StrEnum):
    """Where a process stands; the words are shown by `status`."""

    STARTING = "starting"
    UP = "up"
    WAITING = "waiting to restart"
    STOPPED = "stopped"


class LineReader:
    """Splits what arrives on a non-blocking pipe into lines; over-long lines are cut into pieces."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""

    def read(self) -> tuple[list[str], bool]:
        """The complete lines available now, and whether the writer has closed the pipe."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return [], False
        if not data:
            rest, self._rest = self._rest, b""
            return ([rest.decode(errors="replace")] if rest else []), True
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        return [line[:_LONGEST_LINE_BYTES].decode(errors="replace") for line in lines], False


class Running:
    """The present process of one service, replaced at every restart."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.state = State.STOPPED
        self.process: subprocess.Popen[bytes] | None = None
        self.reader: LineReader | None = None
        self.since = time.monotonic()
        self.restarts = 0
        self.retry_at = 0.0
        self._failures = 0
        self._hurry = False
        self._group_is_gone = True

    @property
    def pid(self) -> int | None:
        """The process id while there is a process."""
        return self.process.pid if self.process is not None else None

    def start(self) -> None:
        """Start a new process; the old one must have ended."""
        self.close()
        self.service.before_start()
        self.process = spawn(
            self.service.argv,
            death_signal=self.service.death_signal,
            identity=self.service.identity,
            env=self.service.env,
            cwd=self.service.cwd,
            pass_fds=self.service.pass_fds,
            stdout=subprocess.PIPE,
        )
        self._group_is_gone = False
        assert self.process.stdout is not None
        self.reader = LineReader(self.process.stdout.fileno())
        self._enter(State.STARTING)

    def mark_up(self) -> float:
        """The service answers. Seconds since its start."""
        took_s = time.monotonic() - self.since
        self._enter(State.UP)
        return took_s

    def mark_lost(self) -> float:
        """The process ended though nobody asked for it: schedule the restart. Seconds until then (backs off)."""
        if self.state is State.UP and time.monotonic() - self.since > _STEADY_AFTER_S:
            self._failures = 0
        delay_s = min(_FIRST_RETRY_S * 2.0**self._failures, _LONGEST_RETRY_S)
        self._failures += 1
        self.restarts += 1
        self.retry_at = time.monotonic() + delay_s
        self.kill_group()
        self._enter(State.WAITING)
        return delay_s

    def is_late(self) -> bool:
        """Whether a starting process has used up its time."""
        return self.state is State.STARTING and time.monotonic() - self.since > self.service.start_deadline_s

    def stopping(self) -> Iterator[None]:
        """A generator that ends when the process has: sends the stop signals in turn, then kills the group.

        Advance it often.
        """
        process = self.process
        if process is not None:
            for step in (*self.service.stop, StopStep(signal.SIGKILL, 5)):
                if process.poll() is not None:
                    break
                with suppress(ProcessLookupError):
                    os.kill(process.pid, step.signal)
                deadline = time.monotonic() + step.grace_s
                while process.poll() is None and time.monotonic() < deadline:
                    if self._hurry and step.signal != signal.SIGKILL:
                        break
                    yield
            self.kill_group()
        self._enter(State.STOPPED)

    def escalate(self) -> None:
        """Somebody is impatient: kill now."""
        self._hurry = True

    def kill_group(self) -> None:
        """End what the process left in its session's group (the children of a worker's pool)."""
        if self.process is not None and not self._group_is_gone:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._group_is_gone = True  # the number may mean another group soon

    def close(self) -> None:
        """Close the pipe of an ended process."""
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.reader = None

    def _enter(self, state: State) -> None:
        self.state = state
        self.since = time.monotonic()


def exit_text(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-returncode).name}"
        return f"was ended by signal {-returncode}"
    return f"exited with code {returncode}"
