"""Charts in a real browser: values that are no numbers, log axes, time on the x axis, pictures, and runs drawn together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.test_a_run import wait_for_points
from webapp.runs.models import MetricPoint

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

ENTROPY = '[data-chart="entropy"]'


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def set_points(run: Any, name: str, values: list[float | str]) -> None:
    for rollout, value in enumerate(values):
        fields = {"value": None, "mark": value} if isinstance(value, str) else {"value": value, "mark": ""}
        MetricPoint.objects.filter(run=run, name=name, rollout=rollout).update(**fields)


def marks(page: Any, chart: str) -> list[str]:
    """Kinds of the marks a chart draws, in order."""
    return page.evaluate(f"() => Spadework.charts.marks({chart!r})")  # type: ignore[no-any-return]


def test_what_is_no_number_is_marked_counted_and_told_apart(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(6)
    set_points(run.run, "loss/entropy", [0.9, "nan", 0.8, "inf", "-inf", "nan"])
    page.goto(run.url)
    wait_for_points(page, 6)
    note = page.locator(f"{ENTROPY} [data-note]")
    expect(note).to_contain_text("2 of 6 NaN ×")
    expect(note).to_contain_text("1 of 6 ∞ ▲")
    expect(note).to_contain_text("1 of 6 −∞ ▼")
    assert marks(page, "entropy") == ["nan", "inf", "-inf", "nan"]
    expect(page.locator(f"{ENTROPY} [data-legend] strong")).to_have_text(
        "0.800"
    )  # the newest number, not the newest row
    run.go_on(6, 8)  # the live line goes on after them
    wait_for_points(page, 8)
    assert marks(page, "entropy") == ["nan", "inf", "-inf", "nan"]


def test_what_was_thinned_away_is_counted_too(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    MetricPoint.objects.filter(run=run.run, name__in=("loss/entropy", "regret/mean")).delete()
    entropy = [("nan" if step % 8 == 0 else None, -0.5, 0.5, 0.5)[step % 4] for step in range(8000)]
    regret = [(0.25, None, None, None)[step % 4] for step in range(8000)]  # due at every second rollout
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(
                run=run.run, attempt=1, rollout=step, name=name, value=None if value == "nan" else value,
                mark="nan" if value == "nan" else "",
            )
            for name, values in (("loss/entropy", entropy), ("regret/mean", regret))
            for step, value in enumerate(values)
        ]
    )  # fmt: skip
    page.goto(run.url)
    note = page.locator(f"{ENTROPY} [data-note]")
    expect(note).to_have_text("1000 of 8000 NaN × · 1000 of 8000 not measured")
    expect(page.locator(f"{ENTROPY} [data-plot]")).to_have_attribute("aria-label", re.compile("in 6000 rollouts"))
    regret_chart = page.locator('[data-chart="regret"]')
    regret_chart.scroll_into_view_if_needed()
    expect(regret_chart.locator("[data-note]")).to_have_text("2000 of 4000 not measured")
    page.evaluate("() => Spadework.charts.add(8000, { 'loss/entropy': null }, {}, 0)")
    expect(note).to_have_text("1000 of 8001 NaN × · 1001 of 8001 not measured")
    page.goto(f"{run.url}charts/?metric=entropy&log=1")
    expect(page.locator('[data-chart="loss/entropy"] [data-note]')).to_contain_text("2000 not above 0 ▽")


def test_case_06_a_log_axis_marks_what_is_not_above_zero(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(6)
    set_points(run.run, "loss/entropy", [10, 1, 0.1, 0, -2, 0.01])
    page.goto(f"{run.url}charts/?log=1")
    chart = page.locator('[data-chart="loss/entropy"]')
    chart.scroll_into_view_if_needed()
    expect(chart.locator("[data-note]")).to_contain_text("2 not above 0 ▽")
    assert marks(page, "loss/entropy") == ["below", "below"]
    low, high = page.evaluate("() => Spadework.charts.range('loss/entropy', 'y')")
    assert 0 < low <= 0.01
    assert high >= 10


def test_the_x_axis_by_time_starts_at_the_first_rollout_and_stays_in_the_address(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(6)
    page.goto(f"{run.url}charts/")
    wait_for_points(page, 6)
    by_rollout = page.evaluate("() => Spadework.charts.range('win-rate')")
    assert by_rollout == [0, 5]
    page.locator("[data-x]").select_option("time")
    times = list(run.run.events.filter(kind="metrics").order_by("cursor").values_list("at", flat=True))
    span = (times[-1] - times[0]).total_seconds()
    page.wait_for_function(f"() => Math.abs(Spadework.charts.range('win-rate')[1] - {span}) < 0.01")
    assert "x=time" in page.url
    page.reload()
    page.wait_for_function(f"() => Math.abs((Spadework.charts.range('win-rate') || [0, 0])[1] - {span}) < 0.01")


def test_smoothing_and_log_keep_the_zoom(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(12)
    page.goto(f"{run.url}charts/")
    wait_for_points(page, 12)
    plot = page.locator('[data-chart="win-rate"] .u-over')
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=5)
    page.mouse.up()
    zoomed = page.evaluate("() => Spadework.charts.range('win-rate')")
    assert zoomed != [0, 11]
    page.locator("[data-smooth]").fill("0.5")
    expect(page.locator("[data-smooth-value]")).to_have_text("0.5")
    assert page.evaluate("() => Spadework.charts.range('win-rate')") == zoomed


def test_a_chart_is_saved_as_picture_and_as_points(page: Any, synthetic: Callable[..., Any], tmp_path: Path) -> None:
    run = synthetic()
    run.begin(4)
    page.goto(run.url)
    wait_for_points(page, 4)
    chart = page.locator(ENTROPY)
    chart.hover()
    with page.expect_download() as picture:
        chart.get_by_role("button", name="PNG").click()
    assert picture.value.suggested_filename == "entropy-of-the-policy.png"
    picture.value.save_as(tmp_path / "chart.png")
    with Image.open(tmp_path / "chart.png") as image:
        assert image.width > 300
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 10  # something is drawn
    with page.expect_download() as points:
        chart.get_by_role("link", name="CSV").click()
    points.value.save_as(tmp_path / "chart.csv")
    lines = (tmp_path / "chart.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["loss/entropy", str(rollout)] for rollout in range(4)]


def test_runs_are_chosen_in_the_list_and_drawn_together(page: Any, synthetic: Callable[..., Any]) -> None:
    from webapp.runs.models import Run

    run = synthetic()
    run.begin(5)
    other = Run.objects.get(pk=run.run.pk)
    other.pk, other.slug, other.name, other.gpu_set, other.status = None, "other-2", "other", "o", "completed"
    other.config = {**other.config, "seed": 99}
    other.save()
    for point in MetricPoint.objects.filter(run=run.run, rollout__lt=3):
        MetricPoint.objects.create(run=other, attempt=1, rollout=point.rollout, name=point.name, value=point.value)
    page.goto("/runs/")
    for pk in (run.run.pk, other.pk):
        page.locator(f"#run-{pk} [data-pick]").check()
    page.keyboard.press("=")
    page.wait_for_url("**/runs/compare/**")
    expect(page.locator("h1")).to_have_text("Compare 2 runs")
    chart = page.locator('[data-chart="top-entropy"]')
    page.wait_for_function("() => Number(document.querySelector('[data-chart=\"top-entropy\"]').dataset.points) === 5")
    expect(chart.locator(".legend-item")).to_have_count(2)
    keys = chart.locator(".key").evaluate_all("all => all.map((one) => getComputedStyle(one).color)")
    assert len(set(keys)) == 2
    expect(page.locator("#settings tbody tr")).to_have_count(1)
    expect(page.locator("#settings tbody tr")).to_contain_text("seed")
    page.locator(f'[data-run-toggle="{other.pk}"]').uncheck()
    expect(chart.locator(".legend-item:visible")).to_have_count(1)
    assert f"hide={other.pk}" in page.url
    page.reload()
    expect(page.locator(f'[data-run-toggle="{other.pk}"]')).not_to_be_checked()


def test_panels_come_when_they_are_scrolled_to(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(run=run.run, attempt=1, rollout=rollout, name=f"wide/{index:03d}", value=1.0)
            for index in range(200)
            for rollout in (0, 1)
        ]
    )
    page.goto(f"{run.url}charts/")
    wait_for_points(page, 2)
    assert page.locator("[data-chart]").count() < 60
    last = page.locator('[data-chart="wide/199"]')
    while not last.count():
        # Not by a locator: it would wait for ever when the last piece comes at this very moment.
        page.evaluate("() => [...document.querySelectorAll('.charts-later')].at(-1)?.scrollIntoView()")
        page.wait_for_timeout(100)
    last.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('[data-chart=\"wide/199\"]').dataset.points === '2'")
    page.goto(f"{run.url}charts/?metric=wide/199")
    expect(page.locator("[data-chart]")).to_have_count(1)
