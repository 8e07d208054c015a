"""Building a pool in a worker: every program through the gates in a fresh sandbox, then the archive. Imported by tasks only."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby, islice
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from webapp.environments.jobs import claim, release, renew
from webapp.environments.models import Environment
from webapp.environments.sandboxing.bench import Bench, BenchUnavailable, Demands
from webapp.pools.archive import FILES_BETWEEN_LOOKS, archive_path, part_path, remove_parts, write_archive
from webapp.pools.card import card, coverage
from webapp.pools.manifest import ManifestWriter, as_line
from webapp.pools.models import Pool, PoolItem
from webapp.runs.configuration import parse_config
from webapp.runs.errors import InvalidConfig
from webapp.runs.models import Run
from webapp.runs.storable import storable_text

log = logging.getLogger(__name__)

BATCH = 8  # programs judged between two looks at whether the build is still wanted
_ORDER = ("environment__run_id", "environment__rollout", "environment__slot", "environment__attempt", "environment_id")


class _Stopped(Exception):
    """Somebody stopped the build, or another worker took over."""


def build(*, pool_id: int) -> None:
    """Judge what is not judged yet in this build, then write the archive. A killed worker's build goes on where it was."""
    taken = claim(Pool, pool_id)
    if taken is None:
        return
    pool, lease = taken
    try:
        if pool.state == Pool.State.BUILDING:
            _withhold(pool)
            _judge_all(pool, lease)
            _finish(pool, lease)
    except _Stopped:
        return
    except (BenchUnavailable, InvalidConfig, OSError) as error:
        rows = Pool.objects.filter(pk=pool.pk, lease=lease, state=Pool.State.BUILDING)
        rows.update(state=Pool.State.FAILED, failure=storable_text(str(error)), finished_at=timezone.now())
    finally:
        release(Pool, pool.pk, lease)


def _withhold(pool: Pool) -> None:
    """What people quarantined or purged is left out, with that as the reason, and is not judged."""
    held = Q(environment__state=Environment.State.QUARANTINED)
    if apps.is_installed("webapp.review"):
        from webapp.review.selectors import withheld  # the folder of reviews may be gone

        chosen = Environment.objects.filter(pool_items__pool=pool)
        held |= Q(environment__in=withheld(environments=chosen).values("pk"))
    waiting = pool.items.filter(held, accepted=None)
    waiting.update(accepted=False, failed_stage="review", reason="quarantined or purged by a person")


def _judge_all(pool: Pool, lease: UUID) -> None:
    items = pool.items.filter(accepted=None).select_related("environment", "environment__run").order_by(*_ORDER)
    for _, of_run in groupby(items.iterator(chunk_size=100), key=lambda item: item.environment.run_id):
        waiting = iter(of_run)
        first = next(waiting)
        demands = Demands.of(parse_config(first.environment.run.config))
        bench = Bench()
        try:
            _judge(bench, demands, _batches(first, waiting), pool, lease)
        finally:
            bench.close()


def _batches(first: PoolItem, rest: Iterator[PoolItem]) -> Iterator[list[PoolItem]]:
    batch = [first, *islice(rest, BATCH - 1)]
    while batch:
        yield batch
        batch = list(islice(rest, BATCH))


def _judge(bench: Bench, demands: Demands, batches: Iterator[list[PoolItem]], pool: Pool, lease: UUID) -> None:
    with ThreadPoolExecutor(max(1, min(BATCH, os.cpu_count() or 1))) as threads:
        for batch in batches:
            _still_wanted(pool, lease)
            codes = [item.environment.code for item in batch]
            with bench.borrow(demands) as sandbox:
                reports = list(threads.map(partial(sandbox.examine, kind=demands.kind, guess=demands.guess), codes))
            for item, report in zip(batch, reports, strict=True):
                failed = next((stage for stage in report.stages if stage.outcome == "failed"), None)
                item.accepted = report.accepted
                item.failed_stage = report.failed_stage or ""
                item.reason = storable_text(failed.message[:500]) if failed else ""
            with transaction.atomic():
                _still_wanted(pool, lease)  # locks the pool: nothing is stored for a build that was stopped meanwhile
                PoolItem.objects.bulk_update(batch, ["accepted", "failed_stage", "reason"])
                Pool.objects.filter(pk=pool.pk).update(tested=pool.items.exclude(accepted=None).count())


