"""Pages that live: charts that grow, sockets that break and come back, gaps that are said, zoom that stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from tests.browser.processes import elsewhere
from tests.browser.test_a_run import CHART, points, wait_for_points
from webapp.core.templatetags.numbers import num
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def patient(patience: int) -> None:
    expect.set_options(timeout=patience)


def wait_for_state(page: Any, word: str) -> None:
    page.wait_for_function(f"() => document.getElementById('live-chip')?.dataset.state === '{word}'")


def test_charts_figures_and_stages_follow_the_log_without_a_reload(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    page.goto(run.url)
    wait_for_points(page, 2)
    wait_for_state(page, "live")
    page.evaluate("() => { window.neverReloaded = true; }")
    height = page.locator(".overview-charts").bounding_box()["height"]

    run.go_on(2, 5)
    wait_for_points(page, 5)
    expect(page.locator("[data-rollouts-done]")).to_have_text("5")
    expect(page.locator("#progress [data-rollout]")).to_have_text("4")
    expect(page.locator('[data-stage="learn"]')).to_have_class("stage done")
    expect(page.locator('[data-figure="win_rate/unhinted"] [data-note]')).to_have_text("rollout 4")
    expect(page.locator("#latest .row-link").first).to_have_attribute("href", f"{run.url}environments/r0004-s00/")
    assert page.evaluate("() => window.neverReloaded === true")
    assert page.locator(".overview-charts").bounding_box()["height"] == height  # nothing jumped


def test_the_time_that_is_left_runs_down_between_two_rollouts(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    measured_at = timezone.now() - timedelta(minutes=25)
    Run.objects.filter(pk=run.run.pk).update(eta_s=3600.0, eta_at=measured_at)
    page.goto(run.url)
    page.wait_for_function(
        "() => document.querySelector('[data-eta]').dataset.etaAt.endsWith('Z')"
    )  # as the socket says
    said_at = datetime.fromisoformat(page.locator("[data-eta]").get_attribute("data-eta-at"))
    assert (
        abs((said_at - measured_at).total_seconds()) < 300
    )  # the clocks of page and server differ by the way it takes


def test_a_candidate_that_the_page_counts_already_is_not_counted_again(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(1)
    run.run.refresh_from_db()
    begun = run.run.events.get(kind="rollout_started").cursor
    # The cursor the page would have if the candidates had come while it was made.
    page.add_init_script(
        f"""document.addEventListener('readystatechange', () => {{
            const root = document.getElementById('run-live');
            if (root && document.readyState === 'interactive') root.dataset.cursor = '{begun}';
        }});
        document.addEventListener('run:events', (event) => {{ window.heard = event.detail.at(-1).c; }});"""
    )
    page.goto(run.url)
    page.wait_for_function(f"() => window.heard === {run.run.last_cursor}")
    accepted = run.run.candidates.filter(accepted=True).count()
    rejected = run.run.candidates.filter(accepted=False).count()
    note = page.locator('[data-stage="gates"] [data-stage-note]')
    assert accepted
    expect(note).to_have_text(f"{accepted} ok · {rejected} rejected")

    run.go_on(1, 3)  # rollout 2 writes a new set
    judged = run.run.candidates.filter(rollout=2)
    accepted, rejected = judged.filter(accepted=True).count(), judged.filter(accepted=False).count()
    expect(note).to_have_text(f"{accepted} ok · {rejected} rejected")


def test_every_chart_has_a_text_that_says_what_it_shows(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(4)
    page.goto(run.url)
    wait_for_points(page, 4)
    text = page.locator(f"{CHART} [data-plot]").get_attribute("aria-label")
    value = run.run.metricpoints.get(name="win_rate/unhinted", rollout=3).value
    assert text.startswith("Win rate by arm. unhinted: ")
    assert f"unhinted: {num(value)} in rollout 3" in text


def test_case_23_a_broken_socket_is_shown_and_the_page_catches_up_from_its_cursor(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    run = synthetic()
    run.begin(2)
    sockets: list[Any] = []
    cursors: list[str] = []

    def through(socket: Any) -> None:
        cursors.append(socket.url.rsplit("cursor=", 1)[1])
        socket.connect_to_server()
        sockets.append(socket)

    page.route_web_socket("**/ws/runs/*/*", through)
    page.goto(run.url)
    wait_for_points(page, 2)
    wait_for_state(page, "live")

    page.evaluate(
        """() => { window.states = []; new MutationObserver(() => window.states.push(document.getElementById('live-chip').dataset.state))
        .observe(document.getElementById('live-chip'), { attributes: true }); }"""
    )
    sockets[-1].close(code=1011)
    run.go_on(2, 4)  # while the page is not connected
    wait_for_points(page, 4)
    wait_for_state(page, "live")
    assert "reconnecting" in page.evaluate("() => window.states")
    run.run.refresh_from_db()
    assert len(cursors) == 2
    assert int(cursors[1]) >= int(cursors[0])
    assert points(page) == 4


def test_a_lost_frame_is_a_visible_gap_never_a_wrong_chart(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    dropped: list[int] = []

    def lossy(socket: Any) -> None:
        server = socket.connect_to_server()

        def forward(message: str) -> None:
            if json.loads(message).get("type") == "events" and not dropped:
                dropped.append(json.loads(message)["to"])
                # The page never learns of it; without its acknowledgement the server would wait.
                server.send(json.dumps({"type": "ack", "to": dropped[0]}))
                return
            socket.send(message)

        server.on_message(forward)

    page.route_web_socket("**/ws/runs/*/*", lossy)
    page.goto(run.url)
    wait_for_points(page, 2)
    page.evaluate(
        """() => { window.states = []; new MutationObserver(() => window.states.push(document.getElementById('live-chip').dataset.state))
        .observe(document.getElementById('live-chip'), { attributes: true }); }"""
    )
    run.go_on(2, 3)
    page.wait_for_timeout(500)
    run.go_on(3, 4)
    wait_for_points(page, 4)
    wait_for_state(page, "live")
    assert "gap" in page.evaluate("() => window.states")
    assert page.locator(f"{CHART} [data-plot]").get_attribute("aria-label").count("in 4 rollouts") >= 1


def test_a_resume_turns_the_abandoned_tail_into_a_ghost(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(5)
    page.goto(run.url)
    wait_for_points(page, 5)
    run.begin(1, attempt=2, start=3)
    page.wait_for_function(f"() => document.querySelector('{CHART} [data-note]').textContent.includes('older attempt')")
    assert points(page) == 4  # 0 to 2 of attempt 1, 3 of attempt 2
    expect(page.locator(".run-sub")).to_contain_text("attempt 2")


def test_what_is_zoomed_stays_zoomed_while_data_arrive(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(12)
    page.goto(run.url)
    wait_for_points(page, 12)
    plot = page.locator(f"{CHART} .u-over")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=5)
    page.mouse.up()
    labels = "() => Spadework.charts.range('win-rate')"
    zoomed = page.evaluate(labels)
    assert 1 < zoomed[0] < 5
    assert 5 < zoomed[1] < 9
    run.go_on(12, 14)
    wait_for_points(page, 14)
    page.wait_for_timeout(300)
    assert page.evaluate(labels) == zoomed
    plot.dblclick()
    page.wait_for_function("() => Spadework.charts.range('win-rate')[1] >= 13")


def test_a_page_that_polls_says_once_that_it_fails_and_no_longer_when_it_works(
    page: Any, synthetic: Callable[..., Any]
) -> None:
    page.expected_statuses = {503}
    run = synthetic()
    run.begin(2)
    page.goto(f"{run.url}log/")
    polls: list[Any] = []

    def refuse(route: Any) -> None:
        polls.append(route)
        route.fulfill(status=503, body="")

    page.route("**/log/*", refuse)
    page.wait_for_function("() => document.querySelector('#messages .message')")
    while len(polls) < 4:
        page.wait_for_timeout(200)
    expect(page.locator("#messages .message")).to_have_count(1)
    page.unroute("**/log/*")
    expect(page.locator("#messages .message")).to_have_count(0)


def test_the_list_follows_a_run_and_announces_new_ones(page: Any, synthetic: Callable[..., Any]) -> None:
    from webapp.accounts.models import User
    from webapp.runs import services
    from webapp.runs.configuration import read_config

    run = synthetic()
    run.begin(2)
    page.goto("/runs/")
    row = page.locator(f"#run-{run.run.pk}")
    expect(row).to_contain_text("2/20")
    page.wait_for_timeout(1000)
    run.go_on(2, 4)
    expect(row).to_contain_text("4/20")
    actor = User.objects.get()
    made = services.create_run(actor=actor, config=read_config(preset="tiny", overrides={}))
    elsewhere(lambda: services.start_run(actor=actor, run_id=made.pk))
    expect(page.locator("#new-runs")).to_have_text("1 new")
    assert page.locator(f"#run-{made.pk}").count() == 0  # announced, not pushed in


def test_the_list_looks_again_after_it_was_cut_off(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    sockets: list[Any] = []

    def through(socket: Any) -> None:
        socket.connect_to_server()
        sockets.append(socket)

    page.route_web_socket("**/ws/runs/", through)
    page.goto("/runs/")
    row = page.locator(f"#run-{run.run.pk}")
    wait_for_state(page, "live")
    expect(row).to_contain_text("2/20")
    Run.objects.filter(pk=run.run.pk).update(rollouts_done=3)  # the wake-up for it goes to nobody
    sockets[0].close(code=1011)
    expect(row).to_contain_text("3/20")
    wait_for_state(page, "live")


def test_the_form_marks_changes_and_undoes_them(page: Any) -> None:
    page.goto("/runs/new/?preset=tiny")
    field = page.locator('[name="schedule.plays"]')
    field.fill("4")
    expect(page.locator("#section-schedule [data-changed-count]")).to_have_text("1 changed")
    expect(page.locator('[data-setting]:has([name="schedule.plays"]) [data-was]')).to_have_text("was 2")
    page.get_by_role("button", name="Undo all changes").click()
    expect(field).to_have_value("2")
    expect(page.locator("#section-schedule [data-changed-count]")).to_be_hidden()


def test_a_wrong_value_is_refused_at_its_field(page: Any) -> None:
    page.expected_statuses = {422}
    page.goto("/runs/new/?preset=tiny")
    page.locator("#section-agent summary").click()
    page.locator('[name="agent.temperature"]').fill("hot")
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("#set-agent-temperature-error")).to_contain_text("valid number")
    expect(page.locator('[name="agent.temperature"]')).to_be_focused()
    expect(page.locator("#section-agent")).to_have_attribute("open", "")
