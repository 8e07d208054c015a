"""Starting one service for as long as a block of code needs it, without the supervisor."""

import time
from contextlib import ExitStack
from subprocess import Popen, TimeoutExpired
from threading import Event

from webapp.stack.errors import StackError
from webapp.stack.paths import Home
from webapp.stack.service import Service
from webapp.stack.spawn import spawn

_POLL_S = 0.02


def start_service(service: Service, home: Home, cleanup: ExitStack) -> None:
    """Start `service`, wait until it answers, and have it stopped by `cleanup`.

    Raises:
        StackError: it did not come up; the text quotes its log.
    """
    log = home.logs / f"{service.name}.log"
    service.before_start()
    with log.open("ab") as output:
        process = spawn(
            service.argv,
            death_signal=service.death_signal,
            identity=service.identity,
            env=service.env,
            cwd=service.cwd,
            stdout=output,
        )
    cleanup.callback(_stop, process, service)
    deadline = time.monotonic() + service.start_deadline_s
    while not service.ready(process.pid):
        if process.poll() is not None or time.monotonic() > deadline:
            raise StackError(f"the {service.name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        Event().wait(_POLL_S)


def _stop(process: Popen[bytes], service: Service) -> None:
    for step in service.stop:
        if process.poll() is None:
            process.send_signal(step.signal)
        try:
            process.wait(step.grace_s)
        except TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()
