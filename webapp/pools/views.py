"""Pages of pools: the list, one pool with its build, and putting environments in from the list of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db import transaction
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.chips import FilterMenu
from webapp.core.requests import has_nul, signed_in_user
from webapp.environments.selectors import matching_ids
from webapp.environments.views import filter_in
from webapp.pools import selectors, services
from webapp.pools.archive import archive_path
from webapp.pools.models import Pool
from webapp.runs.errors import ActRefused
from webapp.runs.selectors import access_run

ACTS: dict[str, Callable[..., Any]] = {
    "build": services.build_pool,
    "stop": services.cancel_build,
    "delete": services.delete_pool,
}


@require_role(Role.VIEWER)
@require_safe
def pool_list(request: HttpRequest) -> HttpResponse:
    """All pools, newest first."""
    page = selectors.list_pools(cursor=request.GET.get("after", ""))
    return render(request, "pools/list.html", {"page": page})


@require_role(Role.REVIEWER)
@require_POST
def choose(request: HttpRequest, run_id: int) -> HttpResponse:
    """Put environments of a run into a pool: the ticked ones (``key``), or all that the list's filters let through (``what=all``)."""
    run = access_run(run_id=run_id)
    query = request.POST.get("query", "")[:2000]
    if has_nul(request.POST) or has_nul(QueryDict(query)):
        raise BadRequest("What was chosen holds a NUL character; leave it out.")
    chosen = filter_in(QueryDict(query))
    keys = None if request.POST.get("what") == "all" else request.POST.getlist("key")
    actor = signed_in_user(request)
    try:
        ids = matching_ids(run=run, chosen=chosen, keys=keys)
        if not ids:
            raise ActRefused("No environment is chosen: tick some, or take all that match.")
        number = request.POST.get("pool", "")
        with transaction.atomic():  # what is refused leaves no empty pool
            if number.isdecimal() and len(number) < 19:
                pool = selectors.access_pool(pool_id=int(number))
            else:
                pool = services.create_pool(actor=actor, name=request.POST.get("name", "") or f"from {run.name}")
            added = services.add_environments(actor=actor, pool_id=pool.pk, environment_ids=ids)
        messages.success(
            request, f"{added} of {len(ids)} environments were added to the pool; the others were in it already."
        )
        return redirect("pools:page", pool.pk)
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect(f"{reverse('runs:environments', args=[run.pk])}?{QueryDict(query).urlencode()}")


@require_role(Role.VIEWER)
@require_safe
def pool_page(request: HttpRequest, pool_id: int) -> HttpResponse:
    """One pool: what is in it, its build, its download."""
    pool = selectors.access_pool(pool_id=pool_id)
    only_rejected = request.GET.get("show") == "rejected"
    page = selectors.items_of(pool=pool, only_rejected=only_rejected, cursor=request.GET.get("after", ""))
    menus = [FilterMenu(name="show", label="show", values=["rejected"])]
    context = {
        **_progress(request, pool),
        "page": page,
        "only_rejected": only_rejected,
        "menus": [menu.bound(request.GET) for menu in menus],
    }
    return render(request, "pools/page.html", context)


@require_role(Role.VIEWER)
@require_safe
def pool_progress(request: HttpRequest, pool_id: int) -> HttpResponse:
    """The build alone, for live updates."""
    return render(request, "pools/_progress.html", _progress(request, selectors.access_pool(pool_id=pool_id)))


def _progress(request: HttpRequest, pool: Pool) -> dict[str, Any]:
    return {
        "pool": pool, "counts": selectors.counts_of(pool=pool), "may_build": has_role(request.user, Role.REVIEWER),
        "is_building": pool.state == Pool.State.BUILDING,
        "can_download": pool.state == Pool.State.READY and archive_path(pool_id=pool.pk).is_file(),
    }  # fmt: skip


@require_role(Role.REVIEWER)
@require_POST
def pool_act(request: HttpRequest, pool_id: int, act: str) -> HttpResponse:
    """Build, stop a build, delete."""
    pool = selectors.access_pool(pool_id=pool_id)
    service = ACTS.get(act)
    if service is None:
        raise Http404("There is no such act.")
    try:
        service(actor=signed_in_user(request), pool_id=pool.pk)
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect("pools:list") if act == "delete" else redirect("pools:page", pool.pk)


@require_role(Role.REVIEWER)
@require_POST
def item_remove(request: HttpRequest, pool_id: int, item_id: int) -> HttpResponse:
    """Take one environment out."""
    pool = selectors.access_pool(pool_id=pool_id)
    try:
        services.remove_item(actor=signed_in_user(request), pool_id=pool.pk, item_id=item_id)
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect("pools:page", pool.pk)


@require_role(Role.VIEWER)
@require_safe
def download(request: HttpRequest, pool_id: int) -> FileResponse:
    """The archive; there is none before the build has judged every program."""
    return archive_of(selectors.access_pool(pool_id=pool_id))


def archive_of(pool: Pool) -> FileResponse:
    """The archive of a built pool. Raises Http404."""
    path = archive_path(pool_id=pool.pk)
    if pool.state != Pool.State.READY or not path.is_file():
        raise Http404("This pool is not built.")
    return FileResponse(
        path.open("rb"), as_attachment=True, filename=f"spade-pool-{pool.pk}.tar", content_type="application/x-tar"
    )
