"""Cases 2, 3, 9 and 11 on the server: what is stored is what is drawn, every time, and in the order of rollouts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db

NAME = "loss/total"


def set_points(run: Any, points: Sequence[tuple[int, float | str]], name: str = NAME) -> None:
    """The metric's points and nothing else; a text is a mark."""
    from webapp.runs.models import MetricPoint

    MetricPoint.objects.filter(run=run, name=name).delete()
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(
                run=run, attempt=1, rollout=rollout, name=name, value=None if isinstance(value, str) else value,
                mark=value if isinstance(value, str) else "",
            )
            for rollout, value in points
        ],
        batch_size=10_000,
    )  # fmt: skip


def series(client: Client, run: Any, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/runs/{run.pk}/series/", {"name": NAME, "points": 800, **query})
    return answer.json()["series"][NAME]  # type: ignore[no-any-return]


def test_case_02_a_spike_among_fifty_thousand_points_is_there_every_time(run: Any, viewer: Client) -> None:
    set_points(run, [(x, 0.0 if x == 12_345 else 1.0) for x in range(50_000)])
    first = series(viewer, run)
    assert len(first["x"]) <= 800
    assert first["y"][first["x"].index(12_345)] == 0.0
    assert all(series(viewer, run) == first for _ in range(4))
    from webapp.runs.models import MetricPoint

    for rollout in range(50_000, 50_400, 100):  # the run goes on
        rows = [MetricPoint(run=run, attempt=1, rollout=rollout + index, name=NAME, value=1.0) for index in range(100)]
        MetricPoint.objects.bulk_create(rows)
        grown = series(viewer, run)
        assert (grown["total"], grown["y"].count(0.0)) == (rollout + 100, 1)
        assert grown["x"][grown["y"].index(0.0)] == 12_345


def test_case_02_a_stretch_comes_with_every_point_of_it(run: Any, viewer: Client) -> None:
    set_points(run, [(x, float(x % 7)) for x in range(5_000)])
    stretch = series(viewer, run, **{"from": "1200", "to": "1500"})
    assert stretch["x"] == list(range(1200, 1501))
    assert stretch["y"] == [float(x % 7) for x in range(1200, 1501)]
    assert series(viewer, run, **{"from": "x", "to": "-1"})["total"] == 5_000  # nonsense asks for everything


def test_case_03_nan_stays_in_the_csv_and_is_counted(run: Any, viewer: Client) -> None:
    set_points(run, [(x, 1.0 if x % 5 == 4 else "nan") for x in range(50)])
    one = series(viewer, run)
    assert (one["total"], one["not_finite"], one["missing"]) == (50, {"nan": 40}, 40)
    text = viewer.get(f"/runs/{run.pk}/series.csv", {"name": NAME}).content.decode()
    rows = list(csv.reader(io.StringIO(text)))[1:]
    assert [row[2] for row in rows] == [("1.0" if x % 5 == 4 else "nan") for x in range(50)]


def test_case_09_rollouts_of_a_second_attempt_are_absolute(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(rollouts=12, resume_from=6)  # attempt 2 starts at 6 and logs rollout 6 as 6
    one = series(viewer, run)
    assert one["x"] == list(range(12))  # no gap, and nothing at 12 or above
    second = run.metricpoints.filter(name=NAME, attempt=2).order_by("rollout")
    assert list(second.values_list("rollout", flat=True)) == list(range(6, 12))
    assert one["y"][6:] == list(second.values_list("value", flat=True))


def test_case_11_what_comes_late_is_kept_and_drawn_in_order(run: Any, viewer: Client) -> None:
    set_points(run, [(50, 0.5), (20, 0.2), (51, 0.51), (21, 0.21)])  # two writers, one of them behind
    one = series(viewer, run)
    assert list(zip(one["x"], one["y"], strict=True)) == [(20, 0.2), (21, 0.21), (50, 0.5), (51, 0.51)]


@pytest.mark.django_db(transaction=True)
def test_names_are_found_in_the_index_whatever_the_statistics_say(run: Any) -> None:
    """Statistics that know only another run: the planner expects one point, and once read and sorted all of them for every name."""
    from django.db import connection, transaction

    from webapp.runs.models import MetricPoint, Run
    from webapp.runs.series import metric_names

    table = MetricPoint._meta.db_table
    fill = f"""INSERT INTO {table} (run_id, attempt, rollout, name, superseded)
        SELECT %s, 1, step, 'wide/' || lpad(metric::text, 3, '0'), false
        FROM generate_series(0, 99) AS metric, generate_series(0, 3999) AS step"""
    other = Run.objects.get(pk=run.pk)
    other.pk, other.slug, other.status = None, "other", "completed"
    other.save()
    MetricPoint.objects.all().delete()
    with connection.cursor() as cursor:
        # An index of the run alone, as an older database has it for a while and an admin may make one.
        cursor.execute(f"CREATE INDEX IF NOT EXISTS of_the_run_alone ON {table} (run_id)")
        cursor.execute(fill, [other.pk])
        for statement in (f"ANALYZE {table}", f"DELETE FROM {table}", f"VACUUM ANALYZE {table}"):
            cursor.execute(statement)
        cursor.execute(fill, [run.pk])
    with transaction.atomic(), connection.cursor() as cursor:
        assert metric_names(run=run) == [f"wide/{number:03d}" for number in range(100)]
        cursor.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = %s::regclass", [table]
        )
        assert cursor.fetchone()[0] < 1000  # of 400,000
        cursor.execute("SHOW enable_sort")
        assert cursor.fetchone() == ("on",)
        cursor.execute("DROP INDEX of_the_run_alone")


def test_a_ghost_of_a_run_done_anew_from_its_start_begins_with_itself() -> None:
    from webapp.runs.series import Series, _join_ghosts

    points = [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)]
    for end, ghost in ((0, [(3, 0.9)]), (1, [(0, 0.1), (3, 0.9)]), (None, [(2, 0.3), (3, 0.9)])):
        series = Series("x", points=list(points), ghosts={1: [(3, 0.9)]})
        _join_ghosts(series, {1: end})
        assert series.ghosts == {1: ghost}