def _still_wanted(pool: Pool, lease: UUID) -> None:
    """Hold the lease longer. Raises _Stopped when it is gone: whoever stops a build takes it away."""
    if not renew(Pool, pool.pk, lease):
        raise _Stopped


def _finish(pool: Pool, lease: UUID) -> None:
    """Write the archive aside; it takes its place in the transaction that finds the build still wanted."""
    alive = partial(_still_wanted, pool, lease)
    alive()
    remove_parts(pool_id=pool.pk)
    part = part_path(pool_id=pool.pk, lease=lease)
    try:
        size, digest = write_archive(path=part, files=files_of(pool, alive), alive=alive)
        with transaction.atomic():
            rows = Pool.objects.filter(pk=pool.pk, lease=lease, state=Pool.State.BUILDING)
            ready = {"state": Pool.State.READY, "archive_bytes": size, "archive_sha256": digest}
            if rows.update(**ready, finished_at=timezone.now()) != 1:
                raise _Stopped
            part.rename(archive_path(pool_id=pool.pk))
    finally:
        part.unlink(missing_ok=True)


def files_of(pool: Pool, alive: Callable[[], None]) -> dict[str, bytes]:
    """Every file of the pool but the checksums, by name, from the accepted items. ``alive`` is called now and then."""
    accepted = pool.items.filter(accepted=True).select_related(
        "environment", "environment__document", "environment__run"
    )
    files: dict[str, bytes] = {}
    entries: list[dict[str, Any]] = []
    covered = []
    duplicates = 0
    for _, of_run in groupby(accepted.order_by(*_ORDER), key=lambda item: item.environment.run_id):
        environments = [item.environment for item in of_run]
        run: Run = environments[0].run
        alive()
        covered.append(coverage(run=run, exported=environments))
        writer = ManifestWriter(run, environments, licence=pool.licence)
        for start in range(0, len(environments), FILES_BETWEEN_LOOKS):
            alive()
            duplicates += _add(files, entries, writer, environments[start : start + FILES_BETWEEN_LOOKS])
    rejected = Counter(pool.items.filter(accepted=False).order_by("pk").values_list("failed_stage", flat=True))
    summary = {
        "accepted": len(entries), "duplicates": duplicates, "rejected": sum(rejected.values()),
        "rejected_by_stage": dict(sorted(rejected.items())), "gates": "parse to solvable, in a fresh sandbox",
    }  # fmt: skip
    text = card(
        name=pool.name, licence=pool.licence, entries=entries, runs=covered, rejected=rejected, duplicates=duplicates
    )
    files["manifest.jsonl"] = b"".join(as_line(entry) for entry in entries)
    files["validation_summary.json"] = json.dumps(summary, indent=1).encode() + b"\n"
    files["README.md"] = text.encode()
    return files


def _add(
    files: dict[str, bytes], entries: list[dict[str, Any]], writer: ManifestWriter, environments: Sequence[Environment]
) -> int:
    """Add program, hint and line of each environment; returns how many were there already under the same name."""
    duplicates = 0
    for environment in environments:
        entry = writer.line(environment)
        name = f"games/{entry['file_name']}"
        if name in files:
            duplicates += 1
            continue
        files[name] = environment.code.encode()
        if entry["hint_sha256"] is not None:
            files[f"hints/{entry['file_name'].removesuffix('.py')}_hint.txt"] = (environment.hint_text or "").encode()
        entries.append(entry)
    return duplicates
