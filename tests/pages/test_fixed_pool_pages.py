"""A run on a fixed pool has no candidates and no designs: its pages open and say what they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.trainer.fakes import FakeEngines, fake_config, game
from trainer.run import attempt, create
from webapp.runs.ingest import Ingester
from webapp.runs.models import Event, Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def frozen(tmp_path: Path) -> Run:
    pool = tmp_path / "pool.jsonl"
    lines = [{"id": f"e/{i}", "code": game(name=f"Hunt{i}"), "hint": "Halve it."} for i in range(4)]
    pool.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = fake_config(pool__path=str(pool), designer__train=False, schedule__rollouts=2)
    trained = create(tmp_path / "run", config)
    assert attempt(trained, FakeEngines()) == 0
    run = Run.objects.create(
        name="frozen", slug="frozen", config=config.model_dump(mode="json"), preset="demo-fixed-pool", seed=0, status="running",
        total_rollouts=2, directory=str(trained.root), gpu_set="here", started_at=timezone.now(),
    )  # fmt: skip
    Ingester(run_id=run.pk, directory=trained.root).drain()
    return run


def test_every_event_of_such_a_run_fits_and_its_pages_open(frozen: Run, viewer: Client) -> None:
    assert not Event.objects.filter(run=frozen).exclude(problem="").exists()
    environments: list[Any] = list(frozen.environments.all())
    assert len(environments) == 4 and {e.candidate for e in environments} == {None}
    base = f"/runs/{frozen.pk}"
    one = environments[0]
    page = viewer.get(f"{base}/environments/{one.key}/")
    assert page.status_code == 200 and "Halve it." in page.content.decode()
    for path in (
        "/",
        "/environments/",
        "/candidates/",
        "/episodes/",
        "/regret/",
        "/memory/",
        "/corpus/",
        "/charts/",
        "/log/",
    ):
        answer = viewer.get(base + path)
        assert answer.status_code == 200, path
