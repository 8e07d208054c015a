"""What the supervisor needs to know about one long-running process."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from webapp.stack.spawn import SAME_USER, Identity


@dataclass(frozen=True)
class StopStep:
    """Send `signal`, then wait up to `grace_s` seconds for the process to end."""

    signal: signal.Signals
    grace_s: float


@dataclass(frozen=True)
class Service:
    """One long-running process.

    `ready` gets the process id, answers at once (well under a second) and is asked again until it says yes.
    `before_start` runs before every start, restarts too: it removes what a killed predecessor left behind.
    After the last stop step the process group is killed.
    """

    name: str
    argv: Sequence[str | Path]
    ready: Callable[[int], bool]
    stop: tuple[StopStep, ...]
    start_deadline_s: float = 30.0
    death_signal: signal.Signals = signal.SIGKILL
    identity: Identity = SAME_USER
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    pass_fds: tuple[int, ...] = ()
    before_start: Callable[[], None] = lambda: None
