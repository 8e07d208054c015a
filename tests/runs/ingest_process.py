"""``python -m tests.runs.ingest_process RUN_ID SECONDS``: a process of its own that ingests until it is killed or time is up."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import django


def main() -> None:
    django.setup()
    from webapp.runs import eventlog
    from webapp.runs.ingest import Ingester
    from webapp.runs.models import Run

    eventlog.BATCH_LINES = 25  # many transactions to be killed in

    run = Run.objects.get(pk=int(sys.argv[1]))
    ingester = Ingester(run_id=run.pk, directory=Path(run.directory))
    until = time.monotonic() + float(sys.argv[2])
    print("at work", flush=True)
    while time.monotonic() < until:
        if not ingester.poll():
            time.sleep(0.02)


if __name__ == "__main__":
    main()
