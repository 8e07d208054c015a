"""One sandbox for each worker process, opened when it is first needed and closed when nobody used it for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox import EnvironmentFault, GuessRule, HostError, Limits, Sandbox, SandboxUnavailable
from trainer.config import RunConfig

log = logging.getLogger(__name__)

IDLE_S = 120.0
_HARD_LIMIT_MARGIN_S = 2.0


class BenchUnavailable(Exception):
    """The sandbox itself failed or cannot be had here. Owner: the operator, never the program."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What a run asks of the sandbox: the same limits hold for people's plays."""

    limits: Limits
    minimum_tier: str
    guess: GuessRule
    kind: str

    @classmethod
    def of(cls, config: RunConfig) -> Demands:
        """The demands of a run's settings."""
        step = config.sandbox.step_timeout_s
        return cls(
            limits=Limits(
                step_soft_s=step,
                step_hard_s=step + _HARD_LIMIT_MARGIN_S,
                memory_bytes=config.sandbox.memory_bytes,
                source_bytes=config.gates.source_bytes,
            ),
            minimum_tier=config.sandbox.minimum_tier,
            guess=GuessRule(seeds=config.gates.guess_seeds, largest_rate=config.gates.max_guess_rate),
            kind=config.environment_kind,
        )


class Bench:
    """Hands the sandbox to one caller at a time. ``generation`` changes when a sandbox, and all it held, is gone."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self.idle_s = idle_s
        self.generation = 0
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._opened_for: tuple[Limits, str] | None = None
        self._timer: threading.Timer | None = None

    @contextmanager
    def borrow(self, demands: Demands) -> Iterator[Sandbox]:
        """The sandbox, with the limits of ``demands``. Raises BenchUnavailable for whatever is our side's failure."""
        with self._lock:
            self._stop_timer()
            try:
                yield self._ready(demands)
            except (HostError, SandboxUnavailable) as error:
                self._drop()
                raise BenchUnavailable(str(error)) from error
            finally:
                self._start_timer()

    def close(self) -> None:
        """End the sandbox's processes; the next borrower gets new ones."""
        with self._lock:
            self._stop_timer()
            self._drop()

    def _ready(self, demands: Demands) -> Sandbox:
        wanted = (demands.limits, demands.minimum_tier)
        if self._sandbox is not None and self._opened_for != wanted:
            self._drop()
        if self._sandbox is None:
            try:
                self._sandbox = Sandbox(demands.limits, demands.minimum_tier)
            except ValueError as error:
                raise BenchUnavailable(f"sandbox settings: {error}") from error
            self._opened_for = wanted
        return self._sandbox

    def _drop(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        self.generation += 1
        if sandbox is None:
            return
        try:
            sandbox.close()
        except HostError as error:
            log.warning("the sandbox did not close properly: %s", error)

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self.idle_s, self.close)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


#: Of this process. Nothing is started before the first borrow, so it survives the forks of a worker's pool.
BENCH = Bench()


def fault_fields(fault: EnvironmentFault) -> dict[str, str | int | None]:
    """The program's failure as plain JSON: kind, stage, message, line, traceback, stdout."""
    return {
        "kind": fault.kind, "stage": fault.stage, "message": fault.message, "line": fault.line,
        "traceback": fault.traceback_text, "stdout": fault.stdout,
    }  # fmt: skip
