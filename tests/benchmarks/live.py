"""How much the ingest takes in, and how soon browsers see it: ``python -m tests.benchmarks.live [--pages 50] [--sockets 200]``.

Starts PostgreSQL, Valkey and the web server, and lets a trainer's event log grow by a rollout at a time. First 10 KB transcripts are
taken in as fast as they go; then ``--pages`` open pages and ``--sockets`` further sockets follow a run. ``--chromium`` of the pages are in
one Chromium here; the others stand for people at their own machines, whose browsers' painting is not this machine's work: each is a
socket that also fetches the page's fragment again, as often as the page would. A page's delay lasts from the moment the rollout was on
disk until it shows its number; a socket's until the frame with it was there. Every socket counts its cursors: a frame lost or sent twice
ends the benchmark. Exit code 1 when a figure asked for in the issue "The workbench" is missed. Run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from webapp.stack.throwaway import throwaway_services

TRANSCRIPT_CHARS = 10_000
#: Figures that are asked for.
TRANSCRIPTS_PER_S, DELAY_S = 500.0, 1.0
_ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.05  # as the supervisor does


def make_run(directory: Path, rollouts: int, name: str) -> tuple[Any, Any, Any]:
    """(run, writer of its log, its ingester); two rollouts are there already."""
    from django.utils import timezone

    from tests.pages.make_run import Maker
    from tests.pages.synthetic import synthetic_config
    from webapp.runs.ingest import Ingester
    from webapp.runs.models import Run

    maker = Maker(directory, synthetic_config(rollouts=rollouts, environments=4, plays=4), seed=7, start=time.time())
    run = Run.objects.create(
        name=name, slug=name, config=json.loads(maker.run.config.read_text())["config"], preset="demo", seed=7, status="running",
        total_rollouts=rollouts, directory=str(directory), gpu_set=name, started_at=timezone.now(),
    )  # fmt: skip
    maker.attempt(1, 0, 2, finish=None)
    ingester = Ingester(run_id=run.pk, directory=directory)
    ingester.drain()
    return run, maker, ingester


def ingest_rate(directory: Path, transcripts: int) -> float:
    """Transcripts of about TRANSCRIPT_CHARS characters per second, from the log into the database."""
    from trainer.eventlog import EventLog
    from trainer.events import EpisodeFinished, Turn
    from webapp.episodes.models import Episode

    run, maker, ingester = make_run(directory, 3, "ingest")
    environment = maker.memory[0].key
    text = "The float closes the valve when the tank is full. " * (TRANSCRIPT_CHARS // 500)
    log = EventLog(maker.run, 1, rollout=2, clock=time.time)
    turns = [
        Turn(
            observation=f"{number} {text[:TRANSCRIPT_CHARS // 10]}", reply="\\boxed{probe 1 2}", action="\\boxed{probe 1 2}", reward=0.0,
            terminated=False, observation_tokens=200, reply_tokens=11, logprob_mean=-0.5, info={},
        )
        for number in range(10)
    ]  # fmt: skip
    for play in range(transcripts):
        log.emit(EpisodeFinished(
            episode=f"{environment}/o2/u/{play:05d}", environment=environment, arm="unhinted", offset=2, play=play, seed=play,
            status="lost", reward=0.0, turns=turns, final_observation="Out of turns.", prompt_tokens=96, total_tokens=2_400,
            trained_tokens=110, fault="", elapsed_s=0.2,
        ))  # fmt: skip
    log.close()
    before = Episode.objects.filter(run=run).count()
    began = time.monotonic()
    ingester.drain()
    elapsed = time.monotonic() - began
    taken = Episode.objects.filter(run=run).count() - before
    if taken != transcripts:
        raise RuntimeError(f"{taken} of {transcripts} transcripts were taken in")
    return transcripts / elapsed


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The product's web server on a free port, with the static files as in production."""
    from tests.browser_site import _free_port, _wait_until_up

    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    more = {
        "SPADEWORK_PUBLIC_URL": address,
        "SPADEWORK_STATIC_MANIFEST": "yes",
        "SPADEWORK_STATIC_ROOT": str(folder / "static"),
    }
    environment = {**os.environ, **more}
    collect = [sys.executable, "manage.py", "collectstatic", "--noinput", "-v0"]
    subprocess.run(collect, cwd=_ROOT, env=environment, check=True, timeout=300)
    command = [sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--ws-per-message-deflate", "false"]  # as the product starts it
    with (folder / "web.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_up(address, server, folder / "web.log")
            yield address
        finally:
            server.terminate()
            server.wait(timeout=30)


class Growing:
    """A trainer and its supervisor, in two threads: a rollout every ``every_s`` seconds, taken in as it comes."""

    def __init__(self, directory: Path, rollouts: int, every_s: float) -> None:
        self.run, self._maker, self._ingester = make_run(directory, rollouts + 3, "live")
        self._rollouts, self._every_s = rollouts, every_s
        self.written: dict[int, float] = {}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._take_in)]

    def _write(self) -> None:
        for rollout in range(2, self._rollouts + 2):
            time.sleep(self._every_s)
            self._maker.more(1, rollout, rollout + 1)
            self.written[rollout + 1] = time.time()

    def _take_in(self) -> None:
        from django.db import connections

        while not self._over.is_set():
            if not self._ingester.poll():
                time.sleep(_POLL_S)
        self._ingester.drain()
        connections.close_all()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def written_out(self) -> None:
        """Wait until the last rollout is written."""
        self._threads[0].join()

    def finish(self) -> None:
        """End the threads."""
        self._over.set()
        self._threads[1].join()


