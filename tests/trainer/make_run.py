"""Make a small, real run directory in seconds with the scripted engines and the real sandbox.

    python -m tests.trainer.make_run DIR [--rollouts 6] [--faults] [--resume] [--kill ROLLOUT:KIND:N] [--set a.b=VALUE …]

`--kill` sends SIGKILL to the process itself when it has written the N-th event of that kind in that rollout.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.assignments import assignments
from trainer.eventlog import EventLog
from trainer.presets import with_overrides
from trainer.progress import Progress
from trainer.run import attempt, create
from trainer.rundir import RunDirectory

FAULTS = {"syntax": 0.2, "no_hint": 0.5, "raises": 0.1, "sampler": 0.01, "length": 0.02}


def killer(where: str) -> Callable[[str, Mapping[str, Any], int | None], None]:
    """A listener that kills this process at one event."""
    rollout, kind, number = where.split(":")
    seen = 0

    def listener(event_kind: str, _payload: Mapping[str, Any], event_rollout: int | None) -> None:
        nonlocal seen
        seen += event_kind == kind and event_rollout == int(rollout)
        if seen == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rollouts", type=int, default=6)
    parser.add_argument("--faults", action="store_true", help="broken designs, missing hints, faulty environments")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill", default="")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=VALUE")
    options = parser.parse_args()
    run = RunDirectory(options.directory)
    engines = FakeEngines(**(FAULTS if options.faults else {}))
    if not options.resume:
        config = fake_config(schedule__rollouts=options.rollouts)
        run = create(options.directory, with_overrides(config, assignments(options.set)))
    with Progress(run) as progress:

        def listen(log: EventLog) -> None:
            progress.listen(log)
            if options.kill:
                log.listeners.append(killer(options.kill))

        return attempt(run, engines, listen=listen)


if __name__ == "__main__":
    sys.exit(main())
