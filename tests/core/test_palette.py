"""The command palette: what is listed for whom, what a text finds, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.pages.test_run_pages import new_run
from webapp.core.palette import MAX_ENTRIES, Entry, asked_of, rank

pytestmark = pytest.mark.django_db

ROLES = ("viewer", "reviewer", "operator", "admin")
OPERATORS = {"Start a run", "Import a run", "Add a corpus", "Webhooks"}
REVIEWERS = {"Review queues", "New review queue"}
ADMINS = {"People", "Audit log", "Retention", "Invite somebody", "Kinds of flags"}


class Listed(HTMLParser):
    """The groups of a fragment, each with its lines as (label, address); what the status says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.groups: dict[str, list[tuple[str, str]]] = {}
        self.status = ""
        self._heading = self._address = self._into = ""
        self.feed(text)
        self.status = self.status.strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if values.get("role") == "group":
            self._heading = values["aria-label"]
            self.groups[self._heading] = []
        if values.get("role") == "option":
            self._address = values.get("href", f"#{values.get('data-open')}")
        self._into = "status" if "hx-swap-oob" in values else values.get("class", "")

    def handle_data(self, data: str) -> None:
        if self._into == "what":
            self.groups[self._heading].append((data, self._address))
        elif self._into == "status":
            self.status += data
        self._into = self._into if self._into == "status" else ""

    @property
    def labels(self) -> list[str]:
        return [label for lines in self.groups.values() for label, _ in lines]


def listed(client: Client, text: str = "", run: Any = "") -> Listed:
    answer = client.get("/palette/", {"q": text, "run": run}, HTTP_HX_REQUEST="true")
    assert answer.status_code == 200
    return Listed(answer.content.decode())


@pytest.mark.parametrize("role", ROLES)
def test_every_page_that_is_listed_opens_and_others_are_not_listed(as_role: Callable[[str], Client], role: str) -> None:
    client = as_role(role)
    found = listed(client)
    addresses = [address for lines in found.groups.values() for _, address in lines if not address.startswith("#")]
    assert {address: client.get(address).status_code for address in addresses} == dict.fromkeys(addresses, 200)
    allowed = {"viewer": 0, "reviewer": 1, "operator": 2, "admin": 3}[role]
    expected = set().union(*[REVIEWERS, OPERATORS, ADMINS][:allowed])
    assert set(found.labels) & (OPERATORS | REVIEWERS | ADMINS) == expected
    assert set(found.labels) >= {
        "Runs",
        "Review",
        "Pools",
        "Corpora",
        "Alerts",
        "API documentation",
        "Keyboard shortcuts",
    }


def test_whatever_the_header_leads_to_is_in_the_palette(as_role: Callable[[str], Client]) -> None:
    client = as_role("admin")
    header = client.get("/accounts/profile/").content.decode().split("</header>")[0].split("<header")[1]
    linked = {part.split('"')[0] for part in header.split('<a href="')[1:]}
    addresses = {address for lines in listed(client).groups.values() for _, address in lines}
    assert len(linked) >= 12
    assert linked - addresses == set()


def test_nobody_without_a_role_is_told_anything(as_role: Callable[[str], Client]) -> None:
    new_run(name="secret")
    answer = as_role("").get("/palette/?q=secret")
    assert answer.status_code == 403
    assert b"secret" not in answer.content.replace(b"q=secret", b"")
    answer = Client().get("/palette/?q=secret", HTTP_HX_REQUEST="true")
    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/accounts/login/")


def test_a_run_is_found_by_name_slug_tag_and_notes_unless_put_aside_or_deleted(
    as_role: Callable[[str], Client],
) -> None:
    now = timezone.now()
    new_run(name="valves", slug="first-one", notes="the reactor")
    by_tag = new_run(name="tanks", slug="second-one", tags=["valves"])
    new_run(name="valves gone", slug="third", deleted_at=now)
    new_run(name="valves aside", slug="fourth", archived_at=now)
    viewer = as_role("viewer")
    found = listed(viewer, "VALVES")
    assert [label for label, _ in found.groups["Runs"]] == ["valves", "tanks"]  # called so before the newer one
    assert found.groups["Runs"][1][1] == f"/runs/{by_tag.pk}/"
    assert found.status == "2 found"
    assert listed(viewer, "first-one").labels == ["valves"]
    assert listed(viewer, "reactor").labels == ["valves"]


def test_before_anything_is_typed_the_newest_five_runs_are_there(as_role: Callable[[str], Client]) -> None:
    for number in range(7):
        new_run(name=f"run {number}", slug=f"run-{number}")
    found = listed(as_role("viewer"))
    assert [label for label, _ in found.groups["Newest runs"]] == [f"run {number}" for number in (6, 5, 4, 3, 2)]
    assert "Runs" not in found.groups
    assert found.status == ""


