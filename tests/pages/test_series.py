"""Series for charts: spikes survive thinning, gaps stay gaps, a resume leaves one line and a ghost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.runs.series import thin


def test_a_short_series_is_not_thinned() -> None:
    points = [(0, 1.0), (1, None), (2, 3.0)]
    assert thin(points, 100) == points


def test_a_single_spike_in_fifty_thousand_points_survives_thinning() -> None:
    points = [(x, 1.0) for x in range(50_000)]
    points[12_345] = (12_345, 0.0)
    kept = thin(points, 800)
    assert len(kept) <= 800
    assert (12_345, 0.0) in kept
    assert kept[0] == (0, 1.0)
    assert kept[-1] == (49_999, 1.0)
    assert kept == sorted(kept)
    assert thin(points, 800) == kept


def test_each_bucket_keeps_its_lowest_and_highest_point_in_order() -> None:
    points = [(0, 5.0), (1, 9.0), (2, 1.0), (3, 4.0), (4, 4.0), (5, 2.0), (6, 8.0), (7, 5.0)]
    # Six inner points in two buckets: (9, 1, 4) and (4, 2, 8).
    assert thin(points, 6) == [(0, 5.0), (1, 9.0), (2, 1.0), (5, 2.0), (6, 8.0), (7, 5.0)]


def test_a_bucket_without_numbers_keeps_one_gap() -> None:
    points = [(0, 1.0), *((x, None) for x in range(1, 9)), (9, 1.0)]
    assert thin(points, 4) == [(0, 1.0), (1, None), (9, 1.0)]


def test_the_endpoint_gives_points_gaps_and_the_cursor(run: Any, viewer: Client) -> None:
    body = viewer.get(f"/runs/{run.pk}/series/", {"name": ["win_rate/unhinted", "win_rate/hinted", "no/such"]}).json()
    assert body["cursor"] == run.last_cursor
    assert body["series"]["win_rate/unhinted"]["x"] == [0, 1, 2, 3]
    assert body["series"]["win_rate/hinted"]["y"][1] is None  # nothing due between two regenerations
    assert body["series"]["win_rate/hinted"]["missing"] == 2
    assert body["series"]["no/such"] == {
        "x": [], "y": [], "total": 0, "missing": 0, "not_positive": 0, "marks": [], "not_finite": {}, "ghosts": [],
    }  # fmt: skip


def test_case_08_a_resume_leaves_one_line_and_the_abandoned_tail_as_a_ghost(
    ingested: Callable[..., Any], viewer: Client
) -> None:
    run = ingested(rollouts=8, resume_from=4)  # attempt 1 did 0 to 6, attempt 2 starts at 4
    one = viewer.get(f"/runs/{run.pk}/series/", {"name": "loss/total"}).json()["series"]["loss/total"]
    assert one["x"] == [0, 1, 2, 3, 4, 5, 6, 7]
    (ghost,) = one["ghosts"]
    assert ghost["attempt"] == 1
    assert ghost["x"] == [3, 4, 5, 6]  # leaves the line at 3
    assert ghost["y"][0] == one["y"][3]
    assert ghost["y"][1:] != one["y"][4:7]


def test_by_time_a_resume_goes_on_where_the_clock_is(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(rollouts=8, resume_from=4)
    asked = {"name": "loss/total", "times": "1"}
    body = viewer.get(f"/runs/{run.pk}/series/", asked).json()
    one = body["series"]["loss/total"]
    events = run.events.filter(kind="metrics").order_by("cursor")
    seconds = {(event.attempt, event.rollout): event.at.timestamp() - body["start"] for event in events}
    assert one["t"][:4] == pytest.approx([seconds[1, rollout] for rollout in range(4)], abs=0.002)
    assert one["t"][4:] == pytest.approx([seconds[2, rollout] for rollout in range(4, 8)], abs=0.002)
    (ghost,) = one["ghosts"]
    assert ghost["t"] == pytest.approx([seconds[1, rollout] for rollout in range(3, 7)], abs=0.002)


def test_asking_for_too_much_is_refused(run: Any, viewer: Client) -> None:
    assert viewer.get(f"/runs/{run.pk}/series/", {"name": [f"m/{index}" for index in range(200)]}).status_code == 400


@pytest.mark.parametrize("points", ["-5", "abc", "1e9", "99999999999999999999", "0"])
def test_a_strange_number_of_points_is_harmless(points: str, run: Any, viewer: Client) -> None:
    assert viewer.get(f"/runs/{run.pk}/series/", {"name": "loss/total", "points": points}).status_code == 200


def test_the_csv_has_every_point_and_leaves_gaps_empty(run: Any, viewer: Client) -> None:
    rows = viewer.get(f"/runs/{run.pk}/series.csv", {"name": "regret/mean"}).content.decode().split("\r\n")
    assert rows[0] == "metric,rollout,value"
    assert rows[2] == "regret/mean,1,"
    assert float(rows[1].rsplit(",", 1)[1]) == run.metricpoints.get(name="regret/mean", rollout=0).value
