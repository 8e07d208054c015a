"""What pools show on the pages of environments (see core/panels.py)."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from webapp.accounts.roles import Role, has_role
from webapp.core.graph import Graph, Node
from webapp.core.hostile import plain
from webapp.core.requests import signed_in_user
from webapp.environments.models import Environment
from webapp.pools.selectors import drafts_for, pools_with
from webapp.runs.models import Run

LINEAGE_POOLS = 6


def choose_bar(request: HttpRequest, run: Run) -> SafeString:
    """Above the list of environments: put the ticked or all matching ones into a pool."""
    if not has_role(request.user, Role.REVIEWER):
        return SafeString("")
    context = {"run": run, "drafts": drafts_for(user=signed_in_user(request))}
    return render_to_string("pools/_choose.html", context, request=request)


def lineage(request: HttpRequest, environment: Environment) -> SafeString:
    """The pools an environment is in, as the last step of its life."""
    context = {"pools": pools_with(environment=environment)}
    return render_to_string("pools/_lineage.html", context, request=request)


def lineage_nodes(request: HttpRequest, graph: Graph, environment: Environment, subject: str) -> None:
    """The pools an environment is in, as nodes after it."""
    pools = list(pools_with(environment=environment))
    for pool in pools[:LINEAGE_POOLS]:
        url = reverse("pools:page", args=[pool.pk])
        graph.add(
            Node(
                id=f"pool-{pool.pk}", kind="pool", title=plain(pool.name)[:34], detail=pool.get_state_display(), url=url
            ),
            subject,
        )
    if len(pools) > LINEAGE_POOLS:
        graph.add(Node(id="pools-more", kind="pools", title=f"{len(pools) - LINEAGE_POOLS} more"), subject)
