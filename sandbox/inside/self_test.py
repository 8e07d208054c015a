"""Asked inside the worker, after every layer is on and before any source is sent: is each of these really refused?"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)


def _attempt(action: Callable[[], Any]) -> str:
    try:
        action()
    except OSError as error:
        if error.errno in _REFUSALS:
            return "denied"
        return f"answered {errno.errorcode.get(error.errno or 0, str(error.errno))}"
    return "allowed"


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def run(socket_module: Any, executable: str, parent: int) -> dict[str, str]:
    """Question to answer; every answer must be `denied`. `executable` exists and could be run, were it allowed."""
    return {
        "read a file": _attempt(lambda: os.close(os.open("/etc/passwd", os.O_RDONLY))),
        "read the interpreter": _attempt(lambda: os.close(os.open(executable, os.O_RDONLY))),
        "write a file": _attempt(lambda: os.close(os.open("/tmp/.sandbox-self-test", os.O_WRONLY | os.O_CREAT))),  # noqa: S108
        "see a path": _attempt(lambda: os.stat("/")),  # noqa: PTH116 - the system call is the question
        "make an inet socket": _attempt(lambda: socket_module.socket(socket_module.AF_INET)),
        "make a unix socket": _attempt(lambda: socket_module.socket(socket_module.AF_UNIX)),
        "fork": _attempt(_fork),
        "signal the parent": _attempt(lambda: os.kill(parent, 0)),
        "signal itself": _attempt(lambda: os.kill(os.getpid(), signal.SIGCONT)),
        "make a pipe": _attempt(os.pipe),
        "execute a program": _attempt(lambda: os.execv(executable, [executable, "-c", ""])),  # noqa: S606
    }
