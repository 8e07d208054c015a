"""Reading pools."""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet
from django.http import Http404

from webapp.accounts.models import User
from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import Environment
from webapp.pools.models import Pool, PoolItem

PAGE_ROWS = 50


def list_pools(*, cursor: str = "", size: int = PAGE_ROWS) -> Page[Pool]:
    """Newest first, each with ``environments`` and ``runs``. Raises BadRequest for a damaged cursor."""
    rows = Pool.objects.select_related("by").annotate(
        environments=Count("items"), runs=Count("items__environment__run", distinct=True)
    )
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def drafts_for(*, user: User) -> list[Pool]:
    """The person's pools that can still be filled, newest first."""
    return list(Pool.objects.filter(by=user).exclude(state=Pool.State.BUILDING).order_by("-id")[:20])


def pools_with(*, environment: Environment) -> list[Pool]:
    """Pools the environment is in, newest first."""
    return list(Pool.objects.filter(items__environment=environment).order_by("-id")[:20])


def access_pool(*, pool_id: int) -> Pool:
    """The pool. Raises Http404."""
    pool = Pool.objects.select_related("by").filter(pk=pool_id).first()
    if pool is None:
        raise Http404(f"There is no pool {pool_id}.")
    return pool


def pooled_environments() -> QuerySet[PoolItem, int]:
    """Ids of environments that are in a pool."""
    return PoolItem.objects.values_list("environment", flat=True)


def items_of(*, pool: Pool, only_rejected: bool = False, cursor: str = "", size: int = PAGE_ROWS) -> Page[PoolItem]:
    """Environments of the pool in the order in which they were put in. Raises BadRequest for a damaged cursor."""
    rows = pool.items.select_related("environment", "environment__run").defer("environment__code")
    if only_rejected:
        rows = rows.filter(accepted=False)
    return keyset_page(rows, order=("id",), cursor=cursor, size=size)


def counts_of(*, pool: Pool) -> dict[str, int]:
    """Environments in the pool, and how many of them the last build accepted and rejected."""
    counts = pool.items.aggregate(
        all=Count("id"), passed=Count("id", filter=Q(accepted=True)), failed=Count("id", filter=Q(accepted=False))
    )
    return {"total": counts["all"], "accepted": counts["passed"], "rejected": counts["failed"]}
