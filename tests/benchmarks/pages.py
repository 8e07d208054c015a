"""How long pages take with 2,000 runs, one as large as the paper's: ``python -m tests.benchmarks.pages [--requests 40] [--small]``.

Fills a throw-away database by COPY (a few minutes; ``--keep DIR`` keeps it for the next call), then asks each page and each list of the
API many times (``_addresses.py``), each time for another environment, pair, filter or chart, as Django's test client does: everything
but the network. Prints p50 and p95 of the server's time, and the size. Exit code 1 when a figure asked for is missed.

Run it alone, or with ``--cpu`` on a machine that others use too: then what counts is the time that web process and database spent on a
processor, which is the server's time where one is free and everything is in memory. Queries are then not spread over several processes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from webapp.stack.throwaway import throwaway_services


def cpu_clock() -> Callable[[], float]:
    """Seconds that this process and the process of its database connection have spent on processors, from now on one query one process."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
    spent = Path(f"/proc/{backend}/schedstat")
    return lambda: time.process_time() + int(spent.read_text().split()[0]) / 1e9


def measure(
    client: Any, addresses: Callable[[], Iterator[str]], requests: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], int]:
    """Seconds of each request after one of warm-up, and the largest answer in bytes. Raises RuntimeError for anything but 200."""
    times: list[float] = []
    largest = 0
    for number, address in enumerate(islice(cycle(addresses()), requests + 1)):
        began = clock()
        answer = client.get(address)
        elapsed = clock() - began
        if answer.status_code != 200:
            raise RuntimeError(f"{address} answered {answer.status_code}")
        largest = max(largest, len(answer.content))
        if number:
            times.append(elapsed)
    return times, largest


def report(client: Any, asked: Any, requests: int, only: str, clock: Callable[[], float]) -> int:
    """Print a line a page; how many figures were missed."""
    missed = 0
    print(f"{'page':<40}{'p50 ms':>9}{'p95 ms':>9}{'asked ms':>10}{'KiB':>8}")
    for name, (asked_s, addresses) in asked.items():
        if not any(part in name for part in only.split("|")):
            continue
        times, largest = measure(client, addresses, requests, clock)
        p95 = quantiles(times, n=20)[-1]
        is_missed = p95 > asked_s
        missed += is_missed
        verdict = "   MISSED" if is_missed else ""
        print(
            f"{name:<40}{1000 * median(times):>9.0f}{1000 * p95:>9.0f}{1000 * asked_s:>10.0f}{largest / 1024:>8.0f}{verdict}",
            flush=True,
        )
    return missed


def prepared(size: Any, mark: Path | None) -> Any:
    """The large run of a filled database; ``mark`` is a file that says, once the database is full, how large it was made."""
    from tests.benchmarks._workload import write
    from tests.benchmarks._workload_around import write_around
    from webapp.runs.models import Run

    if mark is not None and mark.exists():
        if mark.read_text() != repr(size):
            raise SystemExit(
                f"{mark.parent} holds data of another size; give another directory to --keep, or delete it"
            )
        return Run.objects.order_by("-id")[0]
    if Run.objects.exists():
        raise SystemExit("the directory given to --keep was not filled to the end; delete it")
    began = time.monotonic()
    run = write(size)
    write_around(run, size)
    print(f"written in {time.monotonic() - began:.0f} s")
    if mark is not None:
        mark.write_text(repr(size))
    return run


def main() -> int:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40, help="of each page (default: 40)")
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows, to see that it works")
    parser.add_argument("--only", default="", help="pages whose name has this, or one of several with | between")
    parser.add_argument("--keep", type=Path, help="a directory for the database, used again by the next call")
    parser.add_argument("--cpu", action="store_true", help="time on processors instead of time on the clock")
    given = parser.parse_args()
    with throwaway_services(given.keep) as services:
        os.environ.update(services, DJANGO_SETTINGS_MODULE="webapp.settings", SPADEWORK_STATIC_MANIFEST="no", SPADEWORK_PUBLIC_URL="http://127.0.0.1:8400",
                          SPADEWORK_LOG_LEVEL="ERROR")  # fmt: skip
        import django

        django.setup()
        from django.contrib.auth.models import Group
        from django.core.management import call_command
        from django.test import Client

        from tests.benchmarks._addresses import pages
        from tests.benchmarks._workload import Size
        from webapp.accounts.models import User

        call_command("migrate", verbosity=0)
        size = Size.small() if given.small else Size()
        run = prepared(size, given.keep / "filled" if given.keep else None)
        print(
            f"{size.runs} runs, one with {size.rollouts} rollouts, {size.sets * size.environments} environments, "
            f"{size.episodes} transcripts, {size.metrics} metrics"
        )
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        user, _ = User.objects.get_or_create(username="bench")
        user.groups.add(Group.objects.get_or_create(name="admin")[0])
        client = Client(HTTP_HOST="127.0.0.1:8400")
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        missed = report(
            client, pages(run, size), given.requests, given.only, cpu_clock() if given.cpu else time.perf_counter
        )
        print(json.dumps({"missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
