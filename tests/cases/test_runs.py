"""Cases 14, 15, 17 and 19: many runs, silence, deletion, settings and checkpoints that stay."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.pages.test_run_pages import new_run
from tests.runs.eventwriter import EventWriter
from tests.runs.supervising import SET, is_under_way, queued, supervise, when
from webapp.runs import services, services_shelf
from webapp.runs.errors import ActRefused
from webapp.runs.ingest import Ingester
from webapp.runs.models import Event, Run
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.supervisor import Supervisor
from webapp.runs.supervision.sweeper import sweep

pytestmark = pytest.mark.django_db

AFTER = re.compile(r'href="\?([^"]*after=[^"]*)"[^>]*rel="next"')


@pytest.fixture
def boss(operator: Client, settings: Any, tmp_path: Path) -> Any:
    """The operator's account; runs are made in the test's own folder."""
    from webapp.accounts.models import User

    settings.SPADEWORK_HOME = tmp_path
    return User.objects.get(username="operator-person")


def test_case_14_two_thousand_runs_page_through_and_comparing_a_hundred_says_how_many(operator: Client) -> None:
    model = new_run(name="first", slug="first")
    rows = [
        Run(
            name=f"run {index}",
            slug=f"r-{index}",
            config=model.config,
            seed=index,
            total_rollouts=4,
            status="completed",
        )
        for index in range(1_999)
    ]
    Run.objects.bulk_create(rows, batch_size=500)
    seen: list[str] = []
    query = ""
    while True:
        html = operator.get(f"/runs/?{query}").content.decode()
        seen += re.findall(r'id="run-(\d+)"', html)
        found = AFTER.search(html)
        if found is None:
            break
        query = found[1].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 2_000
    asked = {"run": [row.pk for row in Run.objects.order_by("-id")[:100]]}
    answer = operator.post("/runs/compare/", asked, follow=True)
    assert answer.status_code == 200
    assert "20 runs are the most that are drawn together" in answer.content.decode()


def test_case_15_a_silent_run_that_is_alive_stays_running_and_says_since_when(operator: Client, boss: Any) -> None:
    quiet = timezone.now() - timedelta(minutes=45)
    run = new_run(
        status="running", gpu_set="here:all", lease="6" * 32, last_event_at=quiet, heartbeat_at=timezone.now()
    )
    sweep()
    run.refresh_from_db()
    assert run.status == "running"
    html = operator.get(f"/runs/{run.pk}/").content.decode()
    state = html[html.index('id="run-state"') : html.index("data-eta")]
    assert "running" in state
    assert "last event" in state
    assert "45 min ago" in state


def test_case_17_deleting_asks_for_a_stop_first_spares_the_others_and_is_undone(boss: Any) -> None:
    busy = new_run(name="busy", slug="busy", status="running", gpu_set="busy")
    with pytest.raises(ActRefused, match="stop it first"):
        services_shelf.shelve_run(actor=boss, run_id=busy.pk, act="delete")
    rows = [new_run(name=f"row {index}", slug=f"row-{index}", status="completed") for index in range(10)]
    services_shelf.shelve_run(actor=boss, run_id=rows[2].pk, act="delete")
    gone = Run.objects.filter(deleted_at__isnull=False)
    assert [run.pk for run in gone] == [rows[2].pk]
    services_shelf.shelve_run(actor=boss, run_id=rows[2].pk, act="restore")
    assert not gone.all().exists()
    rows[2].refresh_from_db()
    assert rows[2].status == "completed"


def test_case_17_what_a_trainer_writes_late_does_not_bring_a_deleted_run_back(boss: Any, tmp_path: Path) -> None:
    run = new_run(status="lost", directory=str(tmp_path / "run"), attempt=1)
    writer = EventWriter(tmp_path / "run")
    writer.start()
    writer.rollouts(range(1))
    Ingester(run_id=run.pk, directory=tmp_path / "run").drain()
    services_shelf.shelve_run(actor=boss, run_id=run.pk, act="delete")
    writer.rollouts(range(1, 2))
    writer.emit("run_state", state="running")
    Ingester(run_id=run.pk, directory=tmp_path / "run").drain()  # does not hang, and loses nothing
    run.refresh_from_db()
    assert run.deleted_at is not None
    assert run.status == "lost"
    services_shelf.shelve_run(actor=boss, run_id=run.pk, act="restore")
    assert Event.objects.filter(run=run, kind="rollout_finished").count() == 2


def test_case_19_settings_are_those_it_started_with_whatever_is_typed_later(operator: Client, boss: Any) -> None:
    operator.post("/runs/new/?preset=demo", {"preset": "demo", "name": "first", "schedule.rollouts": "9"})
    run = Run.objects.get(name="first")
    before = run.config
    operator.post(f"/runs/new/?clone={run.pk}", {"name": "second", "schedule.rollouts": "11"})
    assert Run.objects.get(name="second").config["schedule"]["rollouts"] == 11
    run.refresh_from_db()
    assert run.config == before
    assert run.config["schedule"]["rollouts"] == 9
    assert operator.get(f"/runs/{run.pk}/config.json").json()["schedule"]["rollouts"] == 9


def test_case_19_the_older_checkpoint_is_still_there_after_an_attempt_that_failed(boss: Any) -> None:
    run = queued(boss, rollouts=4, rollout_s=0.5)
    run = supervise(run, when(is_under_way(run), lambda: services.stop_run(actor=boss, run_id=run.pk)), stop_s=20)
    assert run.status == "stopped"
    services.resume_run(actor=boss, run_id=run.pk)
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    Supervisor(claim, program=("/nonexistent/python",)).supervise()  # attempt 2 never gets anywhere
    run.refresh_from_db()
    assert (run.status, run.attempt) == ("failed", 2)
    done = run.rollouts_done
    services.resume_run(actor=boss, run_id=run.pk)
    run = supervise(run)
    assert (run.status, run.rollouts_done) == ("completed", 4)
    assert 1 <= run.attempts.latest("number").start_rollout <= done
