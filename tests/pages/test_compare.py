"""Several runs beside each other: colours, charts, key figures, settings that differ, and what is no number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.pages.test_run_pages import new_run
from webapp.runs.compare import colors_of, setting_rows


def two(ingested: Callable[..., Any]) -> tuple[Any, Any]:
    return ingested(name="first"), ingested(name="second", seed=9, plays=4)


def test_a_run_keeps_its_own_colour_and_gives_way_only_to_an_older_one() -> None:
    assert colors_of([7]) == {7: 7}
    assert colors_of([3, 12, 22]) == {3: 3, 12: 2, 22: 4}  # 22 would be 2, which 12 has; 3 is taken too
    assert colors_of([22, 12, 3]) == colors_of([3, 12, 22])
    many = colors_of(list(range(1, 21)))
    assert sorted(many.values()) == list(range(20))  # ten colours, and the same ten dashed


def test_the_page_has_a_line_a_run_in_every_chart(ingested: Callable[..., Any], viewer: Client) -> None:
    first, second = two(ingested)
    page = viewer.get("/runs/compare/", {"run": [first.pk, second.pk]})
    top = page.context["pieces"][0]
    entropy = next(chart for chart in top.charts if chart.key == "top-entropy")
    assert [(line.run, line.label) for line in entropy.series] == [(str(first.pk), "first"), (str(second.pk), "second")]
    assert len({line.color for line in entropy.series}) == 2
    arms = next(chart for chart in top.charts if chart.key == "top-win-rate")
    assert [(line.label, line.dash) for line in arms.series] == [
        ("first, unhinted", False), ("first, hinted", True), ("second, unhinted", False), ("second, hinted", True),
    ]  # fmt: skip
    keys = [chart.key for piece in page.context["pieces"] for chart in piece.group.charts]
    assert len(keys) == len(set(keys))


def test_case_13_three_thousand_metrics_of_ten_runs_open_at_once_and_come_as_they_are_scrolled_to(
    viewer: Client,
) -> None:
    """Case 13 of the known bugs: pages of other tools that mounted every panel at once froze."""
    from webapp.runs.models import MetricPoint

    runs = [new_run(name=f"wide {index}", slug=f"wide-{index}") for index in range(10)]
    names = [f"env/skill_{index:04d}/regret" for index in range(3_000)]
    MetricPoint.objects.bulk_create(
        [MetricPoint(run=run, attempt=1, rollout=0, name=name, value=1.0) for run in runs for name in names],
        batch_size=5_000,
    )
    page = viewer.get("/runs/compare/", {"run": [run.pk for run in runs]})
    assert len(page.content) < 200_000
    env = page.context["pieces"][1]
    assert (env.group.key, len(env.group.charts), env.charts, env.following) == ("env", 3_000, (), 0)
    piece = viewer.get(f"{page.context['piece_url']}&group=env&from=2976")
    html = piece.content.decode()
    assert html.count("<figure") == 24
    assert "charts-later" not in html
    alone = viewer.get(f"/runs/{runs[0].pk}/charts/")
    assert alone.content.decode().count("<figure") == 48
    assert "&amp;group=env&amp;from=48" in alone.content.decode()
    found = viewer.get(f"/runs/{runs[0].pk}/charts/", {"metric": "SKILL_0123"})
    assert found.content.decode().count("<figure") == 1


@pytest.mark.parametrize(
    "query", ["group=nothing", "group=loss&from=-1", "group=loss&from=x", "group=loss&from=99999999999"]
)
def test_charts_that_are_not_there_are_not_found(query: str, run: Any, viewer: Client) -> None:
    assert viewer.get(f"/runs/{run.pk}/charts/?{query}").status_code == 404
    assert viewer.get(f"/runs/compare/?run={run.pk}&{query}").status_code == 404


def test_points_come_for_every_run_and_metric(ingested: Callable[..., Any], viewer: Client) -> None:
    first, second = two(ingested)
    asked = {"run": [first.pk, second.pk], "name": ["loss/total", "no/such"], "times": "1"}
    series = viewer.get("/runs/compare/series/", asked).json()["series"]
    assert set(series) == {f"{pk}:{name}" for pk in (first.pk, second.pk) for name in ("loss/total", "no/such")}
    line = series[f"{first.pk}:loss/total"]
    assert line["x"] == [0, 1, 2, 3]
    assert line["t"][0] == 0.0
    assert line["t"] == sorted(line["t"])
    text = viewer.get("/runs/compare/series.csv", asked).content.decode()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["run", "name", "metric", "rollout", "value"]
    assert len(rows) == 1 + 2 * 4
    assert float(rows[1][4]) == line["y"][0]


def test_only_settings_that_differ_are_shown_unless_all_are_asked_for(
    ingested: Callable[..., Any], viewer: Client
) -> None:
    first, second = two(ingested)
    query = f"run={first.pk}&run={second.pk}"
    page = viewer.get(f"/runs/compare/?{query}")
    differing = {row.path: [cell["text"] for cell in row.cells] for row in page.context["settings"] if row.differs}
    assert differing == {"schedule.plays": ["3", "4"], "schedule.hinted_plays": ["3", "4"]}
    assert "schedule.environments" not in page.content.decode()
    assert "schedule.environments" in viewer.get(f"/runs/compare/?{query}&settings=all").content.decode()


def test_a_setting_one_run_does_not_have_is_a_difference() -> None:
    row = next(row for row in setting_rows(configs=[{"seed": 7}, {}]) if row.path == "seed")
    assert ([cell["text"] for cell in row.cells], row.differs) == (["7", ""], True)


@pytest.mark.parametrize("text", ["second", "SECOND", "run-2", "sec", "{pk}"])
def test_a_run_is_added_by_name_address_or_number(text: str, ingested: Callable[..., Any], viewer: Client) -> None:
    first, second = two(ingested)
    answer = viewer.get("/runs/compare/", {"run": first.pk, "add": text.format(pk=second.pk)})
    assert answer["Location"] == f"/runs/compare/?run={first.pk}&run={second.pk}"


def test_adding_what_is_not_there_says_so(viewer: Client) -> None:
    run = new_run()
    page = viewer.get("/runs/compare/", {"run": run.pk, "add": "<nothing>"}, follow=True)
    assert "There is no run called &lt;nothing&gt;." in page.content.decode()


def test_the_list_hands_its_selection_over_even_for_viewers(viewer: Client) -> None:
    runs = [new_run(name=f"old {index}", slug=f"o{index}") for index in range(25)]
    answer = viewer.post("/runs/compare/", {"run": [runs[3].pk, runs[1].pk]})
    assert answer["Location"] == f"/runs/compare/?run={runs[3].pk}&run={runs[1].pk}"
    whole = viewer.post("/runs/compare/", {"scope": "filter", "query": "q=old"})
    assert whole["Location"].count("run=") == 20
    assert viewer.get(whole["Location"]).status_code == 200


@pytest.mark.parametrize(
    ("query", "status"), [("", 200), ("run=x&run=", 200), ("run=999999", 404), ("run=99999999999999999999", 200)]
)
def test_strange_addresses_are_harmless(query: str, status: int, viewer: Client) -> None:
    assert viewer.get(f"/runs/compare/?{query}").status_code == status


def test_what_is_measured_and_no_number_is_marked_and_counted(run: Any, viewer: Client) -> None:
    points = {point.rollout: point for point in run.metricpoints.filter(name="loss/entropy")}
    for rollout, mark in ((1, "nan"), (2, "inf"), (3, "nan")):
        points[rollout].value, points[rollout].mark = None, mark
        points[rollout].save()
    answer = viewer.get(f"/runs/{run.pk}/series/", {"name": "loss/entropy"})
    line = json.loads(answer.content, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))["series"][
        "loss/entropy"
    ]
    assert line["marks"] == [[1, "nan"], [2, "inf"], [3, "nan"]]
    assert line["not_finite"] == {"nan": 2, "inf": 1}
    assert line["y"][1:] == [None, None, None]
    rows = viewer.get(f"/runs/{run.pk}/series.csv", {"name": "loss/entropy"}).content.decode().split("\r\n")
    assert rows[2:5] == ["loss/entropy,1,nan", "loss/entropy,2,inf", "loss/entropy,3,nan"]