def follow(address: str, run_id: int, cursor: int, cookie: str, sockets: int, visitors: int, rollouts: int) -> None:
    """Body of the process with the sockets: prints ``ready``, then as JSON the arrival times of each number of rollouts done.

    The first ``visitors`` of the sockets belong to pages elsewhere, which also fetch their fragment again.
    """
    from websockets.asyncio.client import connect

    fragment = urllib.request.Request(
        f"{address}/runs/{run_id}/latest/", headers={"Cookie": cookie, "HX-Request": "true"}
    )

    def fetch() -> None:
        with urllib.request.urlopen(fragment, timeout=60) as answer:
            answer.read()

    async def refetch(wanted: asyncio.Event) -> None:
        while True:  # at most one request a second, never two at once: as static/js/run.js does
            await wanted.wait()
            await asyncio.sleep(0.3)
            wanted.clear()
            await asyncio.to_thread(fetch)
            await asyncio.sleep(0.7)

    url = f"{address.replace('http', 'ws')}/ws/runs/{run_id}/?cursor={cursor}"
    seen: dict[int, list[float]] = {}
    ready = asyncio.Event()
    open_sockets = 0

    parse = lru_cache(256)(json.loads)  # the same frame for all: reading it 250 times would be the load

    async def one(is_page: bool) -> None:
        nonlocal open_sockets
        at = cursor
        wanted = asyncio.Event()
        fetching = asyncio.create_task(refetch(wanted)) if is_page else None
        async with connect(url, additional_headers={"Cookie": cookie, "Origin": address}, max_size=None) as socket:
            open_sockets += 1
            if open_sockets == sockets:
                ready.set()
            async for message in socket:
                frame = parse(message)
                if frame["type"] != "events":
                    continue
                if frame["from"] != at + 1 or len(frame["events"]) != frame["to"] - frame["from"] + 1:
                    raise RuntimeError(f"a frame from {frame['from']} to {frame['to']} came after event {at}")
                at = frame["to"]
                await socket.send(json.dumps({"type": "ack", "to": at}))
                wanted.set()
                for event in frame["events"]:
                    if event["k"] == "rollout_finished":
                        seen.setdefault(event["r"] + 1, []).append(time.time())
                        if event["r"] + 1 == rollouts + 2:
                            if fetching is not None:
                                fetching.cancel()
                            return

    async def all_of_them() -> None:
        async def tell() -> None:
            if sockets:
                await ready.wait()
            print("ready", flush=True)

        async with asyncio.TaskGroup() as group:
            group.create_task(tell())
            for number in range(sockets):
                group.create_task(one(number < visitors))
                await asyncio.sleep(0.02)

    asyncio.run(all_of_them())
    print(json.dumps(seen), flush=True)


#: In the page: remembers when each number of finished rollouts was first in the document; a visible page paints it in its next frame.
_WATCH = """() => { window.shown = {}; const look = () => {
  window.shown[document.querySelector('[data-rollouts-done]').textContent.trim()] ??= Date.now() / 1000; };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true }); }"""


