"""Searching, ordering, grouping the list of runs, and acting on many of them from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.pages.test_run_pages import new_run


def names(client: Client, query: str = "") -> list[str]:
    return [run.name for run in client.get(f"/runs/?{query}").context["page"].rows]


def shown_to(client: Client) -> list[Any]:
    """Runs a..e: done, done, running, failed, draft."""
    made = []
    for name, status in (
        ("alpha", "completed"),
        ("beta-2", "completed"),
        ("gamma", "running"),
        ("delta", "failed"),
        ("eps", "draft"),
    ):
        made.append(new_run(name=name, slug=name, status=status, gpu_set=name, tags=["cpu"] if name < "c" else []))
    return made


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=%5E(al%7Cde)&regex=1", ["delta", "alpha"]), ("q=%5E(al%7Cde)", []), ("q=BETA-%5Cd%24&regex=1", ["beta-2"]),
        ("q=cpu", ["beta-2", "alpha"]), ("q=.&regex=", []),
    ],
)  # fmt: skip
def test_a_search_is_plain_unless_asked_to_be_a_pattern(query: str, found: list[str], viewer: Client) -> None:
    shown_to(viewer)
    assert names(viewer, query) == found


def test_a_wrong_pattern_is_told_with_what_is_wrong(viewer: Client) -> None:
    new_run()
    answer = viewer.get("/runs/", {"q": "a(b", "regex": "1"})
    assert answer.status_code == 400
    assert "not a regular expression: parentheses () not balanced" in answer.content.decode()


def test_a_pattern_that_takes_too_long_is_ended_and_told(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.runs import selectors_list

    monkeypatch.setattr(selectors_list, "SEARCH_LIMIT_MS", 200)
    new_run(notes="a" * 301)  # an odd number of letters is never twice four groups, which takes long to find out
    answer = viewer.get("/runs/", {"q": r"^(a+)(a+)(a+)(a+)\1\2\3\4$", "regex": "1"})
    assert answer.status_code == 400
    assert "was ended. Use a simpler pattern." in answer.content.decode()
    assert viewer.get("/runs/").status_code == 200  # the limit was for that search alone


def test_the_list_is_ordered_as_asked_and_what_was_not_measured_comes_last(
    ingested: Callable[..., Any], viewer: Client
) -> None:
    from webapp.runs.models import MetricPoint

    low, high = ingested(name="low"), ingested(name="high", seed=9)
    none = new_run(name="none")
    for run, value in ((low, 0.1), (high, 0.9)):
        MetricPoint.objects.filter(run=run, name="regret/mean", value__isnull=False).update(value=value)
    assert names(viewer, "sort=-regret") == ["high", "low", "none"]
    assert names(viewer, "sort=regret") == ["low", "high", "none"]
    assert names(viewer, "sort=name") == ["high", "low", "none"]
    assert names(viewer, "sort=nonsense") == ["none", "high", "low"]
    assert none.name == "none"


@pytest.mark.parametrize("sort", ["", "name", "-name", "-regret", "rollouts"])
@pytest.mark.parametrize("group", ["", "status", "first tag", "owner"])
def test_paging_shows_every_run_once_in_any_order_and_grouping(sort: str, group: str, viewer: Client) -> None:
    for index in range(70):
        new_run(
            name=f"run {index % 7}",
            slug=f"r{index}",
            status=("draft", "failed")[index % 2],
            tags=["a"] if index % 3 else [],
        )
    seen: list[int] = []
    cursor = ""
    while True:
        page = viewer.get("/runs/", {"sort": sort, "group": group, "after": cursor}).context["page"]
        seen += [run.pk for run in page.rows]
        if not page.next_cursor:
            break
        cursor = page.next_cursor
    assert len(seen) == len(set(seen)) == 70


def test_a_cursor_of_another_order_is_a_clear_refusal(viewer: Client) -> None:
    for index in range(60):
        new_run(slug=f"r{index}")
    cursor = viewer.get("/runs/?sort=name").context["page"].next_cursor
    assert viewer.get("/runs/", {"sort": "-regret", "after": cursor}).status_code == 400


def test_groups_say_how_many_they_have_on_all_pages(viewer: Client) -> None:
    for index in range(60):
        new_run(slug=f"r{index}", preset="demo" if index % 3 else "tiny")
    groups = viewer.get("/runs/?group=preset").context["groups"]
    assert [(group["title"], group["count"], len(group["runs"])) for group in groups] == [
        ("demo", 40, 40),
        ("tiny", 20, 10),
    ]


def test_archived_and_deleted_runs_are_shown_when_asked_for(operator: Client) -> None:
    alpha, beta, *_ = shown_to(operator)
    operator.post("/runs/bulk/", {"act": "archive", "run": [alpha.pk]})
    operator.post(f"/runs/{beta.pk}/act/delete/")
    assert names(operator) == ["eps", "delta", "gamma"]
    assert names(operator, "show=archived") == ["alpha"]
    assert names(operator, "show=deleted") == ["beta-2"]
    assert len(names(operator, "show=all")) == 5
    html = operator.get(f"/runs/{beta.pk}/").content.decode()
    assert "It can be restored until" in html


def test_an_act_on_the_whole_filter_asks_with_the_count_and_reaches_every_page(operator: Client) -> None:
    from webapp.accounts.models import AuditEntry
    from webapp.runs.models import Run

    for index in range(130):
        new_run(name=f"old {index}", slug=f"o{index}", status="completed")
    busy = new_run(name="old busy", slug="busy", status="running", gpu_set="x")
    new_run(name="other", slug="other", status="completed")
    asked = operator.post("/runs/bulk/", {"act": "archive", "scope": "filter", "query": "q=old"})
    assert "Archive 130 runs" in asked.content.decode()
    assert (
        "131 runs match the list's filters; 130 will change. The others stay as they are: 1 live"
        in asked.content.decode()
    )
    assert not Run.objects.exclude(archived_at=None).exists()
    answer = {"act": "archive", "scope": "filter", "query": "q=old", "confirmed": asked.context["digest"]}
    done = operator.post("/runs/bulk/", answer, follow=True)
    assert "130 runs archived" in done.content.decode()
    assert set(names(operator)) == {"old busy", "other"}
    assert AuditEntry.objects.filter(action="run.archived").count() == 130
    busy.refresh_from_db()
    assert busy.archived_at is None


def test_a_confirmation_holds_only_for_the_runs_that_were_counted(operator: Client) -> None:
    from webapp.runs.models import Run

    new_run(name="old 1", slug="o1", status="completed")
    asked = operator.post("/runs/bulk/", {"act": "delete", "scope": "filter", "query": "q=old"})
    new_run(name="old 2", slug="o2", status="completed")
    answer = {"act": "delete", "scope": "filter", "query": "q=old", "confirmed": asked.context["digest"]}
    again = operator.post("/runs/bulk/", answer)
    assert "Nothing has been done yet" in again.content.decode()
    assert "Delete 2 runs" in again.content.decode()
    assert not Run.objects.exclude(deleted_at=None).exists()
    operator.post("/runs/bulk/", {**answer, "confirmed": again.context["digest"]})
    assert Run.objects.exclude(deleted_at=None).count() == 2


def test_deleting_picked_rows_asks_first_and_leaves_the_others(operator: Client) -> None:
    from webapp.runs.models import Run

    alpha, beta, gamma, *_ = shown_to(operator)
    asked = operator.post("/runs/bulk/", {"act": "delete", "run": [alpha.pk, gamma.pk]})
    assert asked.context["plan"].changed == [alpha.pk]
    assert not Run.objects.exclude(deleted_at=None).exists()
    operator.post("/runs/bulk/", {"act": "delete", "run": [alpha.pk, gamma.pk], "confirmed": asked.context["digest"]})
    assert list(Run.objects.exclude(deleted_at=None)) == [alpha]
    assert beta.name in names(operator)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"act": "tag", "run": ["1"]}, "Type the tag first."), ({"act": "archive"}, "Choose some runs first."),
        ({"act": "archive", "scope": "filter", "query": "q=a(&regex=1"}, "not a regular expression"),
        ({"act": "archive", "run": ["x", "-1", "9" * 30]}, "Choose some runs first."),
    ],
)  # fmt: skip
def test_an_act_on_nothing_says_so(data: dict[str, Any], text: str, operator: Client) -> None:
    assert text in operator.post("/runs/bulk/", data, follow=True).content.decode()


def test_an_unknown_act_on_many_is_not_found(operator: Client) -> None:
    assert operator.post("/runs/bulk/", {"act": "purge", "run": [1]}).status_code == 404


def test_a_view_is_saved_under_a_name_and_opened_by_its_address(
    viewer: Client, as_role: Callable[[str], Client]
) -> None:
    shown_to(viewer)
    viewer.post("/runs/views/", {"name": "failures <b>", "query": "status=failed&sort=-regret&after=xyz&evil=1"})
    page = viewer.get("/runs/")
    (view,) = page.context["views"]
    assert view["url"] == "?status=failed&sort=-regret"
    assert "failures &lt;b&gt;" in page.content.decode()
    assert names(viewer, view["url"][1:]) == ["delta"]
    assert viewer.get(f"/runs/{view['url']}").context["views"][0]["active"]
    assert as_role("operator").get("/runs/").context["views"] == []
    viewer.post(f"/runs/views/{view['pk']}/delete/", {"query": ""})
    assert viewer.get("/runs/").context["views"] == []
