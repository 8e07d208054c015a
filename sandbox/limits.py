"""Every bound of the sandbox in one frozen value."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field


def _most_of_memory() -> int:
    """Three quarters of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4


@dataclass(frozen=True)
class Limits:
    """What one environment version may use. Every figure is a maximum; times are wall-clock.

    `step_soft_s` ends a single call (reset, step, solution) from inside the worker, so only its own episode is lost;
    `step_hard_s` is when the host kills the worker because the call did not react. Both count per call, not per frame.
    """

    step_soft_s: float = 5.0
    """Seconds a reset, step or solution call may take before it is ended from inside."""
    step_hard_s: float = 7.0
    """Seconds after which the host kills the worker that has not finished the call."""
    load_s: float = 5.0
    """Seconds for compiling the source and running its module body (soft; the hard limit adds the same margin as a step)."""
    spawn_s: float = 60.0
    """Seconds for a worker or zygote to start and to pass its self-test."""
    memory_bytes: int = 512 * 1024 * 1024
    """Bytes of address space one worker may add to what the preloaded interpreter already has."""
    source_bytes: int = 256 * 1024
    """Bytes of UTF-8 source."""
    observation_chars: int = 20_000
    """Characters of one observation."""
    action_chars: int = 100_000
    """Characters of one action; longer ones are a caller's error."""
    stdout_bytes: int = 4_096
    """Bytes of printed text kept per call; the rest is dropped."""
    traceback_chars: int = 6_000
    """Characters of traceback text kept per fault."""
    info_entries: int = 64
    """Numbers kept from one `info` dictionary."""
    reward_abs: float = 10.0
    """Largest absolute reward of one step (spec 01, section 3)."""
    solution_actions: int = 1_000
    """Actions a `solution()` may return."""
    open_files: int = 32
    """Descriptors a worker may have open."""
    batch_items: int = 32
    """Calls gathered into one frame to one worker."""
    total_memory_bytes: int = field(default_factory=_most_of_memory)
    """Bytes of memory all workers may use together; holds where the host may make a control group."""
    max_workers: int = 256
    """Workers alive at once; idle versions without episodes are put to sleep to make room."""
    room_s: float = 30.0
    """Seconds a new version waits for one of `max_workers` to become free."""
    close_s: float = 5.0
    """Seconds to wait for end-of-file and exit of a killed process before it counts as a machinery failure."""

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the field when a limit cannot work."""
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"Limits.{name} must be a positive number, not {value!r}")
            if type(value) is float and type(self).__annotations__[name] == "int":
                raise ValueError(f"Limits.{name} must be a whole number, not {value!r}")
        if self.step_hard_s <= self.step_soft_s:
            raise ValueError(f"Limits.step_hard_s ({self.step_hard_s}) must exceed step_soft_s ({self.step_soft_s})")

    @property
    def hard_margin_s(self) -> float:
        """Seconds between a soft and its hard limit."""
        return self.step_hard_s - self.step_soft_s

    @property
    def _reply_chars(self) -> int:
        """Characters of text in the reply to one call."""
        return self.observation_chars + self.traceback_chars + self.stdout_bytes + 2_000

    def reply_bytes(self, items: int) -> int:
        """Largest reply frame, in bytes, that `items` calls can honestly produce (six bytes per escaped character)."""
        return 65_536 + items * (6 * self._reply_chars + 100 * self.info_entries)

    def reply_commas(self, items: int) -> int:
        """Most commas that the reply to `items` calls can honestly hold, in its texts and between its values.

        A megabyte of empty lists would take the host twenty to parse; this bounds what is parsed at all.
        """
        return 1_000 + items * (self._reply_chars + self.info_entries)

    def frame_bytes(self) -> int:
        """Largest request frame in bytes a worker accepts."""
        return 65_536 + max(6 * self.source_bytes, self.batch_items * (6 * self.action_chars + 200))


@dataclass(frozen=True, slots=True)
class GuessRule:
    """The gate `not-guessable`: over `seeds` seeds the random player may win at most the share `largest_rate` (0 to 1)."""

    seeds: int = 20
    largest_rate: float = 0.15

    def __post_init__(self) -> None:
        """Raise `ValueError` for a rule that nothing or everything would pass by mistake."""
        if type(self.seeds) is not int or self.seeds < 1:
            raise ValueError(f"GuessRule.seeds must be at least 1, not {self.seeds!r}")
        if not isinstance(self.largest_rate, int | float) or not 0 <= self.largest_rate <= 1:
            raise ValueError(f"GuessRule.largest_rate must lie in [0, 1], not {self.largest_rate!r}")
