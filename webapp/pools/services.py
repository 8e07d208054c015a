"""What people do with pools. Each function owns its transaction and its audit entry; views check the role first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from django.db import transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.jobs import send
from webapp.pools.archive import remove_archive
from webapp.pools.models import Pool, PoolItem
from webapp.runs.errors import ActRefused
from webapp.runs.storable import storable_text

BUILD_TASK = "webapp.pools.tasks.build_pool"
ITEMS_A_POOL = 20_000
NAME_CHARS = 120
LICENCE_CHARS = 80


@transaction.atomic
def create_pool(*, actor: User, name: str, licence: str = "") -> Pool:
    """A new, empty draft. Raises ActRefused without a name."""
    cleaned = _line(name, NAME_CHARS)
    if not cleaned:
        raise ActRefused("A pool needs a name; type one.")
    pool = Pool.objects.create(by=actor, name=cleaned, licence=_line(licence, LICENCE_CHARS))
    record(actor=actor, action="pool.created", target=pool)
    return pool


@transaction.atomic
def add_environments(*, actor: User, pool_id: int, environment_ids: Iterable[int]) -> int:
    """Put environments into the pool; returns how many were not in it before. Raises ActRefused."""
    pool = _open(pool_id)
    chosen = dict.fromkeys(environment_ids)
    if not chosen:
        raise ActRefused("No environment is chosen.")
    there = set(pool.items.values_list("environment_id", flat=True))
    fresh = [pk for pk in chosen if pk not in there]
    if len(there) + len(fresh) > ITEMS_A_POOL:
        raise ActRefused(f"A pool holds at most {ITEMS_A_POOL:,} environments.")
    PoolItem.objects.bulk_create([PoolItem(pool=pool, environment_id=pk) for pk in fresh], batch_size=1000)
    if fresh:
        _outdate(pool)
    record(actor=actor, action="pool.filled", target=pool, detail={"added": len(fresh)})
    return len(fresh)


@transaction.atomic
def remove_item(*, actor: User, pool_id: int, item_id: int) -> Pool:
    """Take one environment out. Raises ActRefused."""
    pool = _open(pool_id)
    if pool.items.filter(pk=item_id).delete()[0]:
        _outdate(pool)
        record(actor=actor, action="pool.thinned", target=pool, detail={"item": item_id})
    return pool


@transaction.atomic
def build_pool(*, actor: User, pool_id: int) -> Pool:
    """Have every program judged again and the archive made, by a worker. Raises ActRefused."""
    pool = _open(pool_id)
    total = pool.items.count()
    if not total:
        raise ActRefused("The pool is empty; choose environments on the page of a run.")
    pool.items.update(accepted=None, failed_stage="", reason="")
    pool.state, pool.tested, pool.total, pool.failure = Pool.State.BUILDING, 0, total, ""
    pool.touched_at, pool.finished_at, pool.lease, pool.leased_until = timezone.now(), None, None, None
    pool.save()
    record(actor=actor, action="pool.built", target=pool, detail={"environments": total})
    transaction.on_commit(partial(send, BUILD_TASK, pool.pk))
    return pool


@transaction.atomic
def cancel_build(*, actor: User, pool_id: int) -> Pool:
    """Stop a build; the worker loses its lease and notices at its next program. Raises ActRefused when none is under way."""
    pool = _locked(pool_id)
    if pool.state != Pool.State.BUILDING:
        raise ActRefused(f"The pool is {pool.state}; there is nothing to stop.")
    pool.state, pool.lease, pool.leased_until = Pool.State.DRAFT, None, None
    pool.save(update_fields=["state", "lease", "leased_until"])
    record(actor=actor, action="pool.build_stopped", target=pool)
    return pool


@transaction.atomic
def delete_pool(*, actor: User, pool_id: int) -> None:
    """Delete the pool and its archive; the environments stay. Raises ActRefused while it is built."""
    pool = _open(pool_id)
    record(actor=actor, action="pool.deleted", target=pool)
    transaction.on_commit(partial(remove_archive, pool_id=pool.pk))
    pool.delete()


def _outdate(pool: Pool) -> None:
    """What was built no longer is what the pool holds: the archive is not offered any more."""
    pool.state, pool.archive_bytes, pool.archive_sha256, pool.finished_at = Pool.State.DRAFT, None, "", None
    pool.save()


def _open(pool_id: int) -> Pool:
    pool = _locked(pool_id)
    if pool.state == Pool.State.BUILDING:
        raise ActRefused(f"{pool} is being built; wait for it or stop the build.")
    return pool


def _locked(pool_id: int) -> Pool:
    pool = Pool.objects.select_for_update(no_key=True).filter(pk=pool_id).first()
    if pool is None:
        raise ActRefused(f"There is no pool {pool_id}.")
    return pool


def _line(text: str, limit: int) -> str:
    return " ".join(storable_text(text).split())[:limit]