def test_a_text_shows_twelve_at_most_says_so_and_pages_are_not_pushed_out(as_role: Callable[[str], Client]) -> None:
    for number in range(MAX_ENTRIES):
        new_run(name=f"runs {number}", slug=f"run-{number}")
    viewer = as_role("viewer")
    found = listed(viewer, "runs 1")
    assert found.labels == ["runs 11", "runs 10", "runs 1"]
    found = listed(viewer, "runs")
    assert len(found.labels) == MAX_ENTRIES == 12
    assert found.groups["Pages"] == [("Runs", "/runs/")]
    assert found.status == "The best 12; type on for others."


def test_on_a_page_of_a_run_its_tabs_and_environments_are_found(
    as_role: Callable[[str], Client], family: Callable[..., Any]
) -> None:
    run, other = family("TankEnv"), family("TankOfAnotherEnv")
    viewer = as_role("viewer")
    assert listed(viewer, run=run.pk).groups["This run"][:2] == [
        ("Overview", f"/runs/{run.pk}/"), ("Charts", f"/runs/{run.pk}/charts/")
    ]  # fmt: skip
    assert listed(viewer, "chart", run.pk).groups == {"This run": [("Charts", f"/runs/{run.pk}/charts/")]}
    wanted = [("TankEnv", f"/runs/{run.pk}/environments/r0001-s02/")]
    assert listed(viewer, "tank", run.pk).groups["Environments of this run"] == wanted
    assert listed(viewer, "r0001-S02", run.pk).groups == {"Environments of this run": wanted}
    assert listed(viewer, "tank").groups == {}
    assert listed(viewer, "tank", other.pk).labels == ["TankOfAnotherEnv"]


@pytest.fixture
def family(db: None) -> Callable[..., Any]:
    """``family("TankEnv")``: a run with one environment of that name that holds and one that was superseded."""

    def make(class_name: str) -> Any:
        from webapp.environments.models import Environment

        run = new_run(name="plain")
        common = {
            "run": run, "rollout": 1, "slot": 2, "key": "r0001-s02", "skill": "planning", "class_name": class_name, "code": "",
            "code_digest": "0", "candidate_key": "r0001-s02-a1", "added_at": timezone.now(),
        }  # fmt: skip
        Environment.objects.create(**common, attempt=1, superseded=True)
        Environment.objects.create(**common, attempt=2)
        return run

    return make


def test_what_a_model_or_a_person_wrote_is_text_only(
    as_role: Callable[[str], Client], family: Callable[..., Any]
) -> None:
    run = family("<img src=x onerror=alert(1)>\u202eEnv")
    viewer = as_role("viewer")
    new_run(name='"><script>alert(2)</script>', slug="b")
    for text in ("onerror", "script>"):
        html = viewer.get("/palette/", {"q": text, "run": run.pk}).content.decode()
        assert "alert(" in html
        assert "<img" not in html
        assert "<script" not in html
        assert "\u202e" not in html
    html = viewer.get("/palette/", {"q": "<b hx-get=/> none"}).content.decode()
    assert "Nothing found for “&lt;b hx-get=/&gt; none”: no page you may open, no run in use." in html


def test_a_run_that_is_none_and_a_text_of_any_length_are_taken(as_role: Callable[[str], Client]) -> None:
    viewer = as_role("viewer")
    for run in ("x", "-1", "9" * 40, "987654321"):
        assert "This run" not in listed(viewer, run=run).groups
        assert listed(viewer, "tank", run).groups == {}
    assert asked_of(QueryDict("q=" + "a" * 500)).text == "a" * 100
    assert viewer.post("/palette/").status_code == 405


def test_the_number_of_queries_does_not_grow(as_role: Callable[[str], Client], family: Callable[..., Any]) -> None:
    run = family("TankEnv")
    admin = as_role("admin")
    listed(admin, "tank", run.pk)

    def queries(text: str) -> int:
        with CaptureQueriesContext(connection) as caught:
            listed(admin, text, run.pk)
        return len(caught)

    few = queries("tank"), queries("")
    for number in range(30):
        new_run(name=f"tank {number}", slug=f"tank-{number}")
    assert (queries("tank"), queries("")) == few
    assert max(few) <= 6  # session, person, roles, this run, environments, runs


def test_rank_goes_by_where_the_text_stands() -> None:
    entry = Entry(label="Start a run", detail="r0004-s03", words="new")
    assert [rank(text, entry) for text in ("sta", "r0004", "run", "run sta", "tart a", "new")] == [0, 0, 1, 1, 2, 3]
