"""A demo run under random kills: nothing shown may get lost or come twice. ``python -m tests.stack.soak --minutes 30``.

Every few seconds one of web server, workers, database, broker or trainer gets SIGKILL, now and then the supervisor itself. After
each, what the pages had shown before must still be there, unchanged and without a hole; a run that was lost is resumed. At the
end the run is stopped and the database is compared with the event log on disk, line by line.
"""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psycopg

from webapp.stack.paths import REPOSITORY

RECOVERY_S = 240.0
VICTIMS = ("web", "gpu", "try", "default", "database", "broker", "trainer", "supervisor")
RESUMABLE = ("failed", "lost", "stopped")
IDLE = (*RESUMABLE, "completed")

Row = tuple[object, ...]


class Lost(Exception):
    """A promise was broken."""


@dataclass
class Stack:
    """The stack under attack, seen from outside."""

    home: Path
    environment: dict[str, str]

    def command(self, *arguments: str) -> str:
        """Run one of our commands; its output. Raises Lost when it fails."""
        command = [sys.executable, "-m", "webapp.stack", *arguments]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Lost(f"{shlex.join(arguments)} failed: {done.stderr}")
        return done.stdout

    def state(self) -> dict[str, dict[str, object]]:
        """Services by name; empty when nothing runs."""
        try:
            services = json.loads((self.home / "state.json").read_text())["services"]
        except FileNotFoundError:
            return {}
        return {service["name"]: service for service in services}

    def query(self, text: str, *values: object) -> list[Row]:
        """Rows from the stack's database."""
        with psycopg.connect(self._database_url(), connect_timeout=5) as connection:
            return connection.execute(text.encode(), values).fetchall()

    def wait_healthy(self) -> None:
        """Return when every process is up and the database answers. Raises Lost after RECOVERY_S."""
        deadline = time.monotonic() + RECOVERY_S
        while time.monotonic() < deadline:
            state = self.state()
            if state and all(service["state"] == "up" and alive(service["pid"]) for service in state.values()):
                with suppress(psycopg.OperationalError):
                    self.query("SELECT 1")
                    return
            pause(0.2)
        raise Lost(f"not healthy {RECOVERY_S:.0f} s after the kill: {self.state()}")

    def _database_url(self) -> str:
        if not hasattr(self, "_url"):
            lines = [shlex.split(line.removeprefix("export "))[0] for line in self.command("env").splitlines()]
            self._url = dict(line.split("=", 1) for line in lines)["DATABASE_URL"]
        return self._url


def alive(pid: object) -> bool:
    """Whether a process with this number exists."""
    return pid is not None and Path(f"/proc/{pid}").exists()


def pause(seconds: float) -> None:
    """Wait."""
    Event().wait(seconds)


def shown(stack: Stack, run: int) -> list[Row]:
    """Everything the live path has published of a run, in its order."""
    return stack.query('SELECT "cursor", attempt, seq, kind FROM runs_event WHERE run_id = %s ORDER BY "cursor"', run)


def check_shown(before: list[Row], now: list[Row]) -> None:
    """Raises Lost when something published before is gone or changed, or when the cursor has a hole."""
    if now[: len(before)] != before:
        changed = next((pair for pair in zip(before, now, strict=False) if pair[0] != pair[1]), (before[-1], None))
        raise Lost(f"was shown: {changed[0]}, is now: {changed[1]}")
    cursors = [row[0] for row in now]
    if cursors != list(range(1, len(now) + 1)):
        raise Lost(f"the live cursor has a hole or a double: {len(now)} rows, the last is {cursors[-1]}")
    by_attempt: dict[object, list[object]] = {}
    for _, attempt, seq, _ in now:
        if attempt is not None:
            by_attempt.setdefault(attempt, []).append(seq)
    for attempt, seqs in by_attempt.items():
        if seqs != list(range(1, len(seqs) + 1)):
            raise Lost(f"attempt {attempt} has a hole or a double among its {len(seqs)} events")


def logged(directory: Path) -> Iterator[tuple[int, int, str]]:
    """(attempt, seq, kind) of every whole line of the run's event logs."""
    for attempt in sorted((directory / "attempts").iterdir(), key=lambda path: int(path.name)):
        for file in sorted((attempt / "events").glob("*.jsonl")):
            for line in file.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    event = json.loads(line)
                    yield int(attempt.name), event["seq"], event["kind"]


