"""Rows for page benchmarks: what people and workers leave around runs. Flags, queues, alerts, pools, corpora, disk, the audit log.

Written after ``_workload.write``, by COPY too, the same every time but for the clock: what is recent counts on some pages.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.benchmarks._workload import ROLLOUT_S, SKILLS, START, Size, copy_rows, restart_sequences
from webapp.accounts.models import AuditEntry, User
from webapp.alerts.models import Alert, Delivery, Kind, Webhook
from webapp.corpora.models import Corpus
from webapp.keeping.models import DiskUse
from webapp.pools.models import Pool, PoolItem
from webapp.review import signals
from webapp.review.models import Act, Effect, Flag, FlagKind, Queue, QueueItem, Review
from webapp.runs.models import Run, SystemSample

_NOW = timezone.now()
_SAMPLE_S = 15
_REVIEWERS = 3  # of an item of the first queue
_WEBHOOKS = 5
_FIRST_CORPUS = 1_000  # built-in ones are there already
_GB = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Around:
    """What there already is: ids of runs, oldest first, and how many environments the large one has."""

    size: Size
    runs: list[int]
    large: int
    people: list[int]

    @property
    def environments(self) -> int:
        """Their ids go from 1 to this."""
        return self.size.sets * self.size.environments


def write_around(run: Run, size: Size) -> None:
    """Fill everything around the runs that ``write`` made."""
    people = list(User.objects.order_by("id").values_list("id", flat=True))
    around = Around(
        size=size, runs=list(Run.objects.order_by("id").values_list("id", flat=True)), large=run.pk, people=people
    )
    kinds = list(FlagKind.objects.order_by("id").values_list("id", flat=True))
    copy_rows(Effect, _effects(around))
    copy_rows(Flag, _flags(around, kinds))
    copy_rows(Queue, _queues(around))
    copy_rows(QueueItem, _items(around))
    copy_rows(Review, _reviews(around, kinds))
    copy_rows(Alert, _alerts(around))
    copy_rows(Webhook, _webhooks(around))
    copy_rows(Delivery, _deliveries(around))
    copy_rows(Corpus, _corpora(around))
    copy_rows(Pool, _pools(around))
    copy_rows(PoolItem, _pool_items(around))
    copy_rows(DiskUse, _disk_uses(around))
    copy_rows(SystemSample, _samples(around))
    copy_rows(AuditEntry, _audit(around))
    _name_corpora(around)
    Run.objects.filter(pk=run.pk).update(alerts=Alert.objects.filter(run=run).count())
    restart_sequences(Effect, Flag, Queue, QueueItem, Review, Alert, Webhook, Corpus, Pool)


def _effects(around: Around) -> Iterator[dict[str, Any]]:
    """Every 20th environment is quarantined or down-weighted."""
    for number, environment in enumerate(range(1, around.environments + 1, 20), start=1):
        act = Act.QUARANTINE if number % 2 else Act.DOWN_WEIGHT
        yield {"id": number, "environment_id": environment, "act": str(act), "weight": None if number % 2 else 0.5,
               "asked_by_id": around.people[0], "asked_at": _NOW}  # fmt: skip


def _flags(around: Around, kinds: list[int]) -> Iterator[dict[str, Any]]:
    generator = random.Random(2)
    effects = {environment: number for number, environment in enumerate(range(1, around.environments + 1, 20), start=1)}
    plays = around.size.environments * around.size.plays
    for number in range(around.size.flags):
        environment = 1 + generator.randrange(around.environments)
        is_turn = number % 3 == 0
        effect = effects.get(environment)
        wish = Flag.NOTE if number % 2 else str(Act.QUARANTINE)
        yield {
            "run_id": around.large, "environment_id": environment, "subject": "turn" if is_turn else "environment",
            "episode_id": 1 + generator.randrange(plays) if is_turn else None, "turn": number % 8 if is_turn else None,
            "kind_id": kinds[generator.randrange(len(kinds))], "severity": 1 + number % 3, "comment": "pays without a valid action",
            "wish": wish, "effect_id": effect if wish != Flag.NOTE else None, "by_id": around.people[number % len(around.people)],
            "at": _NOW - timedelta(minutes=11 * number), "withdrawn_at": _NOW if number % 17 == 0 else None,
        }  # fmt: skip


def _queues(around: Around) -> Iterator[dict[str, Any]]:
    for number in range(around.size.queues):
        yield {
            "id": number + 1, "name": f"queue {number}", "run_id": around.large, "signals": json.dumps(list(signals.BY_KEY)),
            "threshold": 1.0, "skill": "" if number == 0 else SKILLS[number % len(SKILLS)], "blind": True,
            "reviewers_per_item": _REVIEWERS if number == 0 else 1, "created_by_id": around.people[0], "created_at": _NOW,
            "closed_at": _NOW if number == around.size.queues - 1 else None, "scanned_through": around.size.rollouts - 1,
            "scanned_attempt": 1,
        }  # fmt: skip


def _in_queues(around: Around) -> Iterator[tuple[int, int, int, int]]:
    """Item, queue, environment, places: the first queue holds every environment, each other one those of one skill."""
    item = 0
    for queue in range(around.size.queues):
        step, first = (1, 1) if queue == 0 else (len(SKILLS), 1 + queue % len(SKILLS))
        for environment in range(first, around.environments + 1, step):
            item += 1
            yield item, queue + 1, environment, _REVIEWERS if queue == 0 else 1


def _items(around: Around) -> Iterator[dict[str, Any]]:
    generator = random.Random(3)
    keys = list(signals.BY_KEY)
    for item, queue, environment, _ in _in_queues(around):
        reasons = [
            signals.Reason(signal=key, strength=generator.random(), text="won without a box", episode=None, turn=0)
            for key in generator.sample(keys, 2)
        ]
        yield {
            "id": item, "queue_id": queue, "environment_id": environment, "score": signals.suspicion_of(reasons),
            "reasons": json.dumps([reason.as_json() for reason in reasons]), "added_at": _NOW,
            "completed_at": _NOW if _is_done(item) else None,
        }  # fmt: skip


def _is_done(item: int) -> bool:
    return item % 2 == 0


def _reviews(around: Around, kinds: list[int]) -> Iterator[dict[str, Any]]:
    generator = random.Random(4)
    for item, _, _, places in _in_queues(around):
        for place in range(places):
            is_given = _is_done(item) or (place == 0 and item % 3 == 0 and places > 1)
            yield {
                "item_id": item, "place": place, "reviewer_id": around.people[place] if is_given else None,
                "given_at": _NOW - timedelta(minutes=item) if is_given else None,
                "kind_id": generator.choice(kinds) if is_given and generator.random() < 0.4 else None, "comment": "",
            }  # fmt: skip


def _alerts(around: Around) -> Iterator[dict[str, Any]]:
    """Half of them of the large run."""
    kinds = [str(kind) for kind in Kind]
    rollouts = around.size.rollouts
    for number in range(around.size.alerts):
        run = around.large if number % 2 else around.runs[number % len(around.runs)]
        at = number // len(kinds) % rollouts
        yield {"id": number + 1, "run_id": run, "kind": kinds[number % len(kinds)], "attempt": 1 + number // (len(kinds) * rollouts),
               "rollout": at, "last_rollout": at + number % 4, "message": "every group of this rollout was lost",
               "at": _NOW - timedelta(minutes=number)}  # fmt: skip


def _webhooks(around: Around) -> Iterator[dict[str, Any]]:
    for number in range(1, _WEBHOOKS + 1):
        yield {"id": number, "name": f"webhook {number}", "url": f"https://example.org/{number}", "salt": "0" * 32, "created_at": _NOW,
               "created_by_id": around.people[0]}  # fmt: skip


def _deliveries(around: Around) -> Iterator[dict[str, Any]]:
    body = json.dumps(
        {"kind": "never_won", "message": "every group of this rollout was lost", "run": {"name": "paper-sized"}}
    )
    for webhook in range(1, _WEBHOOKS + 1):
        for alert in range(1, min(around.size.deliveries, around.size.alerts) + 1):
            state = "failed" if alert % 50 == 0 else "delivered"
            yield {"webhook_id": webhook, "alert_id": alert, "body": body, "state": state, "tries": 1, "next_at": _NOW, "created_at": _NOW,
                   "finished_at": _NOW, "status": 200 if state == "delivered" else 500, "answer": "ok"}  # fmt: skip


def _source(number: int) -> str:
    return f"/corpora/{number}"


def _corpora(around: Around) -> Iterator[dict[str, Any]]:
    for number in range(1, around.size.corpora + 1):
        yield {
            "id": _FIRST_CORPUS + number, "name": f"corpus {number}", "origin": "uploaded", "source": _source(number), "state": "ready",
            "files": json.dumps([{"name": "documents.jsonl", "bytes": 40_000_000}]), "file_count": 1, "bytes": 40_000_000,
            "licence": "CC-BY-4.0", "documents": 12_000, "checked_at": _NOW, "created_at": _NOW, "touched_at": _NOW,
            "by_id": around.people[0],
        }  # fmt: skip


def _name_corpora(around: Around) -> None:
    """Every other run names one of the corpora in its settings."""
    for number in range(1, around.size.corpora + 1):
        for run in Run.objects.filter(pk__in=around.runs[2 * number :: 2 * around.size.corpora]):
            run.config["corpus"] = {**(run.config.get("corpus") or {}), "enabled": True, "source": _source(number)}
            run.save(update_fields=["config"])


def _pools(around: Around) -> Iterator[dict[str, Any]]:
    for number in range(1, around.size.pools + 1):
        yield {"id": number, "name": f"pool {number}", "licence": "CC-BY-4.0", "state": "draft" if number % 3 else "failed",
               "created_at": _NOW, "touched_at": _NOW, "by_id": around.people[number % len(around.people)]}  # fmt: skip


def _pool_items(around: Around) -> Iterator[dict[str, Any]]:
    """The first pool holds every environment, each other one fifty."""
    for pool in range(1, around.size.pools + 1):
        step = 1 if pool == 1 else max(1, around.environments // 50)
        for environment in range(1, around.environments + 1, step):
            yield {
                "pool_id": pool,
                "environment_id": environment,
                "accepted": None if pool % 3 else environment % 9 != 0,
            }


def _disk_uses(around: Around) -> Iterator[dict[str, Any]]:
    generator = random.Random(5)
    for run in around.runs:
        checkpoints, tensors = generator.randrange(400 * _GB), generator.randrange(20 * _GB)
        yield {"run_id": run, "total_bytes": checkpoints + tensors + _GB, "checkpoint_bytes": checkpoints, "tensor_bytes": tensors,
               "log_bytes": _GB, "is_ours": True, "measured_at": _NOW}  # fmt: skip


def _samples(around: Around) -> Iterator[dict[str, Any]]:
    generator = random.Random(6)
    for number in range(around.size.rollouts * ROLLOUT_S // _SAMPLE_S):
        yield {
            "run_id": around.large, "attempt": 1, "at": START + timedelta(seconds=_SAMPLE_S * number), "processes": 9,
            "cpu_cores": generator.uniform(0, 16), "memory_bytes": generator.randrange(100 * _GB), "disk_bytes": 2_000_000 * number,
            "disk_free_bytes": 900 * _GB, "gpu_busy_percent": generator.uniform(0, 100), "gpu_used_bytes": 80 * _GB,
        }  # fmt: skip


def _audit(around: Around) -> Iterator[dict[str, Any]]:
    actions = ("run.started", "flag.placed", "review.given", "run.tagged", "token.used")
    for number in range(around.size.audit_entries):
        run = around.runs[number % len(around.runs)]
        yield {"at": _NOW - timedelta(minutes=number), "actor_id": around.people[number % len(around.people)], "actor_name": "ana",
               "action": actions[number % len(actions)], "object_type": "runs.run", "object_id": str(run), "object_label": f"run {run}",
               "detail": json.dumps({"why": "asked for"})}  # fmt: skip
