"""Make a small, real run directory in seconds with the scripted engines and the real sandbox.

python -m tests.trainer.make_run DIR [--rollouts 6] [--faults] [--resume] [--set a.b=VALUE …]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.__main__ import _assignments
from trainer.presets import with_overrides
from trainer.progress import Progress
from trainer.run import attempt, create
from trainer.rundir import RunDirectory

FAULTS = {"syntax": 0.2, "no_hint": 0.1, "raises": 0.1, "sampler": 0.01, "length": 0.02}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rollouts", type=int, default=6)
    parser.add_argument("--faults", action="store_true", help="broken designs, missing hints, faulty environments")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=VALUE")
    options = parser.parse_args()
    run = RunDirectory(options.directory)
    if not options.resume:
        config = with_overrides(fake_config(schedule__rollouts=options.rollouts), _assignments(options.set))
        run = create(options.directory, config)
    engines = FakeEngines(**(FAULTS if options.faults else {}))
    with Progress(run) as progress:
        return attempt(run, engines, listen=progress.listen)


if __name__ == "__main__":
    sys.exit(main())
