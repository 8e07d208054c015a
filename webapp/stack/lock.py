"""One supervisor per data directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from webapp.stack.errors import StackError
from webapp.stack.paths import Home


@contextmanager
def exclusive(home: Home) -> Iterator[None]:
    """Hold the directory's lock. The kernel gives it up when we die, so a killed supervisor blocks nobody.

    Raises:
        StackError: another supervisor has it; the text says which.
    """
    descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise StackError(
                f"Spadework is already running on {home.root} (process {holder}): open it (`make status` shows the address), "
                "stop it with `make down`, or set SPADEWORK_HOME to another directory for a second one"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder_pid(home: Home) -> int | None:
    """The process id of the supervisor that runs now; None when nobody holds the lock."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None
