"""What the API reads is what was recorded; lists are paged without loss; odd addresses get a problem that helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.django_db


def every(client: Client, path: str, limit: int) -> list[Any]:
    """All rows, page by page."""
    rows: list[Any] = []
    url: str | None = f"{path}{'&' if '?' in path else '?'}limit={limit}"
    while url:
        body = client.get(url).json()
        assert len(body["results"]) <= limit
        rows += body["results"]
        url = body["next"]
    return rows


def test_pages_hold_every_episode_once_in_order(run: Any, viewer: Client) -> None:
    rows = every(viewer, f"/api/v1/runs/{run.pk}/episodes/", 7)
    assert [row["id"] for row in rows] == list(run.episodes.order_by("-id").values_list("id", flat=True))
    faults = [row for row in rows if row["fault"]]
    assert all(row["reward"] is None for row in faults)


def test_filters_are_those_of_the_pages(run: Any, viewer: Client) -> None:
    rows = every(viewer, f"/api/v1/runs/{run.pk}/episodes/?arm=hinted&status=won", 50)
    wanted = run.episodes.filter(arm="hinted", status="won")
    assert {row["id"] for row in rows} == set(wanted.values_list("id", flat=True))
    assert viewer.get("/api/v1/runs/?q=tanks&status=active").json()["results"][0]["id"] == run.pk
    assert viewer.get("/api/v1/runs/?q=nothing").json()["results"] == []


def test_rollouts_hold_every_metric_of_the_line_that_holds(ingested: Callable[..., Any], viewer: Client) -> None:
    from webapp.runs.models import MetricPoint

    run = ingested(rollouts=6, resume_from=3)
    rows = every(viewer, f"/api/v1/runs/{run.pk}/rollouts/", 2)
    assert [row["rollout"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["attempt"] for row in rows] == [1, 1, 1, 2, 2, 2]
    for row in rows:
        points = MetricPoint.objects.filter(run=run, rollout=row["rollout"], superseded=False)
        assert row["metrics"] == dict(points.values_list("name", "value"))


def test_a_page_of_rollouts_reads_its_own_points_and_not_the_runs(ingested: Callable[..., Any]) -> None:
    from webapp.core.pagination import encode_cursor
    from webapp.runs.models import MetricPoint
    from webapp.runs.series import rollouts_of

    run = ingested(rollouts=2)
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, attempt=1, rollout=rollout, name=name, value=0.5)
        for rollout in range(100, 2100)
        for name in "abcdefghij"
    )
    with connection.cursor() as sql:
        sql.execute("ANALYZE runs_metricpoint")
    with CaptureQueriesContext(connection) as asked:
        _, rows = rollouts_of(run=run, cursor=encode_cursor([1099]), size=20)
    assert [row["rollout"] for row in rows] == list(range(1100, 1120))
    assert all(len(row["metrics"]) == 10 for row in rows)
    assert sum(points_read(query["sql"]) for query in asked if "runs_metricpoint" in query["sql"]) < 1000  # of 20,000


def points_read(query: str) -> float:
    """How many rows the query takes from its tables and indexes, those it then drops too."""

    def read(node: dict[str, Any]) -> float:
        below = sum(read(one) for one in node.get("Plans", ()))
        if "Relation Name" not in node:
            return below
        return below + node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))

    with connection.cursor() as sql:
        sql.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
        return read(sql.fetchone()[0][0]["Plan"])


@pytest.mark.parametrize("values", [[1.5], ["x"], [True], [None], [1, 2]])
def test_a_damaged_cursor_of_rollouts_is_a_clear_refusal(values: list[Any], run: Any, viewer: Client) -> None:
    from webapp.core.pagination import encode_cursor

    answer = viewer.get(f"/api/v1/runs/{run.pk}/rollouts/", {"cursor": encode_cursor(values)})
    assert answer.status_code == 400
    beyond = viewer.get(f"/api/v1/runs/{run.pk}/rollouts/", {"cursor": encode_cursor([10**20])})
    assert (beyond.status_code, beyond.json()["results"]) == (200, [])


def test_series_keep_the_tail_a_resume_left(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(rollouts=6, resume_from=3)
    body = viewer.get(f"/api/v1/runs/{run.pk}/metrics/series/?name=win_rate/unhinted").json()
    series = body["series"]["win_rate/unhinted"]
    assert series["x"] == [0, 1, 2, 3, 4, 5]
    assert [ghost["attempt"] for ghost in series["ghosts"]] == [1]


def test_an_environment_has_code_hint_gates_and_statistics(run: Any, viewer: Client) -> None:
    environment = run.environments.filter(superseded=False, hint_state="ok").first()
    body = viewer.get(f"/api/v1/runs/{run.pk}/environments/{environment.key}/").json()
    assert (body["code"], body["hint_text"]) == (environment.code, environment.hint_text)
    assert [stage["stage"] for stage in body["stages"]] == [stage["stage"] for stage in environment.candidate.stages]
    hinted = run.episodes.filter(environment=environment, arm="hinted", reward__isnull=False).count()
    assert body["measured"]["hinted_n"] == sum(row["hinted_n"] for row in body["offsets"]) == hinted


def test_a_transcript_comes_whole_and_in_pieces(run: Any, viewer: Client) -> None:
    episode = run.episodes.order_by("-turns").first()
    path = f"/api/v1/runs/{run.pk}/episodes/{episode.pk}/"
    whole = viewer.get(path).json()
    assert whole["turns"] == episode.transcript.turns
    assert whole["more"] is False
    pieces, start = [], 0
    while True:
        body = viewer.get(f"{path}?start={start}&limit=2").json()
        pieces += body["turns"]
        start += 2
        if not body["more"]:
            break
    assert pieces == whole["turns"]


def test_memory_names_the_environments_that_used_a_record(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(rollouts=12)
    rows = every(viewer, f"/api/v1/runs/{run.pk}/memory/", 5)
    used = {key for row in rows for key in row["uses"]}
    shown = {one.key for one in run.environments.filter(superseded=False) if one.examples or one.counter_examples}
    assert used == shown != set()


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("runs/?cursor=broken", 400, "damaged"), ("runs/?limit=0", 400, "limit must be"), ("runs/?limit=501", 400, "1 to 500"),
        ("runs/?q=(&regex=1", 400, "not a regular expression"), ("runs/999999/", 404, "no run 999999"),
        ("runs/{run}/environments/r9999-s00/", 404, "r9999-s00"), ("runs/{run}/environments/?rollout=x", 400, "whole number"),
        ("runs/{run}/metrics/series/", 400, "?name="), ("runs/{run}/metrics/series/?name=a&points=1", 400, "points must be"),
        ("runs/{run}/environments/a%00b/", 400, "NUL"), ("runs/?q=%00", 400, "NUL"), ("runs/{run}/episodes/1/?start=-1", 400, "start"),
        ("runs/99999999999999999999/", 404, "no run"),
    ],
)  # fmt: skip
def test_an_odd_address_gets_a_problem_that_says_what_to_do(
    path: str, status: int, words: str, run: Any, viewer: Client
) -> None:
    episode = run.episodes.first()
    address = "/api/v1/" + path.format(run=run.pk).replace("episodes/1/", f"episodes/{episode.pk}/")
    answer = viewer.get(address)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    body = answer.json()
    assert words in body["detail"]
    assert body["status"] == status
    assert body["type"].startswith("/api/docs/#problem-")


def test_hostile_output_is_data_here_and_nothing_else(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(hostile=True)
    for path in ("environments/", "episodes/", "candidates/", "memory/", "documents/"):
        answer = viewer.get(f"/api/v1/runs/{run.pk}/{path}?limit=500")
        assert answer["Content-Type"] == "application/json"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer.json()["results"]


def test_the_schema_is_valid_and_the_page_describes_every_operation(viewer: Client) -> None:
    from drf_spectacular.validation import validate_schema

    from webapp.api.docs import operations

    schema = viewer.get("/api/v1/schema/").json()
    validate_schema(schema)
    page = viewer.get("/api/docs/").content.decode()
    assert all(f'id="{one.id}"' in page and one.summary for one in operations())
    assert all(one.text for operation in operations() for one in operation.parameters)
