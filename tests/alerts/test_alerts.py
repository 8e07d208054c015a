"""What becomes an alert, once each, however often and in whatever pieces a log is taken in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.runs.eventwriter import EventWriter
from webapp.alerts.rules import alerts_in
from webapp.runs.models import Attempt, Event

pytestmark = pytest.mark.django_db
FINE = {"win_rate/unhinted": 0.25, "group/frac_zero_spread": 0.5, "gates/pass_rate": 0.5, "gates/candidates": 8.0}


@pytest.mark.parametrize(
    ("values", "not_finite", "kinds"),
    [
        (FINE, {}, []),
        ({}, {}, []),
        (dict.fromkeys(FINE), {}, []),
        (FINE | {"loss/total": None}, {"loss/total": "nan"}, ["not_finite"]),
        (FINE | {"optim/skipped": 1.0}, {}, ["update_skipped"]),
        (FINE | {"optim/skipped": 0.0}, {}, []),
        (FINE | {"win_rate/unhinted": 0.0}, {}, ["never_won"]),
        (FINE | {"win_rate/unhinted": 1.0}, {}, ["always_won"]),
        (FINE | {"win_rate/unhinted": 0.999}, {}, []),
        (FINE | {"group/frac_zero_spread": 1.0}, {}, ["no_spread"]),
        (FINE | {"gates/pass_rate": 0.09}, {}, ["gate_collapse"]),
        (FINE | {"gates/pass_rate": 0.1}, {}, []),
        (FINE | {"gates/pass_rate": 0.0, "gates/candidates": 3.0}, {}, []),
        (
            {"win_rate/unhinted": 0.0, "group/frac_zero_spread": 1.0},
            {"a": "inf"},
            ["not_finite", "never_won", "no_spread"],
        ),
    ],
)
def test_rules(values: dict[str, Any], not_finite: dict[str, str], kinds: list[str]) -> None:
    assert [kind for kind, _ in alerts_in(values, not_finite)] == kinds


def test_many_values_that_are_not_finite_are_named_shortly() -> None:
    ((_, message),) = alerts_in({}, {f"m{index}": "nan" for index in range(7)})
    assert message == "m0 is nan, m1 is nan, m2 is nan, m3 is nan, m4 is nan and 2 more."


def rollout(writer: EventWriter, number: int, **values: Any) -> None:
    writer.open_rollout(number)
    not_finite = values.pop("not_finite", {})
    writer.emit("metrics", values={"win_rate/unhinted": 0.5, **values}, not_finite=not_finite)


def found(run: Any) -> list[tuple[str, int, int, int]]:
    return list(run.alert_rows.order_by("id").values_list("kind", "attempt", "rollout", "last_rollout"))


def test_what_goes_on_is_one_alert_and_what_comes_back_is_another(
    run: Any, writer: EventWriter, ingest: Callable[[], int]
) -> None:
    writer.start()
    for number, rate in enumerate((0.5, 0.0, 0.0, 0.5, 0.0)):
        rollout(writer, number, **{"win_rate/unhinted": rate})
        ingest()
    assert found(run) == [("never_won", 1, 1, 2), ("never_won", 1, 4, 4)]
    run.refresh_from_db()
    assert run.alerts == 2


def test_taking_a_log_in_again_alerts_nothing_twice(
    run: Any, writer: EventWriter, ingest: Callable[[], int], webhook: Any
) -> None:
    writer.start()
    for number in range(3):
        rollout(writer, number, **{"loss/total": None, "win_rate/unhinted": 0.0, "not_finite": {"loss/total": "nan"}})
    ingest()
    before = found(run)
    assert before == [("not_finite", 1, 0, 2), ("never_won", 1, 0, 2)]
    # As if the stored position and events had been lost: everything comes once more.
    Event.objects.filter(run=run).delete()
    run.metricpoints.all().delete()
    Attempt.objects.filter(run=run).update(ingest_file="", ingest_offset=0, ingest_seq=0)
    assert ingest() > 0
    assert found(run) == before
    assert webhook.deliveries.count() == 2
    run.refresh_from_db()
    assert run.alerts == 2


def current(run: Any) -> list[tuple[str, int, int, int]]:
    rows = run.alert_rows.filter(superseded=False).order_by("id")
    return list(rows.values_list("kind", "attempt", "rollout", "last_rollout"))


def test_a_resumed_attempt_alerts_for_itself_and_leaves_the_older_one_behind(
    run: Any, writer: EventWriter, ingest: Callable[[], int]
) -> None:
    writer.start()
    rollout(writer, 0, **{"win_rate/unhinted": 1.0})
    second = EventWriter(writer.directory.root, attempt=2)
    second.start(start_rollout=0)
    rollout(second, 0, **{"win_rate/unhinted": 1.0})
    ingest()
    assert found(run) == [("always_won", 1, 0, 0), ("always_won", 2, 0, 0)]
    assert current(run) == [("always_won", 2, 0, 0)]
    run.refresh_from_db()
    assert run.alerts == 1


def resumed_at_two(run: Any, writer: EventWriter, ingest: Callable[[], int]) -> None:
    """Attempt 1: nothing won in 1 to 3, a value not finite in 0, a skipped update in 3, lost. Attempt 2 starts at 2 and wins."""
    from webapp.runs import journal
    from webapp.runs.models import Run

    writer.start()
    rollout(writer, 0, **{"loss/total": None, "not_finite": {"loss/total": "nan"}})
    for number in (1, 2, 3):
        rollout(writer, number, **{"win_rate/unhinted": 0.0, "optim/skipped": float(number == 3)})
    ingest()
    Run.objects.filter(pk=run.pk).update(status="running")
    journal.move(run_id=run.pk, target="lost", why="no sign of life")
    run.refresh_from_db()
    assert run.alerts == 4
    Run.objects.filter(pk=run.pk).update(status="starting", attempt=2)
    second = EventWriter(writer.directory.root, attempt=2)
    second.start(start_rollout=2)
    rollout(second, 2)
    ingest()
    run.refresh_from_db()


def test_what_a_resume_left_behind_is_marked_and_not_counted(
    run: Any, writer: EventWriter, ingest: Callable[[], int], webhook: Any
) -> None:
    resumed_at_two(run, writer, ingest)
    assert current(run) == [("not_finite", 1, 0, 0), ("never_won", 1, 1, 1)]  # the part of it that holds
    left = run.alert_rows.filter(superseded=True).order_by("kind")
    assert list(left.values_list("kind", "rollout", "last_rollout")) == [
        ("never_won", 2, 3), ("run_lost", -1, -1), ("update_skipped", 3, 3),
    ]  # fmt: skip
    assert run.alerts == 2
    assert webhook.deliveries.count() == 4  # cutting one in two sends nothing


def test_taking_in_again_marks_the_same(run: Any, writer: EventWriter, ingest: Callable[[], int]) -> None:
    resumed_at_two(run, writer, ingest)
    before, held = found(run), current(run)
    Event.objects.filter(run=run).delete()
    run.metricpoints.all().delete()
    Attempt.objects.filter(run=run).update(ingest_file="", ingest_offset=0, ingest_seq=0)
    assert ingest() > 0
    assert (found(run), current(run)) == (before, held)
    run.refresh_from_db()
    assert run.alerts == 2


def test_pages_and_api_show_earlier_attempts_apart(
    run: Any, writer: EventWriter, ingest: Callable[[], int], viewer: Client
) -> None:
    resumed_at_two(run, writer, ingest)
    assert "2 alerts" in viewer.get("/runs/").content.decode()
    overview = viewer.get(f"/runs/{run.pk}/").content.decode()
    assert "all 2" in overview
    assert "no sign of life" not in overview.split('id="alerts-title"')[1].split("</section>")[0]
    for address in ("/alerts/", f"/runs/{run.pk}/alerts/"):
        rows = viewer.get(address).content.decode().split("<tbody>")[1].split("<tr")[1:]
        assert ["superseded" in row for row in rows] == ["earlier</span>" in row for row in rows]
        assert sum("superseded" in row for row in rows) == 3
        earlier = viewer.get(f"{address}?attempts=earlier").content.decode()
        assert "no sign of life" in earlier
        assert "loss/total is nan" not in earlier
    body = viewer.get(f"/api/v1/runs/{run.pk}/alerts/?attempts=current").json()["results"]
    assert [(one["kind"], one["superseded"]) for one in body] == [("never_won", False), ("not_finite", False)]
    assert len(viewer.get("/api/v1/alerts/?attempts=earlier&kind=run_lost").json()["results"]) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [("lost", "run_lost"), ("failed", "run_failed"), ("completed", "run_completed"), ("stopped", "run_stopped")],
)
def test_the_end_of_a_run_is_an_alert(status: str, kind: str, run: Any, webhook: Any) -> None:
    from webapp.runs import journal
    from webapp.runs.models import Run

    Run.objects.filter(pk=run.pk).update(status="running")
    assert journal.move(run_id=run.pk, target=status, why="because\x00")
    assert found(run) == [(kind, 1, -1, -1)]
    assert f'"type": "{kind}"' in webhook.deliveries.get().body


def test_an_alert_that_is_not_stored_is_not_sent(run: Any, webhook: Any) -> None:
    from django.db import transaction

    from webapp.runs import journal

    with pytest.raises(RuntimeError), transaction.atomic():
        journal.move(run_id=run.pk, target="failed", why="x")
        raise RuntimeError
    assert (found(run), webhook.deliveries.count()) == ([], 0)


def test_what_happened_long_ago_is_listed_and_not_sent(
    run: Any, writer: EventWriter, ingest: Callable[[], int], webhook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    ago = time.time() - 2 * 3600
    monkeypatch.setattr("tests.runs.eventwriter.time.time", lambda: ago)
    writer.start()
    rollout(writer, 0, **{"win_rate/unhinted": 0.0})
    monkeypatch.undo()
    ingest()
    assert len(found(run)) == 1
    assert webhook.deliveries.count() == 0


def test_alerts_are_on_the_runs_pages_and_marked_in_the_list(
    run: Any, writer: EventWriter, ingest: Callable[[], int], viewer: Client
) -> None:
    assert "1 alert" not in viewer.get("/runs/").content.decode()
    writer.start()
    rollout(writer, 0, **{"win_rate/unhinted": 0.0})
    ingest()
    for address in ("/alerts/", f"/runs/{run.pk}/alerts/", f"/runs/{run.pk}/"):
        assert "No unhinted episode was won" in viewer.get(address).content.decode()
    assert "1 alert" in viewer.get("/runs/").content.decode()
    assert "No alert" in viewer.get("/alerts/?kind=run_lost").content.decode()
    body = viewer.get(f"/api/v1/runs/{run.pk}/alerts/").json()["results"]
    assert [(one["kind"], one["rollout"]) for one in body] == [("never_won", 0)]
