"""The loop that keeps one trainer company: heartbeat, commands, event log, stop, and the truth about its end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from django.db import InterfaceError, OperationalError, connection, transaction

from webapp.runs import journal
from webapp.runs.ingest import Ingester
from webapp.runs.models import Attempt, Run
from webapp.runs.states import Status
from webapp.runs.supervision.lease import Claim, LeaseLost, renew, status_of
from webapp.runs.supervision.outcome import Outcome, close_run, judge_exit, judge_silence, last_words
from webapp.runs.supervision.relay import Relay
from webapp.runs.supervision.sampling import Sampler
from webapp.runs.supervision.trainer_process import TrainerProcess, fork_log, needs_fork

log = logging.getLogger(__name__)

TRAINER = (sys.executable, "-m", "trainer")
_DATABASE_AWAY = (OperationalError, InterfaceError)


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits of the supervisor, in seconds. A stop takes at most stop_s + term_s and the kill itself (5)."""

    poll_s: float = 0.05
    heartbeat_s: float = 2.0
    commands_s: float = 0.25
    sample_s: float = 15.0  # between two looks at what the trainer takes of the machine
    stop_s: float = 25.0  # after the command, until SIGTERM
    term_s: float = 15.0  # after SIGTERM, until SIGKILL
    shutdown_s: float = 6.0  # after SIGTERM, when the worker itself has to go
    database_s: float = 600.0  # for the database to come back after the trainer has ended


