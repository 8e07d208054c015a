"""How long pages take with 2,000 runs, one as large as the paper's: ``python -m tests.benchmarks.pages [--requests 40] [--small]``.

Fills a throw-away database by COPY (a few minutes), then asks each page many times, each time for another environment, pair,
filter or chart, as Django's test client does: everything but the network. Prints p50 and p95 of the server's time, and the size.
Exit code 1 when a figure asked for in the issue "The workbench" is missed. Run it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

from webapp.stack.throwaway import throwaway_services

#: Page → p95 in seconds that is asked for.
RUN_LIST_S, RUN_PAGE_S, FILTERED_S, PAIR_S, CHART_S = 0.5, 1.0, 0.5, 1.0, 0.5


def pages(run: Any, size: Any) -> dict[str, tuple[float, Callable[[], Iterator[str]]]]:
    """Name → the figure asked for, and addresses to ask again and again."""
    from tests.benchmarks._workload import SKILLS, metric_names
    from webapp.environments.selectors import FLAGS
    from webapp.runs.models import Run

    base, names = f"/runs/{run.pk}", metric_names(size)
    others = list(Run.objects.order_by("-id").values_list("id", flat=True)[1:5])
    keys = [
        f"r{of_set * size.regenerate_every:04d}-s{slot:02d}"
        for of_set in range(size.sets)
        for slot in (0, 7, 19)
        if slot < size.environments
    ]
    newest = [key for key in keys if key.startswith(f"r{(size.sets - 1) * size.regenerate_every:04d}")]
    compared = urlencode([("run", pk) for pk in (run.pk, *others)])

    def every(*addresses: str) -> Callable[[], Iterator[str]]:
        return lambda: iter(addresses)

    def each(address: str, values: Any) -> Callable[[], Iterator[str]]:
        return lambda: (address.format(value) for value in values)

    def charts(address: str, count: int) -> Callable[[], Iterator[str]]:
        groups = [names[at : at + count] for at in range(0, len(names), count)]
        return lambda: (f"{address}{urlencode([('name', name) for name in group])}&points=800" for group in groups)

    return {
        "run list": (RUN_LIST_S, every("/runs/", "/runs/?status=failed", "/runs/?tag=paper", "/runs/?owner=ana", "/runs/?show=all")),
        "run list, search": (RUN_LIST_S, every("/runs/?q=tank", "/runs/?q=note", "/runs/?q=%5E(Tank%7CGrid).*7%24&regex=1")),
        "run list, ordered by a metric": (RUN_LIST_S, every("/runs/?sort=-regret", "/runs/?sort=win", "/runs/?sort=-tokens&group=preset")),
        "run page": (RUN_PAGE_S, every(f"{base}/")),
        "run page, live parts": (CHART_S, every(f"{base}/head/", f"{base}/progress/", f"{base}/latest/")),
        "charts page": (RUN_PAGE_S, every(f"{base}/charts/")),
        "one chart": (CHART_S, charts(f"{base}/series/?", 1)),
        "twenty charts": (CHART_S, charts(f"{base}/series/?", 20)),
        "twenty charts by time": (CHART_S, charts(f"{base}/series/?times=1&", 20)),
        "regret by skill, chart": (CHART_S, every(f"{base}/regret/series/")),
        "compare five runs": (RUN_PAGE_S, every(f"/runs/compare/?{compared}")),
        "compare, one chart": (CHART_S, charts(f"/runs/compare/series/?{compared}&", 1)),
        "environments": (FILTERED_S, every(f"{base}/environments/")),
        "environments, by skill, text, state": (
            FILTERED_S,
            lambda: (f"{base}/environments/?{urlencode(query)}" for query in (
                *({"skill": skill} for skill in SKILLS), {"q": "Tank"}, {"q": "distance"}, {"state": "retired"}, {"rollout": 200})),
        ),
        "environments, by flag": (FILTERED_S, each(f"{base}/environments/?flag={{}}", FLAGS)),
        "environment": (RUN_PAGE_S, each(f"{base}/environments/{{}}/", keys)),
        "pair": (PAIR_S, lambda: (f"{base}/pairs/{key}/{play}/" for play in range(size.plays) for key in newest)),
        "episodes": (FILTERED_S, every(f"{base}/episodes/", f"{base}/episodes/?status=fault", f"{base}/episodes/?arm=hinted&rollout=40")),
        "episode": (PAIR_S, each(f"{base}/episodes/{{}}/", range(1, size.episodes, size.episodes // 50))),
        "regret": (RUN_PAGE_S, every(f"{base}/regret/")),
        "memory": (RUN_PAGE_S, every(f"{base}/memory/")),
        "corpus": (RUN_PAGE_S, every(f"{base}/corpus/")),
        "checkpoints": (RUN_PAGE_S, every(f"{base}/checkpoints/")),
        "config": (RUN_PAGE_S, every(f"{base}/config/")),
    }  # fmt: skip


def measure(client: Any, addresses: Callable[[], Iterator[str]], requests: int) -> tuple[list[float], int]:
    """Seconds of each request after one of warm-up, and the largest answer in bytes. Raises RuntimeError for anything but 200."""
    times: list[float] = []
    largest = 0
    for number, address in enumerate(islice(cycle(addresses()), requests + 1)):
        began = time.perf_counter()
        answer = client.get(address)
        elapsed = time.perf_counter() - began
        if answer.status_code != 200:
            raise RuntimeError(f"{address} answered {answer.status_code}")
        largest = max(largest, len(answer.content))
        if number:
            times.append(elapsed)
    return times, largest


def report(client: Any, run: Any, size: Any, requests: int, only: str) -> int:
    """Print a line a page; how many figures were missed."""
    missed = 0
    print(f"{'page':<40}{'p50 ms':>9}{'p95 ms':>9}{'asked ms':>10}{'KiB':>8}")
    for name, (asked_s, addresses) in pages(run, size).items():
        if only not in name:
            continue
        times, largest = measure(client, addresses, requests)
        p95 = quantiles(times, n=20)[-1]
        is_missed = p95 > asked_s
        missed += is_missed
        verdict = "   MISSED" if is_missed else ""
        print(
            f"{name:<40}{1000 * median(times):>9.0f}{1000 * p95:>9.0f}{1000 * asked_s:>10.0f}{largest / 1024:>8.0f}{verdict}",
            flush=True,
        )
    return missed


def main() -> int:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40, help="of each page (default: 40)")
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows, to see that it works")
    parser.add_argument("--only", default="", help="pages whose name has this")
    given = parser.parse_args()
    with throwaway_services() as services:
        os.environ.update(services, DJANGO_SETTINGS_MODULE="webapp.settings", SPADEWORK_STATIC_MANIFEST="no", SPADEWORK_PUBLIC_URL="http://127.0.0.1:8400",
                          SPADEWORK_LOG_LEVEL="ERROR")  # fmt: skip
        import django

        django.setup()
        from django.contrib.auth.models import Group
        from django.core.management import call_command
        from django.test import Client

        from tests.benchmarks._workload import Size, write
        from webapp.accounts.models import User

        call_command("migrate", verbosity=0)
        size = (
            Size(runs=30, rollouts=16, environments=6, plays=4, metrics=40, small_rollouts=6) if given.small else Size()
        )
        began = time.monotonic()
        run = write(size)
        print(
            f"{size.runs} runs, one with {size.rollouts} rollouts, {size.sets * size.environments} environments, "
            f"{size.episodes} transcripts, {size.metrics} metrics; written in {time.monotonic() - began:.0f} s"
        )
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        user = User.objects.create_user("bench")
        user.groups.add(Group.objects.get_or_create(name="operator")[0])
        client = Client(HTTP_HOST="127.0.0.1:8400")
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        missed = report(client, run, size, given.requests, given.only)
        print(json.dumps({"missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
