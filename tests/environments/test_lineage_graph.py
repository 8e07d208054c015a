"""The lineage as a graph: every step is a node, every list is bounded, and what models wrote is text."""

from __future__ import annotations

import json
import re
from typing import Any

from django.test import Client

from tests.environments.test_lineage import family
from tests.pages.synthetic import ATTACKS

__all__ = ["family"]


def graph_of(client: Client, run: Any, key: str) -> dict[str, Any]:
    html = client.get(f"/runs/{run.pk}/environments/{key}/lineage/").content.decode()
    found = re.search(r'<script id="lineage-graph" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])  # type: ignore[no-any-return]


def kinds(graph: dict[str, Any]) -> list[str]:
    return [node["kind"] for node in graph["nodes"]]


def test_every_step_of_a_life_is_a_node_with_an_edge_to_the_next(
    family: dict[str, Any], run: Any, viewer: Client
) -> None:
    graph = graph_of(viewer, run, family["parent"].key)
    edges = {(edge["from"], edge["to"]) for edge in graph["edges"]}
    ids = [node["id"] for node in graph["nodes"]]
    assert len(ids) == len(set(ids))
    assert {end for edge in edges for end in edge} <= set(ids)
    own, above, below = (f"environment-{family[name].key}" for name in ("parent", "grandparent", "child"))
    attempts = [node["id"] for node in graph["nodes"] if node["kind"] == "design attempt"]
    accepted = attempts[-1]
    assert {
        ("document", attempts[0]),
        (above, attempts[0]),
        (accepted, "gates"),
        ("gates", own),
        (own, "hint"),
    } <= edges
    assert {
        ("hint", "episodes-hinted"),
        (own, "episodes-unhinted"),
        ("episodes-hinted", "regret"),
        ("regret", "memory"),
    } <= edges
    assert ("memory", below) in edges
    assert next(node for node in graph["nodes"] if node["id"] == own)["tone"] == "mark"


def test_a_rejected_attempt_comes_before_the_next_with_its_reason(run: Any, viewer: Client) -> None:
    environment = run.environments.filter(superseded=False).first()
    candidate = type(environment.candidate).objects.get(pk=environment.candidate_id)
    candidate.pk, candidate.key, candidate.accepted = None, f"{environment.key}-a0", False
    candidate.failed_stage, candidate.reason = "contract", "reset gives no observation"
    candidate.save()
    graph = graph_of(viewer, run, environment.key)
    node = next(node for node in graph["nodes"] if node["id"] == f"attempt-{candidate.pk}")
    assert node["tone"] == "bad"
    assert node["detail"] == "rejected at contract: reset gives no observation"


def test_flags_and_pools_are_nodes_after_the_environment(run: Any, viewer: Client, reviewer: Any) -> None:
    from webapp.pools.services import add_environments, create_pool
    from webapp.review.models import FlagKind
    from webapp.review.services import place_flag

    environment = run.environments.filter(superseded=False).first()
    place_flag(
        actor=reviewer, environment_id=environment.pk, kind_id=FlagKind.objects.get(key="shortcut").pk, severity=3
    )
    pool = create_pool(actor=reviewer, name="tanks", licence="")
    add_environments(actor=reviewer, pool_id=pool.pk, environment_ids=[environment.pk])
    graph = graph_of(viewer, run, environment.key)
    edges = {(edge["from"], edge["to"]) for edge in graph["edges"]}
    flag = next(node for node in graph["nodes"] if node["kind"] == "flag")
    assert (flag["tone"], (f"environment-{environment.key}", flag["id"]) in edges) == ("bad", True)
    assert (f"environment-{environment.key}", f"pool-{pool.pk}") in edges


def test_a_family_of_hundreds_is_bounded_and_says_how_many_are_left_out(run: Any, viewer: Client) -> None:
    from webapp.environments.lineage_graph import KIN_DRAWN

    first, *others = run.environments.filter(superseded=False).order_by("rollout", "slot")
    rows = []
    for index in range(300):
        row = type(first).objects.get(pk=others[0].pk)
        row.pk, row.key, row.slot, row.candidate_id, row.examples = (
            None,
            f"x{index:03d}-s00",
            100 + index,
            None,
            [first.key],
        )
        rows.append(row)
    type(first).objects.bulk_create(rows)
    graph = graph_of(viewer, run, first.key)
    assert len(graph["nodes"]) < KIN_DRAWN + 20
    more = next(node for node in graph["nodes"] if node["id"] == "more-children")
    assert int(more["title"].split(" ")[0]) >= 300 - KIN_DRAWN


def test_hostile_names_are_text_in_the_graph(run: Any, viewer: Client) -> None:
    environment = run.environments.filter(superseded=False).first()
    environment.class_name = f"{ATTACKS[2]}{ATTACKS[6]}"
    environment.hint_text = ATTACKS[0]
    environment.save()
    html = viewer.get(f"/runs/{run.pk}/environments/{environment.key}/lineage/").content.decode()
    assert "<script>alert" not in html
    graph = graph_of(viewer, run, environment.key)
    assert not {"\u202e", "\x1b"} & set(json.dumps(graph, ensure_ascii=False))