def measure_live(
    folder: Path, pages: int, visitors: int, sockets: int, rollouts: int, every_s: float
) -> dict[str, list[float]]:
    """Delays in seconds of the pages in Chromium (the one in front, and all) and of the sockets (`visitors` of them of pages elsewhere)."""
    from django.conf import settings
    from django.test import Client
    from playwright.sync_api import sync_playwright

    from tests.browser_site import CHROMIUM_FLAGS, chromium_path
    from webapp.accounts.models import User

    client = Client()
    client.force_login(User.objects.get(username="bench"), backend="django.contrib.auth.backends.ModelBackend")
    cookie = settings.SESSION_COOKIE_NAME
    session = client.cookies[cookie].value
    growing = Growing(folder / "live", rollouts, every_s)
    growing.run.refresh_from_db()
    with web_server(folder) as address, sync_playwright() as playwright:
        arguments = [
            address,
            growing.run.pk,
            growing.run.last_cursor,
            f"{cookie}={session}",
            sockets,
            visitors,
            rollouts,
        ]
        code = "import json,sys; from tests.benchmarks.live import follow; follow(*json.loads(sys.argv[1]))"
        followers = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(arguments)], cwd=_ROOT, stdout=subprocess.PIPE, text=True
        )
        assert followers.stdout is not None
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM_FLAGS)
        context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800})
        context.add_cookies([{"name": cookie, "value": session, "url": address}])
        tabs = []
        for _ in range(pages):
            tab = context.new_page()
            tab.goto(f"/runs/{growing.run.pk}/", timeout=120_000)
            tab.wait_for_function(
                "() => document.getElementById('live-chip')?.dataset.state === 'live'", timeout=120_000
            )
            tab.evaluate(_WATCH)
            tabs.append(tab)
        if followers.stdout.readline().strip() != "ready":
            raise RuntimeError("the sockets did not open")
        growing.start()
        growing.written_out()
        for tab in tabs:
            tab.wait_for_function("last => window.shown[last] !== undefined", arg=str(rollouts + 2), timeout=120_000)
        growing.finish()
        shown = [tab.evaluate("() => window.shown") for tab in tabs]
        arrived = json.loads(followers.stdout.readline())
        followers.wait(timeout=60)
        browser.close()
    delays = [[page[str(done)] - at for done, at in growing.written.items() if str(done) in page] for page in shown]
    for done in growing.written:
        if sockets and len(arrived[str(done)]) != sockets:
            raise RuntimeError(f"rollout {done} came {len(arrived[str(done)])} times to {sockets} sockets")
    return {
        "the page in front": delays[-1] if delays else [],
        "all pages": [delay for page in delays for delay in page],
        "sockets": [at - growing.written[int(done)] for done, times in arrived.items() for at in times],
    }


@contextmanager
def bench_site() -> Iterator[Path]:
    """Database and broker of their own, with one operator, and an empty folder for runs."""
    with throwaway_services() as services, tempfile.TemporaryDirectory(prefix="spadework-bench-") as name:
        os.environ.update(
            services,
            DJANGO_SETTINGS_MODULE="webapp.settings",
            SPADEWORK_LOG_LEVEL="ERROR",
            DJANGO_ALLOW_ASYNC_UNSAFE="1",
        )
        import django

        django.setup()
        from django.contrib.auth.models import Group
        from django.core.management import call_command

        from webapp.accounts.models import User

        call_command("migrate", verbosity=0)
        user = User.objects.create_user("bench")
        user.groups.add(Group.objects.get_or_create(name="operator")[0])
        yield Path(name)


def main() -> int:
    """Fill, follow, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument(
        "--chromium", type=int, default=5, help="how many of the pages a Chromium on this machine shows"
    )
    parser.add_argument("--sockets", type=int, default=200)
    parser.add_argument("--transcripts", type=int, default=3_000)
    parser.add_argument("--rollouts", type=int, default=20)
    parser.add_argument(
        "--every", type=float, default=4.0, help="seconds between rollouts (default: 4, as in the demo)"
    )
    given = parser.parse_args()
    missed = 0
    with bench_site() as folder:
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        rate = ingest_rate(folder / "ingest", given.transcripts)
        missed += rate < TRANSCRIPTS_PER_S
        verdict = "" if rate >= TRANSCRIPTS_PER_S else "   MISSED"
        print(
            f"ingest, transcripts of 10 KB per second{rate:>10.0f}   asked: at least {TRANSCRIPTS_PER_S:.0f}{verdict}",
            flush=True,
        )
        print(f"\n{'event to':<28}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}{'asked ms':>10}")
        here = min(given.pages, given.chromium)
        elsewhere = given.pages - here
        found = measure_live(folder, here, elsewhere, elsewhere + given.sockets, given.rollouts, given.every)
        for kind, delays in found.items():
            if len(delays) < 2:
                continue
            p95 = quantiles(delays, n=20, method="inclusive")[-1]
            missed += p95 > DELAY_S
            verdict = "   MISSED" if p95 > DELAY_S else ""
            print(
                f"{kind:<28}{1000 * median(delays):>9.0f}{1000 * p95:>9.0f}{1000 * max(delays):>9.0f}{1000 * DELAY_S:>10.0f}{verdict}"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
