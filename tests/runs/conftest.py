"""An operator and a run whose directory is ours. Models are imported late: this file is loaded before Django is set up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.config import RunConfig


@pytest.fixture
def operator(db: None) -> Any:
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User

    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get_or_create(name="operator")[0])
    return user


@pytest.fixture
def run(operator: Any, tmp_path: Path) -> Any:
    """A run in state `starting`, as the supervisor leaves it when it has just launched the trainer."""
    from webapp.runs.models import Run

    return Run.objects.create(
        name="tanks", slug="tanks-1", owner=operator, config=RunConfig().model_dump(mode="json"), seed=0,
        directory=str(tmp_path / "run"), total_rollouts=4, status="starting", attempt=1, gpu_set="test",
    )  # fmt: skip


@pytest.fixture
def own_home(settings: Any, tmp_path: Path) -> None:
    """Runs are made in the test's own folder."""
    settings.SPADEWORK_HOME = tmp_path
