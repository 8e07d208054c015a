"""The page of queue and workers, and the dry run of the start form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.pages.test_run_pages import new_run
from tests.pages.test_start_form import posted
from webapp.runs.forms import setting_text, setting_value, specs


def test_the_page_shows_what_is_at_work_and_what_waits_in_order(operator: Client, viewer: Client) -> None:
    new_run(name="busy", slug="busy", status="running", gpu_set="box:0,1", heartbeat_at=timezone.now())
    first = new_run(name="waits <b>", slug="w1", status="queued", queued_at=timezone.now(), queue_rank=1)
    second = new_run(name="waits too", slug="w2", status="queued", queued_at=timezone.now(), queue_rank=2)
    page = viewer.get("/runs/queue/")
    html = page.content.decode()
    assert [run.pk for run in page.context["waiting"]] == [first.pk, second.pk]
    assert "box:0,1" in html
    assert "waits &lt;b&gt;" in html
    assert "Take out" not in html
    operator.post(f"/runs/queue/{second.pk}/first/")
    assert [run.pk for run in viewer.get("/runs/queue/").context["waiting"]] == [second.pk, first.pk]
    assert operator.post(f"/runs/queue/{second.pk}/sideways/").status_code == 404
    assert viewer.post(f"/runs/queue/{second.pk}/last/").status_code == 403


def test_a_queue_that_nobody_takes_from_says_so(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    new_run(status="queued", queued_at=timezone.now())
    monkeypatch.setattr("webapp.runs.presence.workers", list)
    assert "will not start until one is started" in viewer.get("/runs/queue/").content.decode()
    monkeypatch.setattr("webapp.runs.presence.workers", lambda: None)
    assert "Valkey cannot be asked" in viewer.get("/runs/queue/").content.decode()


def test_a_dry_run_says_what_would_happen_and_queues_nothing(operator: Client) -> None:
    from webapp.runs.models import Run

    data = posted("tiny", **{"schedule.rollouts": "8", "schedule.environments": "3", "schedule.plays": "4", "schedule.hinted_plays": "2",
                             "schedule.regenerate_every": "2", "dry": "1"})  # fmt: skip
    page = operator.post("/runs/new/", data)
    assert page.status_code == 200
    estimate = page.context["estimate"]
    # Sets at rollouts 0, 2, 4 and 6: 12 environments; 8 rollouts of 3 x 4 unhinted episodes, 4 sets of 3 x 2 hinted ones.
    assert (estimate.environments, estimate.unhinted, estimate.hinted) == (12, 96, 24)
    assert (estimate.checkpoint_bytes, estimate.log_bytes, estimate.total_bytes) == (None, None, None)
    assert "its sizes are not known" in page.content.decode()
    assert [one.spec.path for one in page.context["form"].changes] != []
    assert not Run.objects.exists()


def test_a_dry_run_of_wrong_settings_says_what_is_wrong(operator: Client) -> None:
    page = operator.post("/runs/new/", posted("tiny", **{"agent.temperature": "hot", "dry": "1"}))
    assert page.status_code == 422
    assert page.context["estimate"] is None
    assert "set-agent-temperature-error" in page.content.decode()


def test_sizes_come_from_the_newest_run_of_the_same_model(ingested: Callable[..., Any], operator: Client) -> None:
    from webapp.runs.configuration import parse_config
    from webapp.runs.estimate import directory_bytes, estimate_of

    run = ingested(status="completed")
    config = parse_config(run.config)
    estimate = estimate_of(config=config)
    assert estimate.basis == run
    # The synthetic run writes a checkpoint of 23.4 MB each rollout; the settings keep the newest 3 and the best one.
    assert estimate.checkpoint_bytes == (3 + 1) * 23_400_000
    logged = directory_bytes(Path(run.directory) / "attempts")
    assert logged is not None
    assert estimate.log_bytes == round(logged / run.episodes.count() * estimate.episodes)
    assert estimate.is_too_large is False
    other = config.model_copy(update={"model": config.model.model_copy(update={"path": "another-model"})})
    assert estimate_of(config=other).basis is None


@pytest.mark.parametrize(
    ("rollouts", "every", "last", "multiples", "best", "kept"),
    [
        (20, 10, 2, 1, 0, 2),  # 10 and 20 are all there ever are
        (300, 10, 3, 3, 0, 12),  # 280, 290, 300, and 30, 60 … 270
        (100, 7, 1, 10, 0, 2),  # 100, and 70
        (100, 1, 3, 10, 0, 12),  # 98, 99, 100, and 10, 20 … 90
        (100, 7, 2, 0, 0, 2),  # 98 and 100
        (100, 1, 3, 10, 2, 14),
        (5, 2, 2, 0, 4, 3),  # 2, 4 and 5: no more than are saved
        (4, 10, 3, 0, 1, 1),
    ],
)
@pytest.mark.django_db
def test_the_checkpoints_of_an_estimate_are_those_the_trainer_keeps(
    rollouts: int, every: int, last: int, multiples: int, best: int, kept: int
) -> None:
    from webapp.runs.configuration import read_config
    from webapp.runs.estimate import estimate_of

    settings = {"every": every, "keep_last": last, "keep_every": multiples, "keep_best": best}
    overrides = {"schedule.rollouts": rollouts} | {f"checkpoint.{name}": value for name, value in settings.items()}
    assert estimate_of(config=read_config(preset="demo", overrides=overrides)).checkpoints == kept
    # The same, counted as the trainer prunes (Checkpoints._prune); the best are at most among the others.
    saved = [number for number in range(1, rollouts + 1) if number % every == 0 or number == rollouts]
    left = {*saved[-last:], *(number for number in saved if multiples and number % multiples == 0)}
    assert min(len(saved), len(left) + best) == kept


def test_a_clone_shows_how_it_differs_from_its_source_before_it_starts(run: Any, operator: Client) -> None:
    plain = operator.get(f"/runs/new/?clone={run.pk}")
    assert plain.context["form"].changes == []
    data = {spec.path: setting_text(setting_value(run.config, spec.path)) for spec in specs()}
    data = {name: text for name, text in data.items() if text != "false"} | {
        "seed": "99",
        "clone": str(run.pk),
        "dry": "1",
    }
    page = operator.post("/runs/new/", data)
    assert [(one.spec.path, one.base, one.text) for one in page.context["form"].changes] == [("seed", "7", "99")]
    assert "Differences from tanks" in page.content.decode()