class Supervisor:
    """Supervises one claimed attempt in the calling (main) thread."""

    def __init__(
        self,
        claim: Claim,
        *,
        shutting_down: Callable[[], bool] = lambda: False,
        program: Sequence[str] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._claim = claim
        self._asked_to_go = shutting_down
        self._program = program or TRAINER
        self._patience = patience or Patience()
        self._ingester = Ingester(run_id=claim.run_id, directory=claim.directory.root)
        self._relay = Relay(claim)
        self._parent = os.getppid()
        self._terminated = False
        self._next_heartbeat = 0.0
        self._next_commands = 0.0
        self._next_sample = 0.0
        self._sampler = Sampler(claim)
        self._kill_at: float | None = None
        self._term_at: float | None = None
        self._killed_why = ""
        self._leaving = False
        self._makes_fork = False

    def supervise(self) -> None:
        """Start the trainer, stay until it and all it started are gone, and write down how it ended."""
        run = Run.objects.select_related("parent").get(pk=self._claim.run_id)
        if run.status == Status.STOPPING:
            close_run(self._claim, Outcome(Status.STOPPED, "stopped before it started"), exit_code=None)
            return
        if needs_fork(self._claim.directory, run) and not self._stay_with(run, TrainerProcess.make_fork):
            return
        self._stay_with(run, TrainerProcess.start)

    def _stay_with(self, run: Run, start: Callable[..., TrainerProcess]) -> bool:
        """See one process to its end; True when it has made a fork's directory and the run itself may start now."""
        self._makes_fork = start == TrainerProcess.make_fork
        try:
            trainer = start(self._claim, run, program=self._program)
        except OSError as error:
            message = f"The trainer could not be started: {error}"
            close_run(self._claim, Outcome(Status.FAILED, "not started", "infrastructure", message), exit_code=None)
            return False
        try:
            with self._sigterm_noted():
                self._accompany(trainer)
                left = trainer.kill()
                if self._makes_fork and trainer.exit_code() == 0 and not self._leaving:
                    return True
                self._finish(trainer, bool(left))
        except LeaseLost as error:
            log.warning("%s; its trainer is ended", error)
        except Exception as error:
            trainer.kill()
            message = f"The supervisor failed ({type(error).__name__}: {error}). The run can be resumed."
            close_run(self._claim, Outcome(Status.FAILED, "supervisor failed", "bug", message), exit_code=None)
            raise
        finally:
            trainer.kill()
        return False

    def _accompany(self, trainer: TrainerProcess) -> None:
        process = trainer.process
        Attempt.objects.filter(run_id=self._claim.run_id, number=self._claim.attempt).update(
            pid=process.pid, process_started=process.started
        )
        while trainer.exit_code() is None:
            taken = 0
            try:
                taken = self._tick(trainer)
            except _DATABASE_AWAY as error:
                log.warning("run %s: the database is away (%s); the trainer goes on", self._claim.run_id, error)
                connection.close()
                trainer.wait(1.0)
            self._enforce(trainer)
            if not taken:
                trainer.wait(self._patience.poll_s)

    def _tick(self, trainer: TrainerProcess) -> int:
        now = time.monotonic()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._patience.heartbeat_s
            renew(self._claim)
            trainer.note_family()
        if now >= self._next_commands:
            self._next_commands = now + self._patience.commands_s
            if (
                not self._makes_fork
            ):  # there is no directory yet; what is asked for meanwhile is passed on to the trainer
                self._relay.pass_on()
            if self._term_at is None and status_of(self._claim) == Status.STOPPING:
                self._term_at = now + self._patience.stop_s
                self._kill_at = self._term_at + self._patience.term_s
        if now >= self._next_sample:
            self._next_sample = now + self._patience.sample_s
            self._sampler.take(trainer.process)
        return self._ingester.poll()

    def _enforce(self, trainer: TrainerProcess) -> None:
        """Steps of a stop whose time has come."""
        now = time.monotonic()
        orphaned = self._orphaned()
        if (self._terminated or self._asked_to_go() or orphaned) and not self._leaving:
            self._leaving = True
            self._killed_why = "its worker was killed" if orphaned else "its worker was shut down"
            self._term_at = now
            self._kill_at = now + (0 if orphaned else self._patience.shutdown_s)
        if self._term_at is not None and now >= self._term_at:
            trainer.ask_to_stop()
            self._term_at = float("inf")
        if self._kill_at is not None and now >= self._kill_at:
            self._killed_why = self._killed_why or "killed: it did not stop when asked"
            trainer.kill()

    def _finish(self, trainer: TrainerProcess, something_left: bool) -> None:
        exit_code = trainer.exit_code()
        assert exit_code is not None
        deadline = time.monotonic() + self._patience.database_s
        while True:
            try:
                self._write_end(exit_code, something_left)
                return
            except _DATABASE_AWAY as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("run %s has ended but the database is away (%s); waiting", self._claim.run_id, error)
                connection.close()
                time.sleep(1.0)

    def _write_end(self, exit_code: int, something_left: bool) -> None:
        renew(self._claim)
        self._ingester.drain()
        run = Run.objects.get(pk=self._claim.run_id)
        attempt = Attempt.objects.get(run=run, number=self._claim.attempt)
        with transaction.atomic():
            if something_left:
                journal.warn(run_id=run.pk, message="processes of the trainer could not be killed", where="supervisor")
            close_run(self._claim, self._outcome(run, attempt, exit_code), exit_code=exit_code)

    def _outcome(self, run: Run, attempt: Attempt, exit_code: int) -> Outcome:
        if self._leaving and attempt.reported_state != "completed" and exit_code <= 0:
            if self._orphaned():
                return judge_silence(attempt, self._killed_why)
            return Outcome(Status.STOPPED, self._killed_why)
        outcome = judge_exit(
            run=run, attempt=attempt, exit_code=exit_code, directory=self._claim.directory, killed_why=self._killed_why
        )
        words = last_words(fork_log(self._claim.directory), 0) if self._makes_fork and exit_code > 0 else ""
        return replace(outcome, message=words) if words else outcome

    def _orphaned(self) -> bool:
        return os.getppid() != self._parent

    @contextmanager
    def _sigterm_noted(self) -> Iterator[None]:
        def note(number: int, frame: FrameType | None) -> None:
            self._terminated = True

        before = signal.signal(signal.SIGTERM, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
