"""Times and progress of a rollout: phase events for the live page, and how long model and environments took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from trainer.eventlog import EventLog
from trainer.events import PHASES, Phase, PhaseProgress


class Meter:
    """Seconds per phase of the current rollout. Phases may interleave (design and gates do): each adds up its own time.

    `clock` stands still while the run is paused: waiting for a person is no time of the rollout.
    """

    def __init__(self, log: EventLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._started = clock()
        self.phase_s: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._totals: dict[Phase, int] = {}
        self._done: dict[Phase, int] = {}

    def start_rollout(self) -> None:
        """Start all clocks at 0."""
        self._started = self._clock()
        self.phase_s = dict.fromkeys(PHASES, 0.0)
        self._totals, self._done = {}, {}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the rollout started."""
        return self._clock() - self._started

    @contextmanager
    def running(self, phase: Phase, *, total: int) -> Iterator[None]:
        """Time the block for the phase; the first block of a phase in a rollout announces it."""
        if phase not in self._totals:
            self._totals[phase] = total
            self._done[phase] = 0
            self._report(phase, "started")
        before = self._clock()
        try:
            yield
        finally:
            self.phase_s[phase] += self._clock() - before

    def advance(self, phase: Phase, done: int) -> None:
        """Announce how much of the phase is done."""
        self._done[phase] = done
        self._report(phase, "progress")

    def finish(self, phase: Phase, *, done: int | None = None) -> None:
        """Announce that the phase is over. `done`: units done, for phases that never announced any."""
        if phase in self._totals:
            if done is not None:
                self._done[phase] = done
            self._report(phase, "finished")

    def _report(self, phase: Phase, state: Literal["started", "progress", "finished"]) -> None:
        self._log.emit(
            PhaseProgress(
                phase=phase,
                state=state,
                done=self._done[phase],
                total=self._totals[phase],
                elapsed_s=round(self.phase_s[phase], 6),
            )
        )
