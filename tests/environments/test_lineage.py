"""Where an environment came from and what it led to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client


@pytest.fixture
def family(run: Any) -> dict[str, Any]:
    """grandparent → parent → child, and child2 that saw both; three rollouts of nothing else."""
    a, b, c, d = list(run.environments.filter(superseded=False).order_by("rollout", "slot")[:4])
    run.environments.exclude(pk__in=[a.pk, b.pk, c.pk, d.pk]).delete()
    for child, examples, counter in ((a, [], []), (b, [a.key], []), (c, [b.key], []), (d, [a.key], [b.key])):
        child.examples, child.counter_examples = examples, counter
        child.save()
    return {"grandparent": a, "parent": b, "child": c, "both": d}


def shape(tree: list[Any]) -> list[Any]:
    return [(kin.key, kin.role, kin.again, shape(kin.kin)) for kin in tree]


def test_ancestors_are_found_generation_by_generation(family: dict[str, Any]) -> None:
    from webapp.environments.selectors_lineage import ancestors_of

    a, b = family["grandparent"].key, family["parent"].key
    assert shape(ancestors_of(environment=family["child"])) == [(b, "example", False, [(a, "example", False, [])])]


def test_an_ancestor_that_stands_above_is_not_told_twice(family: dict[str, Any]) -> None:
    from webapp.environments.selectors_lineage import ancestors_of

    a, b = family["grandparent"].key, family["parent"].key
    assert shape(ancestors_of(environment=family["both"])) == [
        (a, "example", False, []), (b, "counter-example", False, [(a, "example", True, [])]),
    ]  # fmt: skip


def test_descendants_are_those_whose_prompt_showed_it(family: dict[str, Any]) -> None:
    from webapp.environments.selectors_lineage import descendants_of

    tree = descendants_of(environment=family["grandparent"])
    assert [(kin.key, kin.role) for kin in tree] == [(family["parent"].key, "example"), (family["both"].key, "example")]
    below = [(kin.key, kin.role, kin.again) for kin in tree[0].kin]
    assert below == [(family["child"].key, "example", False), (family["both"].key, "counter-example", True)]


def test_a_circle_in_a_damaged_log_ends(family: dict[str, Any]) -> None:
    from webapp.environments.selectors_lineage import ancestors_of, descendants_of

    grandparent = family["grandparent"]
    grandparent.examples = [family["child"].key]
    grandparent.save()
    assert ancestors_of(environment=family["child"])[0].kin[0].kin[0].again is True
    assert descendants_of(environment=grandparent)


def test_the_tree_costs_a_query_per_generation(
    family: dict[str, Any], django_assert_max_num_queries: Callable[..., Any]
) -> None:
    from webapp.environments.selectors_lineage import ancestors_of, descendants_of

    with django_assert_max_num_queries(10):
        ancestors_of(environment=family["child"])
        descendants_of(environment=family["grandparent"])


def test_the_page_tells_the_life_of_an_environment(family: dict[str, Any], run: Any, viewer: Client) -> None:
    from webapp.environments.models import Candidate, MemoryRecord

    parent = family["parent"]
    first = Candidate.objects.filter(run=run, environment_key=parent.key).first()
    first.pk, first.key, first.accepted, first.failed_stage, first.reason = (
        None,
        f"{parent.key}-a9",
        False,
        "parse",
        "<b>line 3</b>",
    )
    first.save()
    MemoryRecord.objects.filter(run=run, environment_key=parent.key).delete()
    MemoryRecord.objects.create(
        run=run, attempt=1, rollout=0, environment=parent, environment_key=parent.key, skill="x", class_name="x", snippet="x",
        success_share=0.5, regret=0.25, removed_rollout=7, removed_reason="oldest",
    )  # fmt: skip
    html = viewer.get(f"/runs/{run.pk}/environments/{parent.key}/lineage/").content.decode()
    assert f"/environments/{family['grandparent'].key}/" in html
    assert f"/environments/{family['child'].key}/" in html
    assert "evicted in rollout 7: oldest" in html
    assert "&lt;b&gt;line 3" in html
    assert f"/environments/{parent.key}/diff/?to={family['grandparent'].key}" in html
    assert f"/runs/{run.pk}/corpus/" in html


def test_the_diff_to_a_parent_shows_both_sides(family: dict[str, Any], run: Any, viewer: Client) -> None:
    parent, child = family["parent"], family["child"]
    parent.code, child.code = "x = 1\ny = 2\n", "x = 1\ny = '<script>'\n"
    parent.save()
    child.save()
    answer = viewer.get(f"/runs/{run.pk}/environments/{child.key}/diff/?to={parent.key}")
    assert (answer.context["added"], answer.context["removed"]) == (1, 1)
    assert "&lt;script&gt;" in answer.content.decode()
    assert viewer.get(f"/runs/{run.pk}/environments/{child.key}/diff/?to=nothing").status_code == 404


def test_a_candidate_says_which_records_its_prompt_showed(family: dict[str, Any], run: Any, viewer: Client) -> None:
    from webapp.environments.models import Candidate, MemoryRecord

    record = MemoryRecord.objects.filter(run=run, superseded=False).first()
    record.removed_rollout, record.removed_reason = 3, "oldest"
    record.save()
    candidate = Candidate.objects.filter(run=run).last()
    candidate.examples = [record.environment_key]
    candidate.save()
    html = viewer.get(f"/runs/{run.pk}/candidates/{candidate.key}/").content.decode()
    assert "evicted in rollout 3 (oldest)" in html
