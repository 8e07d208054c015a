"""The soft time limit: one repeating interval timer while there is work, one assignment per call.

The exception is not an `Exception`, so `except Exception` does not swallow it; code that swallows `BaseException` gets it
again at every tick, until the host kills the worker at the hard limit.
"""

from __future__ import annotations

import signal
from time import perf_counter
from types import FrameType

_LONGEST_TICK_S = 0.05
_IDLE_TICKS = 10


class SoftTimeout(BaseException):
    """The call ran past its soft limit."""


class Clock:
    """Owns SIGALRM of the worker.

    The timer runs on between frames and stops by itself when it found nothing to watch for a while: four system calls
    for every frame would cost as much as the frame.
    """

    def __init__(self, shortest_limit_s: float) -> None:
        """Ticks will be fine enough for limits of `shortest_limit_s` seconds; nothing ticks yet."""
        self.ends_at: float | None = None
        self._tick_s = min(_LONGEST_TICK_S, shortest_limit_s / 4)
        self._idle = 0
        self._ticking = False
        self._handler = self._tick

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        if self.ends_at is not None:
            self._idle = 0
            if perf_counter() >= self.ends_at:
                raise SoftTimeout
        elif self._idle < _IDLE_TICKS:
            self._idle += 1
        else:
            self._ticking = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def start(self) -> None:
        """See that the timer ticks. A frame begins."""
        if self._ticking and signal.getsignal(signal.SIGALRM) is self._handler:
            return
        # A program may have replaced or blocked the handler in an earlier call; take it back.
        signal.signal(signal.SIGALRM, self._handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
        self._idle = 0
        self._ticking = True
        signal.setitimer(signal.ITIMER_REAL, self._tick_s, self._tick_s)
