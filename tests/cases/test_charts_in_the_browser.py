"""Cases 1, 2, 3, 5, 7 and 11 as a person sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import expect

from tests.browser.test_a_run import wait_for_points
from tests.cases.test_series import set_points

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

ENTROPY = "loss/entropy"
FIRST_PAINT_S = 2.0


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def open_chart(page: Any, run: Any, query: str = "") -> Any:
    """The charts of the run narrowed to the entropy; that figure."""
    page.goto(f"{run.url}charts/?metric={ENTROPY}{query}")
    chart = page.locator(f'[data-chart="{ENTROPY}"]')
    chart.scroll_into_view_if_needed()
    page.wait_for_function(
        f"() => Number(document.querySelector('[data-chart=\"{ENTROPY}\"]').dataset.points || 0) > 0"
    )
    return chart


def drawn(page: Any, kind: str = "line", chart: str = ENTROPY) -> list[float | None]:
    columns = page.evaluate(f"() => Spadework.charts.drawn({chart!r})")
    return next(column["values"] for column in columns if column["kind"] == kind)  # type: ignore[no-any-return]


def test_case_01_a_hundred_metrics_of_four_hundred_thousand_points_paint_at_once(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(2)
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO runs_metricpoint (run_id, attempt, rollout, name, value, superseded, mark)
            SELECT %s, 1, step, 'wide/' || lpad(metric::text, 3, '0'), sin(step / 50.0) + metric, false, ''
            FROM generate_series(0, 99) AS metric, generate_series(0, 3999) AS step""",
            [run.run.pk],
        )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/series/" in request.url else None)
    paints = []
    for _ in range(3):  # the best of three: the machine may be busy with something else
        page.goto(f"{run.url}charts/?metric=wide")
        # Thinned to twice the width of the plot.
        page.wait_for_function("() => document.querySelector('[data-chart=\"wide/000\"]').dataset.points >= 700")
        paints.append(page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"))
    assert min(paints) < FIRST_PAINT_S, paints
    assert page.locator("[data-chart]").count() < 60  # the others come when they are scrolled to
    assert len(asked) <= 3 * 2  # what is in view comes together
    body = page.evaluate(f"async () => (await (await fetch({asked[-1]!r})).text()).length")
    assert body < 2_000_000
    redraws = page.evaluate(
        """async () => {
          let count = 0;
          const chart = 'wide/000';
          const context = document.querySelector(`[data-chart="${chart}"] canvas`).getContext('2d');
          const clear = context.clearRect.bind(context);
          context.clearRect = (...where) => { count += 1; clear(...where); };
          const until = performance.now() + 1000;
          for (let at = 4000; performance.now() < until; at += 1) {
            Spadework.charts.add(at, { [chart]: 1 }, {}, 0);
            await new Promise((go) => setTimeout(go, 5));
          }
          return count;
        }"""
    )
    assert 1 <= redraws <= 11


def test_case_02_zooming_in_on_a_spike_gives_every_point_around_it(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    set_points(run.run, [(x, 0.0 if x == 12_345 else 1.0 + (x % 2) / 100) for x in range(50_000)], ENTROPY)
    chart = open_chart(page, run)
    assert drawn(page).count(0.0) == 1
    assert page.evaluate(f"() => Spadework.charts.texts({ENTROPY!r}, 12346)") == ["–"]  # thinned away
    box = chart.locator(".u-over").bounding_box()
    centre = box["x"] + box["width"] * 12_345 / 50_000
    page.mouse.move(centre - 8, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(centre + 8, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_function(f"() => Spadework.charts.texts({ENTROPY!r}, 12346)[0] !== '–'")
    texts = [page.evaluate(f"() => Spadework.charts.texts({ENTROPY!r}, {x})[0]") for x in (12_344, 12_345, 12_346)]
    assert texts == ["1.00", "0.00", "1.00"] or texts == ["1.00", "0", "1.00"]
    low, high = page.evaluate(f"() => Spadework.charts.range({ENTROPY!r})")
    assert 0 < low < 12_345 < high < 50_000  # still zoomed


def test_case_03_the_share_of_nan_is_said(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    set_points(run.run, [(x, 1.0 if x % 5 == 4 else "nan") for x in range(50)], ENTROPY)
    chart = open_chart(page, run)
    expect(chart.locator("[data-note]")).to_contain_text("40 of 50 NaN ×")
    assert page.evaluate(f"() => Spadework.charts.marks({ENTROPY!r})") == ["nan"] * 40


def test_case_05_a_run_of_nan_leaves_the_other_whole_and_smoothing_goes_on(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    from webapp.runs.models import Run

    run = synthetic()
    run.begin(2)
    other = Run.objects.get(pk=run.run.pk)
    other.pk, other.slug, other.name, other.gpu_set, other.status = None, "other-2", "other", "o", "completed"
    other.save()
    set_points(other, [(x, "nan") for x in range(8)], ENTROPY)
    values: Sequence[float | str] = [1.0, 2.0, 3.0, "inf", 5.0, 6.0, 7.0, 8.0]
    set_points(run.run, list(enumerate(values)), ENTROPY)
    page.goto(f"/runs/compare/?run={run.run.pk}&run={other.pk}&smooth=0.5")
    page.wait_for_function("() => Number(document.querySelector('[data-chart=\"top-entropy\"]').dataset.points) === 8")
    low, high = page.evaluate("() => Spadework.charts.range('top-entropy', 'y')")
    assert 0 <= low <= 1
    assert 8 <= high <= 10
    columns = page.evaluate("() => Spadework.charts.drawn('top-entropy')")
    lines = {column["run"]: column["values"] for column in columns if column["kind"] == "line"}
    mine = lines[str(run.run.pk)]
    assert [value is None for value in mine] == [False] * 3 + [True] + [False] * 4
    assert mine[2] < mine[4] < mine[7]
    assert lines[str(other.pk)] == [None] * 8
    page.goto(f"/runs/{other.pk}/")
    expect(page.locator("h1")).to_have_text("other")


def test_case_07_smoothing_keeps_a_constant_flat_and_a_sparse_series_sparse(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(2)
    set_points(run.run, [(x, 1.0) for x in range(10_000)], ENTROPY)
    open_chart(page, run, "&smooth=0.99")
    assert all(abs(value - 1.0) < 1e-9 for value in drawn(page) if value is not None)
    set_points(run.run, [(x, float(x)) for x in range(0, 10_000, 50)], ENTROPY)
    open_chart(page, run, "&smooth=0.99")
    assert len([value for value in drawn(page) if value is not None]) == 200
    open_chart(page, run)
    assert drawn(page) == [float(x) for x in range(0, 10_000, 50)]  # without smoothing what was measured


def test_case_11_a_late_point_takes_its_place_in_a_live_chart(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(4)
    page.goto(run.url)
    wait_for_points(page, 4)
    page.evaluate("() => { for (const at of [50, 20]) Spadework.charts.add(at, { 'loss/entropy': at }, {}, 0); }")
    page.wait_for_function("() => Spadework.charts.drawn('entropy')[0].values.length === 6")
    assert drawn(page, chart="entropy")[-2:] == [20, 50]
