"""A real run while Valkey is emptied and killed, PostgreSQL restarted and the web server killed: no event is lost, none comes twice.

The whole product as `make up` starts it, with the trainer and the built-in model. The run would go on for long; it is stopped once
everything has been done to it, so that no act can come too late, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from redis import Redis
from websockets.asyncio.client import connect

from tests.stack.processes import wait_until
from tests.stack.soak import Stack, check_shown, finish, logged, shown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # minutes only on a machine that others keep busy

SMALL = ("schedule.rollouts=500", "schedule.environments=2", "schedule.plays=2", "schedule.hinted_plays=2")
PATIENCE_S = 240.0
MORE_EVENTS = 15  # that the trainer must write, and a page must get, after each act
SESSION = """
from django.test import Client
from webapp.accounts.models import User
client = Client()
client.force_login(User.objects.get(), backend="django.contrib.auth.backends.ModelBackend")
print("; ".join(f"{one.key}={one.value}" for one in client.cookies.values()))
"""


class Follower(threading.Thread):
    """A page's socket: acknowledges, comes back from its cursor after every break, notes each event once and what did not fit."""

    def __init__(self, address: str, run: int, cookie: str) -> None:
        super().__init__(daemon=True)
        self._url = f"{address.replace('http', 'ws')}/ws/runs/{run}/?cursor="
        self._headers = {"Cookie": cookie, "Origin": address}
        self.events: list[tuple[object, ...]] = []  # (cursor, attempt, kind)
        self.connections = 0
        self.problems: list[str] = []
        self._over = threading.Event()

    def run(self) -> None:
        asyncio.run(self._follow())

    def end(self) -> None:
        self._over.set()
        self.join(30)

    def from_log(self) -> int:
        """How many of the events came from the trainer."""
        return sum(1 for _, attempt, _ in list(self.events) if attempt is not None)

    async def _follow(self) -> None:
        while not self._over.is_set():
            try:
                await self._one()
            except Exception:  # noqa: BLE001  whatever broke the socket: a page tries again
                await asyncio.sleep(0.3)

    async def _one(self) -> None:
        address = f"{self._url}{len(self.events)}"
        async with connect(address, additional_headers=self._headers, max_size=None) as socket:
            self.connections += 1
            while not self._over.is_set():
                try:
                    frame = json.loads(await asyncio.wait_for(socket.recv(), 1.0))
                except TimeoutError:
                    continue
                if frame["type"] != "events":
                    continue
                at = len(self.events)
                got = [event["c"] for event in frame["events"]]
                if got != list(range(at + 1, frame["to"] + 1)):
                    self.problems.append(f"after event {at} came {got[:3]} to {frame['to']}")
                    return
                self.events += [(event["c"], event["a"], event["k"]) for event in frame["events"]]
                await socket.send(json.dumps({"type": "ack", "to": frame["to"]}))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product, running."""
    home = tmp_path_factory.mktemp("cuts") / "home"
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    found = Stack(home, {**kept, "SPADEWORK_HOME": str(home), "OMP_NUM_THREADS": "1"})
    found.command("up", "--detach")
    yield found
    found.command("down")


def setting(stack: Stack, name: str) -> str:
    """One of the variables that lead to the stack's servers."""
    lines = [shlex.split(line.removeprefix("export "))[0] for line in stack.command("env").splitlines()]
    return dict(line.split("=", 1) for line in lines)[name]


def restarts(stack: Stack, service: str, number: signal.Signals) -> Callable[[], None]:
    """An act: the service gets the signal, and is up again as another process."""

    def act() -> None:
        before = stack.state()[service]["pid"]
        os.kill(int(str(before)), number)
        wait_until(
            lambda: stack.state().get(service, {}).get("pid") not in (None, before),
            within_s=PATIENCE_S, what=f"a new process of {service}",
        )  # fmt: skip
        stack.wait_healthy()

    return act


def test_a_real_run_loses_and_repeats_nothing_while_its_servers_are_cut(stack: Stack) -> None:
    stack.command("manage", "demo_link")
    choices = [word for one in SMALL for word in ("--set", one)]
    address = stack.command("manage", "start_demo_run", "--preset", "tiny", *choices).strip().rstrip("/")
    site, run = address.partition("/runs/")[0], int(address.rpartition("/")[2])
    cookie = stack.command("manage", "shell", "--no-imports", "--command", SESSION).strip()
    ((directory,),) = stack.query("SELECT directory FROM runs_run WHERE id = %s", run)
    broker = setting(stack, "REDIS_URL")

    def written() -> int:
        try:
            return sum(1 for _ in logged(Path(str(directory))))
        except FileNotFoundError:
            return 0

    def flush() -> None:
        with Redis.from_url(broker) as valkey:
            assert valkey.flushall()

    follower = Follower(site, run, cookie)
    follower.start()
    wait_until(lambda: follower.from_log() > MORE_EVENTS, within_s=PATIENCE_S, what="the run's beginning on the page")
    acts = {
        "Valkey emptied": flush,
        "PostgreSQL shut down at once": restarts(stack, "database", signal.SIGQUIT),
        "the web server killed": restarts(stack, "web", signal.SIGKILL),
        "Valkey killed": restarts(stack, "broker", signal.SIGKILL),
        "PostgreSQL killed": restarts(stack, "database", signal.SIGKILL),
    }
    for name, act in acts.items():
        before = shown(stack, run)
        act()
        check_shown(before, shown(stack, run))
        goal = written() + MORE_EVENTS
        what = f"{MORE_EVENTS} more events after: {name}"
        wait_until(lambda goal=goal: written() >= goal, within_s=PATIENCE_S, what=what)
        wait_until(lambda goal=goal: follower.from_log() >= goal, within_s=PATIENCE_S, what=f"on the page, {what}")

    finish(stack, run)  # stops the run; database and event log agree line by line
    rows = shown(stack, run)
    events = [(cursor, attempt, kind) for cursor, attempt, _, kind in rows]
    assert [row[1:] for row in rows if row[1] is not None] == list(
        logged(Path(str(directory)))
    )  # in the log's order too
    found = stack.query("SELECT status, attempt, gap, rollouts_done, last_cursor FROM runs_run WHERE id = %s", run)
    ((status, attempt, gap, rollouts_done, last),) = found
    assert (status, attempt, gap, last) == ("stopped", 1, False, len(events))
    check_each_page_has_all(site, run, cookie, follower, events)
    with urlopen(Request(f"{site}/runs/{run}/", headers={"Cookie": cookie}), timeout=60) as answer:
        done = re.search(r"data-rollouts-done[^>]*>\s*(\d+)", answer.read().decode())
    assert done
    assert int(done[1]) == rollouts_done == sum(1 for _, _, kind in events if kind == "rollout_finished") > 0


def check_each_page_has_all(
    site: str, run: int, cookie: str, follower: Follower, events: list[tuple[object, ...]]
) -> None:
    """The page that was open all the time, and one that is opened now, got every event in its place once."""
    late = Follower(site, run, cookie)
    late.start()
    for page in (follower, late):
        wait_until(lambda page=page: len(page.events) >= len(events), within_s=PATIENCE_S, what="all events on a page")
        page.end()
        assert page.events == events
        assert page.problems == []
    assert (follower.connections > 1, late.connections) == (True, 1)
