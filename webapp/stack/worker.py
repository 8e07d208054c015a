"""A worker's process: Celery's own command line, plus what Celery does not do for us.

``python -m webapp.stack.worker READY_FILE CELERY_ARGUMENT …``: pool children and the embedded scheduler die with the
worker (by themselves they would finish their task as orphans), and READY_FILE gets the worker's process id once it
takes tasks.
"""

import logging
import os
import signal
import sys
import warnings
from pathlib import Path

from celery import signals
from celery.bin.celery import main as celery_main
from celery.platforms import SecurityWarning

from webapp.core.schema import refuse_old_schema
from webapp.stack.child import die_with_parent


def main() -> None:
    """Run the worker until it is told to stop."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    refuse_old_schema()
    ready_file = Path(sys.argv[1])
    worker_pid = os.getpid()

    def tie_to_worker(**_details: object) -> None:
        die_with_parent(signal.SIGKILL, parent_pid=worker_pid)

    def announce(**_details: object) -> None:
        part = ready_file.with_suffix(".part")
        part.write_text(str(worker_pid))
        part.rename(ready_file)

    # "received" and "succeeded" for every run of every periodic task; failures are logged as errors all the same.
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)
    signals.worker_process_init.connect(tie_to_worker, weak=False)
    signals.beat_embedded_init.connect(tie_to_worker, weak=False)
    signals.worker_ready.connect(announce, weak=False)
    # Celery advises against root because of pickled messages; ours are JSON only.
    warnings.simplefilter("ignore", SecurityWarning)
    sys.argv = ["celery", "--quiet", *sys.argv[2:]]
    celery_main()


if __name__ == "__main__":
    main()