def strike(stack: Stack, run: int, victim: str) -> bool:
    """Kill the victim; False when there is none at the moment."""
    pid: object = None
    if victim == "supervisor":
        pid = json.loads((stack.home / "state.json").read_text())["pid"]
    elif victim == "trainer":
        rows = stack.query(
            "SELECT pid FROM runs_attempt WHERE run_id = %s AND finished_at IS NULL ORDER BY number DESC LIMIT 1", run
        )
        pid = rows[0][0] if rows else None
    else:
        pid = stack.state()[victim]["pid"]
    if not alive(pid):
        return False
    os.kill(int(str(pid)), signal.SIGKILL)
    return True


def soak(stack: Stack, *, minutes: float, chance: random.Random) -> None:
    """The whole story. Raises Lost."""
    stack.command("up", "--detach")
    run = int(
        stack.command("manage", "demo_link")
        and stack.command("manage", "start_demo_run").rstrip("/\n").rpartition("/")[2]
    )
    end = time.monotonic() + minutes * 60
    kills: dict[str, int] = {}
    while time.monotonic() < end:
        pause(chance.uniform(2, 20))
        victim = chance.choice(VICTIMS)
        before = shown(stack, run)
        if not strike(stack, run, victim):
            continue
        kills[victim] = kills.get(victim, 0) + 1
        if victim == "supervisor":
            pause(1)
            stack.command("up", "--detach")
        stack.wait_healthy()
        now = shown(stack, run)
        check_shown(before, now)
        ((status,),) = stack.query("SELECT status FROM runs_run WHERE id = %s", run)
        print(f"killed {victim}: {len(before)} events before, {len(now)} after, the run is {status}", flush=True)
        if status in RESUMABLE:
            act(stack, "resume_run", run)
        elif status == "completed":
            run = int(stack.command("manage", "start_demo_run").rstrip("/\n").rpartition("/")[2])
    finish(stack, run)
    print(f"survived {sum(kills.values())} kills: {kills}")


def finish(stack: Stack, run: int) -> None:
    """Stop the run and compare database and event log. Raises Lost when they differ."""
    deadline = time.monotonic() + RECOVERY_S
    asked = False
    while time.monotonic() < deadline:
        ((status, directory),) = stack.query("SELECT status, directory FROM runs_run WHERE id = %s", run)
        if status in IDLE:
            break
        if status == "running" and not asked:
            act(stack, "stop_run", run)
            asked = True
        pause(1)
    else:
        raise Lost(f"the run did not stop within {RECOVERY_S:.0f} s, it is {status}")
    rows = shown(stack, run)
    check_shown([], rows)
    in_database = [row[1:] for row in rows if row[1] is not None]
    on_disk = list(logged(Path(str(directory))))
    if sorted(in_database, key=str) != sorted(on_disk, key=str):
        raise Lost(f"{len(on_disk)} events on disk, {len(in_database)} in the database")
    print(f"database and event log agree on {len(on_disk)} events of {len({row[0] for row in on_disk})} attempts")


def act(stack: Stack, service: str, run: int) -> None:
    """What the button on the page does."""
    code = (
        "from webapp.runs import services; from webapp.runs.management.commands.start_demo_run import _first_operator; "
        f"services.{service}(actor=_first_operator(), run_id={run})"
    )
    stack.command("manage", "shell", "--command", code)


def main() -> int:
    """Parse the command line and soak; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description="A demo run under random kills.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.minutes} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="spadework-soak-") as directory:
        home = Path(directory) / "home"
        kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        stack = Stack(home, {**kept, "SPADEWORK_HOME": str(home)})
        try:
            soak(stack, minutes=options.minutes, chance=random.Random(options.seed))
        except Lost as problem:
            print(f"LOST: {problem}")
            for log in sorted((home / "logs").glob("*.log")):
                print(f"--- {log.name}\n" + log.read_text(errors="replace")[-3000:])
            return 1
        finally:
            with suppress(Lost):
                stack.command("down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
