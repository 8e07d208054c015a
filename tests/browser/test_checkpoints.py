"""Checkpoints of a real run in a real browser: the best one's weights arrive as a file, and a fork goes on from them."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from safetensors import safe_open

from tests.browser.processes import elsewhere

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1500)]


def wait_for_status(page: Any, wanted: str) -> None:
    page.wait_for_function(f"() => document.getElementById('run-head')?.dataset.status === '{wanted}'")


@pytest.fixture
def trained(page: Any, worker: Any, patience: int) -> Any:
    """A finished run of the real trainer with its checkpoints on the disk."""
    from webapp.accounts.models import User
    from webapp.runs import services
    from webapp.runs.configuration import read_config

    expect.set_options(timeout=patience)
    actor = User.objects.get()
    draft = services.create_run(
        actor=actor, config=read_config(preset="tiny", overrides={"schedule.rollouts": 3}), name="tanks"
    )
    run = elsewhere(lambda: services.start_run(actor=actor, run_id=draft.pk))
    page.goto(f"/runs/{run.pk}/")
    wait_for_status(page, "completed")
    run.refresh_from_db()
    return run


def test_the_best_checkpoint_is_downloaded_and_forked(page: Any, trained: Any, tmp_path: Path) -> None:
    from webapp.accounts.models import AuditEntry
    from webapp.runs.models import Run

    page.get_by_role("link", name="Checkpoints", exact=True).click()
    best = page.locator("#checkpoints tr", has=page.locator(".chip", has_text="best"))
    name = best.locator("td").first.inner_text().split()[0]
    with page.expect_download() as waiting:
        best.get_by_role("link", name=f"Download the model of {name}").click()
    assert waiting.value.suggested_filename == f"{trained.slug}-{name}.tar"
    with tarfile.open(waiting.value.path()) as archive:
        archive.extractall(tmp_path / "arrived", filter="data")
    arrived = tmp_path / "arrived" / f"{trained.slug}-{name}"
    model = Path(trained.directory) / "checkpoints" / name / "model"
    assert {file.name for file in arrived.iterdir()} == {file.name for file in model.iterdir()}
    weights = arrived / "model.safetensors"
    assert weights.read_bytes() == (model / "model.safetensors").read_bytes()
    with safe_open(weights, framework="pt") as tensors:
        assert sum(tensors.get_tensor(key).numel() for key in tensors.keys()) > 1_000_000  # noqa: SIM118 - no mapping
    assert AuditEntry.objects.get(action="checkpoint.downloaded").detail == {"checkpoint": name, "part": "model"}

    page.get_by_role("link", name="fork the best").click()
    expect(page.locator("h1")).to_have_text(f"Fork tanks at {name}")
    page.locator('[name="schedule.rollouts"]').fill("4")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(rf"/runs/(?!{trained.pk}/)\d+/$"))
    expect(page.locator(".run-sub")).to_contain_text(f"forked at {name} of tanks")
    wait_for_status(page, "completed")
    fork = Run.objects.get(parent=trained)
    assert (fork.fork_checkpoint, fork.rollouts_done) == (name, 4)
    begun = trained.checkpoints.get(name=name, superseded=False).next_rollout
    own = fork.metricpoints.filter(name="loss/total").order_by("rollout").values_list("rollout", flat=True)
    assert list(own) == list(range(begun, 4))
