"""Choosing environments on the page of a run, and the pages of pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client


def chosen(pool: Any) -> set[str]:
    return set(pool.items.values_list("environment__key", flat=True))


def newest() -> Any:
    from webapp.pools.models import Pool

    return Pool.objects.latest("pk")


def test_ticked_environments_go_into_a_new_pool(run: Any, as_role: Callable[[str], Client]) -> None:
    client = as_role("reviewer")
    answer = client.post(
        f"/pools/choose/{run.pk}/", {"key": ["r0000-s00", "r0002-s01"], "what": "chosen", "name": "two"}
    )
    assert answer["Location"] == f"/pools/{newest().pk}/"
    assert (newest().name, chosen(newest())) == ("two", {"r0000-s00", "r0002-s01"})


def test_all_that_the_filters_let_through_go_in_and_nothing_else(run: Any, as_role: Callable[[str], Client]) -> None:
    run.environments.filter(slot=1).update(hint_state="leaky")
    client = as_role("reviewer")
    client.post(f"/pools/choose/{run.pk}/", {"what": "all", "query": "flag=leaky&rollout=2"})
    assert chosen(newest()) == {"r0002-s01"}
    client.post(f"/pools/choose/{run.pk}/", {"what": "all", "query": "rollout=2", "pool": str(newest().pk)})
    assert chosen(newest()) == set(run.environments.filter(superseded=False, rollout=2).values_list("key", flat=True))


def test_a_refused_choice_leaves_no_empty_pool(
    run: Any, as_role: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.pools import services
    from webapp.pools.models import Pool

    monkeypatch.setattr(services, "ITEMS_A_POOL", 2)
    answer = as_role("reviewer").post(f"/pools/choose/{run.pk}/", {"what": "all", "name": "big"})
    assert answer["Location"].startswith(f"/runs/{run.pk}/environments/")
    assert not Pool.objects.exists()


def test_what_is_in_a_pool_already_does_not_count_against_its_limit(
    run: Any, as_role: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.pools import services

    monkeypatch.setattr(services, "ITEMS_A_POOL", 3)
    client = as_role("reviewer")
    client.post(f"/pools/choose/{run.pk}/", {"key": ["r0000-s00", "r0002-s01"], "what": "chosen", "name": "two"})
    pool, two = newest(), {"key": ["r0000-s00", "r0002-s01"], "what": "chosen", "pool": str(newest().pk)}
    assert client.post(f"/pools/choose/{run.pk}/", two)["Location"] == f"/pools/{pool.pk}/"
    client.post(f"/pools/choose/{run.pk}/", {**two, "key": ["r0000-s00", "r0002-s01", "r0002-s00"]})
    assert chosen(pool) == {"r0000-s00", "r0002-s01", "r0002-s00"}
    client.post(f"/pools/choose/{run.pk}/", {**two, "key": ["r0000-s01"]})
    assert len(chosen(pool)) == 3


def test_nothing_of_another_run_can_be_smuggled_in(
    run: Any, ingested: Callable[..., Any], as_role: Callable[[str], Client]
) -> None:
    from webapp.pools.models import Pool

    other = ingested(seed=11)
    other.environments.filter(slot=0, rollout=0).update(key="elsewhere")
    as_role("reviewer").post(f"/pools/choose/{run.pk}/", {"key": ["elsewhere"], "what": "chosen"})
    for sent in ({"key": ["a\x00"], "what": "chosen"}, {"what": "all", "query": "skill=%00"}):
        answer = as_role("reviewer").post(f"/pools/choose/{run.pk}/", sent)
        assert (answer.status_code, "holds a NUL character" in answer.content.decode()) == (400, True)
    assert not Pool.objects.exists()


@pytest.mark.parametrize(("role", "status"), [("anonymous", 302), ("", 403), ("viewer", 403), ("reviewer", 302)])
def test_only_reviewers_and_up_make_pools(role: str, status: int, run: Any, as_role: Callable[[str], Client]) -> None:
    from webapp.pools.models import Pool

    assert as_role(role).post(f"/pools/choose/{run.pk}/", {"key": ["r0000-s00"]}).status_code == status
    assert Pool.objects.exists() is (role == "reviewer")


@pytest.mark.parametrize("act", ["build", "stop", "delete"])
def test_viewers_look_and_do_not_act(act: str, built: Callable[..., Any], viewer: Client) -> None:
    pool = built()
    assert viewer.get("/pools/").status_code == 200
    assert viewer.get(f"/pools/{pool.pk}/?show=rejected").status_code == 200
    assert viewer.post(f"/pools/{pool.pk}/act/{act}/").status_code == 403


def test_the_page_names_what_was_left_out_and_why(
    built: Callable[..., Any], viewer: Client, programs: list[Any]
) -> None:
    pool = built(name="<img src=x onerror=alert(1)>")
    answer = viewer.get(f"/pools/{pool.pk}/?show=rejected")
    assert [item.environment_id for item in answer.context["page"].rows] == [programs[2].pk]
    html = answer.content.decode()
    assert "left out" in html
    assert "<img src=x" not in html
    assert "<strong>2</strong> programs passed" in html


def test_an_empty_pool_is_not_built(reviewer: Any) -> None:
    from webapp.pools.services import build_pool, create_pool
    from webapp.runs.errors import ActRefused

    with pytest.raises(ActRefused, match="empty"):
        build_pool(actor=reviewer, pool_id=create_pool(actor=reviewer, name="nothing").pk)


def test_the_lineage_of_an_environment_names_its_pools(
    built: Callable[..., Any], programs: list[Any], run: Any, viewer: Client
) -> None:
    pool = built()
    html = viewer.get(f"/runs/{run.pk}/environments/{programs[0].key}/lineage/").content.decode()
    assert f"/pools/{pool.pk}/" in html


def test_the_list_of_a_run_offers_the_persons_own_pools_to_reviewers_only(
    run: Any, as_role: Callable[[str], Client]
) -> None:
    client = as_role("reviewer")
    client.post(f"/pools/choose/{run.pk}/", {"what": "all", "name": "mine"})
    html = client.get(f"/runs/{run.pk}/environments/?rollout=2").content.decode()
    assert f'<option value="{newest().pk}">mine</option>' in html
    assert 'name="query" value="rollout=2"' in html
    assert 'name="what" value="all"' in html
    assert 'form="choose-form" name="key" value="r0002-s00"' in html
    assert "choose-form" not in as_role("viewer").get(f"/runs/{run.pk}/environments/").content.decode()
