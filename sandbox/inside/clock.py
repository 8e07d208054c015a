"""The soft time limit: one repeating interval timer per frame, one assignment per call.

The exception is not an `Exception`, so `except Exception` does not swallow it; code that swallows `BaseException` gets it
again at every tick, until the host kills the worker at the hard limit.
"""

from __future__ import annotations

import signal
from time import perf_counter
from types import FrameType

_LONGEST_TICK_S = 0.05


class SoftTimeout(BaseException):
    """The call ran past its soft limit."""


class Clock:
    """Owns SIGALRM of the worker."""

    def __init__(self) -> None:
        """Install the handler; nothing ticks yet."""
        self.ends_at: float | None = None
        self._handler = self._tick
        signal.signal(signal.SIGALRM, self._handler)

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        if self.ends_at is not None and perf_counter() >= self.ends_at:
            raise SoftTimeout

    def start(self, limit_s: float) -> None:
        """Begin ticking, finely enough for limits of `limit_s` seconds."""
        tick_s = min(_LONGEST_TICK_S, limit_s / 4)
        # A program may have replaced or blocked the handler in an earlier call; take it back.
        signal.signal(signal.SIGALRM, self._handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
        signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)

    def stop(self) -> None:
        """Stop ticking."""
        self.ends_at = None
        signal.setitimer(signal.ITIMER_REAL, 0.0)
