"""A real worker for browser tests and pictures: the product's own, on the same database, broker and home as the web server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Answer = TypeVar("Answer")
ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 180.0


@contextmanager
def running_worker(environment: Mapping[str, str], folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on all queues (``arguments``: more of Celery's); at the end all it started is gone. Raises RuntimeError with its log."""
    ready, log = folder / "worker-ready", folder / "worker.log"
    command = [
        sys.executable,
        "-m",
        "webapp.stack.worker",
        str(ready),
        "-A",
        "webapp.celery",
        "worker",
        "-Q",
        "gpu,default,try",
        "-c",
        "3",
        *arguments,
    ]
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if worker.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the worker did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        yield worker
    finally:
        # Its pool children, and through them the trainers, die with it (parent-death signal).
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(timeout=30)


def elsewhere(act: Callable[[], Answer]) -> Answer:
    """The answer of ``act``, done in another thread.

    Playwright keeps an event loop in the test's thread, and what wakes sockets (``async_to_sync``) refuses to run beside one.
    """
    from django.db import connections

    def act_and_close() -> Answer:
        try:
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act_and_close).result()
