"""Commands about a stack that runs elsewhere: starting it in the background, stopping it, asking how it is."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from webapp.stack.application import application_environment
from webapp.stack.errors import StackError
from webapp.stack.lock import holder_pid
from webapp.stack.paths import REPOSITORY, Home
from webapp.stack.preflight import DEFAULT_PORT
from webapp.stack.up import backing_services

_POLL_S = 0.05
_STOP_DEADLINE_S = 60.0
_EXIT_S = 5.0
EXIT_NOT_RUNNING = 3
_SHOWN_VARIABLES = ("DATABASE_URL", "REDIS_URL", "SPADEWORK_HOME", "SPADEWORK_SECRET_KEY_FILE", "SPADEWORK_PUBLIC_URL")


def start_detached(home: Home, *, say: Callable[[str], None]) -> None:
    """Run `up` in a session of its own and return when it answers; `say` gets its progress, all lines go to the logs.

    Raises:
        StackError: it did not come up.
    """
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "webapp.stack", "up", "--notify-fd", str(writer)]
    # Not spawn(): this one has to outlive us.
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writer,),
        start_new_session=True,
    )
    os.close(writer)
    answer: dict[str, str] = {}
    with os.fdopen(reader, encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            if "say" in answer:
                say(answer["say"])
            else:
                break
    if "ready" not in answer:
        process.wait()
        log = home.logs / "spadework.log"
        raise StackError(answer.get("error") or f"the stack ended with exit code {process.returncode}; see {log}")


def stop(home: Home) -> bool:
    """Stop the running stack and wait for its end; False when none runs.

    Raises:
        StackError: it did not end, not even when killed.
    """
    pid = holder_pid(home)
    if pid is None:
        return False
    for number, grace_s in ((signal.SIGTERM, _STOP_DEADLINE_S), (signal.SIGKILL, 10.0)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            raise StackError(f"process {pid} belongs to another user: stop it as that user") from None
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            if holder_pid(home) != pid:
                _wait_for_exit(pid)
                return True
            Event().wait(_POLL_S)
    raise StackError(f"process {pid} does not end; look at it with: ps -fp {pid}")


def _wait_for_exit(pid: int) -> None:
    """Give a process that has let go of its lock the moment it needs to end; no signal any more, the number may be reused."""
    deadline = time.monotonic() + _EXIT_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            return
        if state == "Z":
            return
        Event().wait(_POLL_S)


def status(home: Home) -> tuple[int, str]:
    """What runs, as an exit code (0 all up, 1 something is not, 3 nothing runs) and as text."""
    pid = holder_pid(home)
    if pid is None:
        return EXIT_NOT_RUNNING, f"not running (data in {home.root})"
    try:
        state = json.loads(home.state.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return 1, f"starting (process {pid})"
    lines = [f"{state['url']}   process {pid}, data in {home.root}"]
    code = 0
    for service in state["services"]:
        alive = service["pid"] is not None and Path(f"/proc/{service['pid']}").exists()
        word = service["state"] if alive or service["state"] != "up" else "just ended"
        if word != "up":
            code = 1
        lines.append(f"  {service['name']:<10} {word:<19} process {service['pid']}, restarts {service['restarts']}")
    return code, "\n".join(lines)


def environment_lines(home: Home) -> str:
    """Shell lines that lead other programs (psql, a Python shell) to this stack's services."""
    environment = _environment(home)
    return "\n".join(
        f"export {name}={shlex.quote(environment[name])}" for name in _SHOWN_VARIABLES if name in environment
    )


def manage(home: Home, arguments: list[str]) -> int:
    """Run manage.py against the running stack; its exit code.

    Raises:
        StackError: nothing runs that it could talk to.
    """
    if holder_pid(home) is None and not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
        raise StackError(f"nothing runs on {home.root}: start it with `make up` first")
    command = [sys.executable, str(REPOSITORY / "manage.py"), *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=_environment(home), check=False).returncode


def _environment(home: Home) -> dict[str, str]:
    backing = backing_services(home)
    port = DEFAULT_PORT
    if home.state.exists():
        port = urlsplit(json.loads(home.state.read_text())["url"]).port or DEFAULT_PORT
    return application_environment(home, database_url=backing.database_url, redis_url=backing.redis_url, port=port)
