"""Which addresses ``pages.py`` asks for, and how fast each page is to be.

p95 in seconds: what the issue "The workbench" asks for where it names a page, else a second, half a second for what pages fetch while
somebody looks at them, and half a second for lists of the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

from tests.benchmarks._workload import SKILLS, Size, metric_names
from webapp.accounts.models import User
from webapp.alerts.models import Alert
from webapp.corpora.models import Corpus
from webapp.environments.selectors import FLAGS
from webapp.pools.models import Pool
from webapp.review.models import FlagKind, Queue, QueueItem
from webapp.runs.models import Run

RUN_LIST_S, RUN_PAGE_S, FILTERED_S, PAIR_S, CHART_S = 0.5, 1.0, 0.5, 1.0, 0.5
PAGE_S, API_S = 1.0, 0.5

#: Name → the figure asked for, and addresses to ask again and again.
Pages = dict[str, tuple[float, Callable[[], Iterator[str]]]]


def every(*addresses: str) -> Callable[[], Iterator[str]]:
    """These, in their order."""
    return lambda: iter(addresses)


def each(address: str, values: Iterable[Any]) -> Callable[[], Iterator[str]]:
    """The address with each value."""
    kept = list(values)
    return lambda: (address.format(value) for value in kept)


def pages(run: Run, size: Size) -> Pages:
    """All of them."""
    return {
        **list_pages(),
        **run_pages(run, size),
        **environment_pages(run, size),
        **shared_pages(run),
        **api_pages(run, size),
    }


def list_pages() -> Pages:
    """The list of runs, and the queue."""
    return {
        "run list": (RUN_LIST_S, every("/runs/", "/runs/?status=failed", "/runs/?tag=paper", "/runs/?owner=ana", "/runs/?show=all")),
        "run list, search": (RUN_LIST_S, every("/runs/?q=tank", "/runs/?q=note", "/runs/?q=%5E(Tank%7CGrid).*7%24&regex=1")),
        "run list, ordered by a metric": (RUN_LIST_S, every("/runs/?sort=-regret", "/runs/?sort=win", "/runs/?sort=-tokens&group=preset")),
        "run queue": (PAGE_S, every("/runs/queue/")),
        "start form": (PAGE_S, every("/runs/new/", "/runs/new/?preset=demo")),
    }  # fmt: skip


def run_pages(run: Run, size: Size) -> Pages:
    """Overview, charts and tabs of the large run."""
    base, names = f"/runs/{run.pk}", metric_names(size)
    others = list(Run.objects.order_by("-id").values_list("id", flat=True)[1:5])
    compared = urlencode([("run", pk) for pk in (run.pk, *others)])

    def charts(address: str, count: int) -> Callable[[], Iterator[str]]:
        groups = [names[at : at + count] for at in range(0, len(names), count)]
        return lambda: (f"{address}{urlencode([('name', name) for name in group])}&points=800" for group in groups)

    system = urlencode([("name", f"system/{name}") for name in ("cpu_cores", "memory_gib", "gpu_busy_percent")])
    return {
        "run page": (RUN_PAGE_S, every(f"{base}/")),
        "run page, live parts": (CHART_S, every(f"{base}/head/", f"{base}/progress/", f"{base}/latest/")),
        "charts page": (RUN_PAGE_S, every(f"{base}/charts/")),
        "one chart": (CHART_S, charts(f"{base}/series/?", 1)),
        "twenty charts": (CHART_S, charts(f"{base}/series/?", 20)),
        "twenty charts by time": (CHART_S, charts(f"{base}/series/?times=1&", 20)),
        "regret by skill, chart": (CHART_S, every(f"{base}/regret/series/")),
        "compare five runs": (RUN_PAGE_S, every(f"/runs/compare/?{compared}")),
        "compare, one chart": (CHART_S, charts(f"/runs/compare/series/?{compared}&", 1)),
        "checkpoints": (RUN_PAGE_S, every(f"{base}/checkpoints/")),
        "config": (RUN_PAGE_S, every(f"{base}/config/")),
        "system": (RUN_PAGE_S, every(f"{base}/system/")),
        "system, charts": (CHART_S, every(f"{base}/system/series/?{system}&points=800")),
        "alerts of the run": (PAGE_S, every(f"{base}/alerts/", f"{base}/alerts/?kind=no_spread")),
    }  # fmt: skip


def environment_pages(run: Run, size: Size) -> Pages:
    """Environments, episodes and what is said about all of them."""
    base, keys = f"/runs/{run.pk}", _keys(size)
    newest = [key for key in keys if key.startswith(f"r{(size.sets - 1) * size.regenerate_every:04d}")]
    narrowings = [
        *({"skill": skill} for skill in SKILLS), {"q": "Tank"}, {"q": "distance"}, {"state": "retired"}, {"rollout": 200},
    ]  # fmt: skip
    parent, kinds = "r0000-s00", FlagKind.objects.order_by("id").values_list("key", flat=True)[:3]
    return {
        "environments": (FILTERED_S, every(f"{base}/environments/")),
        "environments, by skill, text, state": (FILTERED_S, each(f"{base}/environments/?{{}}", map(urlencode, narrowings))),
        "environments, by flag": (FILTERED_S, each(f"{base}/environments/?flag={{}}", FLAGS)),
        "environments, by review": (FILTERED_S, each(f"{base}/environments/?flagged={{}}", ("any", *kinds))),
        "environment": (RUN_PAGE_S, each(f"{base}/environments/{{}}/", keys)),
        "lineage": (PAGE_S, each(f"{base}/environments/{{}}/lineage/", keys)),
        "code against a parent": (PAGE_S, each(f"{base}/environments/{{}}/diff/?to={parent}", keys)),
        "play, start": (PAGE_S, each(f"{base}/environments/{{}}/play/", keys)),
        "gate runs": (PAGE_S, each(f"{base}/environments/{{}}/gates/", keys)),
        "candidates": (FILTERED_S, every(f"{base}/candidates/", f"{base}/candidates/?verdict=rejected", f"{base}/candidates/?stage=load")),
        "candidate": (PAGE_S, each(f"{base}/candidates/{{}}-a1/", keys)),
        "signals": (PAGE_S, every(f"{base}/signals/", f"{base}/signals/?rollout=0")),
        "designer rewards": (PAGE_S, every(f"{base}/rewards/", *(f"{base}/rewards/?skill={skill}" for skill in SKILLS[:3]))),
        "capture ledger": (PAGE_S, every(f"{base}/ledger/")),
        "pair": (PAIR_S, lambda: (f"{base}/pairs/{key}/{play}/" for play in range(size.plays) for key in newest)),
        "episodes": (FILTERED_S, every(f"{base}/episodes/", f"{base}/episodes/?status=fault", f"{base}/episodes/?arm=hinted&rollout=40")),
        "episode": (PAIR_S, each(f"{base}/episodes/{{}}/", _episodes(size))),
        "episode, find in it": (PAIR_S, each(f"{base}/episodes/{{}}/?find=probe+3", _episodes(size))),
        "two episodes beside": (PAIR_S, each(f"{base}/beside/?left=1&right={{}}", _episodes(size))),
        "regret": (RUN_PAGE_S, every(f"{base}/regret/")),
        "memory": (RUN_PAGE_S, every(f"{base}/memory/")),
        "corpus": (RUN_PAGE_S, every(f"{base}/corpus/")),
        "corpus document": (PAGE_S, each(f"{base}/corpus/{{}}/", range(1, size.sets * size.environments, size.environments))),
    }  # fmt: skip


def shared_pages(run: Run) -> Pages:
    """Pages beside the runs."""
    queues = list(Queue.objects.order_by("id").values_list("id", flat=True))
    items = QueueItem.objects.filter(queue=queues[0]).order_by("id").values_list("id", flat=True)[:200]
    alerts = list(Alert.objects.order_by("-id").values_list("kind", flat=True)[:3])
    corpora = list(Corpus.objects.order_by("-id").values_list("id", flat=True)[:5])
    person = User.objects.order_by("id").values_list("id", flat=True)[0]
    pools = list(Pool.objects.order_by("id").values_list("id", flat=True)[:5])
    return {
        "review dashboard": (PAGE_S, every("/review/", "/review/?span=week", f"/review/?run={run.pk}")),
        "flags": (PAGE_S, every("/review/flags/", "/review/flags/?state=proposed", "/review/flags/?state=held",
                                "/review/flags/?skill=Skill+C")),
        "flags, CSV": (PAGE_S, every("/review/flags.csv")),
        "flag kinds": (PAGE_S, every("/review/kinds/")),
        "review queues": (PAGE_S, every("/review/queues/")),
        "review queue": (
            PAGE_S, lambda: (f"/review/queues/{queue}/{state}" for state in ("", "?state=open", "?state=mine") for queue in queues)
        ),
        "review queue, labels": (PAGE_S, each("/review/queues/{}/labels.csv", queues)),
        "review item": (PAGE_S, each("/review/items/{}/", items)),
        "alerts": (PAGE_S, every("/alerts/", *(f"/alerts/?kind={kind}" for kind in alerts))),
        "webhooks": (PAGE_S, every("/alerts/webhooks/", "/alerts/webhooks/1/")),
        "pools": (PAGE_S, every("/pools/")),
        "pool": (PAGE_S, each("/pools/{}/", pools)),
        "corpora": (PAGE_S, every("/corpora/")),
        "one corpus": (PAGE_S, each("/corpora/{}/", corpora)),
        "disk": (PAGE_S, every("/keeping/disk/")),
        "retention": (PAGE_S, every("/keeping/retention/")),
        "imports": (PAGE_S, every("/keeping/imports/")),
        "audit log": (PAGE_S, every("/accounts/audit/")),
        "people": (PAGE_S, every("/accounts/users/", f"/accounts/users/{person}/")),
    }  # fmt: skip


def api_pages(run: Run, size: Size) -> Pages:
    """Lists of the API, of fifty rows and of the most that can be asked for, and single things."""
    base, most = f"/api/v1/runs/{run.pk}", "limit=500"
    sparse = _keys(size)[:: max(1, size.sets // 20)]
    return {
        "API, runs": (API_S, every("/api/v1/runs/", "/api/v1/runs/?sort=-regret", "/api/v1/runs/?q=tank")),
        "API, 500 runs": (PAGE_S, every(f"/api/v1/runs/?{most}")),
        "API, run": (API_S, every(f"{base}/")),
        "API, 50 rollouts with 200 metrics": (PAGE_S, every(f"{base}/rollouts/")),
        "API, environments": (API_S, every(f"{base}/environments/", f"{base}/environments/?flag=zerospread")),
        "API, 500 environments": (PAGE_S, every(f"{base}/environments/?{most}")),
        "API, environment": (API_S, each(f"{base}/environments/{{}}/", sparse)),
        "API, candidates": (API_S, every(f"{base}/candidates/")),
        "API, memory": (API_S, every(f"{base}/memory/")),
        "API, regret": (API_S, every(f"{base}/regret/")),
        "API, documents": (API_S, every(f"{base}/documents/")),
        "API, episodes": (API_S, every(f"{base}/episodes/", f"{base}/episodes/?status=fault", f"{base}/episodes/?rollout=40")),
        "API, 500 episodes": (PAGE_S, every(f"{base}/episodes/?{most}")),
        "API, episode": (API_S, each(f"{base}/episodes/{{}}/", _episodes(size))),
        "API, flags": (API_S, every("/api/v1/flags/", f"/api/v1/flags/?run={run.pk}")),
        "API, review queues": (API_S, every("/api/v1/review-queues/", "/api/v1/review-queues/1/items/")),
        "API, alerts": (API_S, every("/api/v1/alerts/", f"{base}/alerts/")),
        "API, pools": (API_S, every("/api/v1/pools/", "/api/v1/pools/1/environments/")),
        "API, audit log": (API_S, every("/api/v1/audit/")),
    }  # fmt: skip


def _keys(size: Size) -> list[str]:
    """Three environments of each set."""
    slots = [slot for slot in (0, 7, 19) if slot < size.environments]
    return [f"r{of_set * size.regenerate_every:04d}-s{slot:02d}" for of_set in range(size.sets) for slot in slots]


def _episodes(size: Size) -> range:
    return range(1, size.episodes, max(1, size.episodes // 50))
