"""People of each role, and runs made from synthetic event logs by the real ingest. Models are imported late: Django is not set up yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.pages.make_run import make_run

ROLES = ("viewer", "reviewer", "operator", "admin")


@pytest.fixture
def as_role(db: None) -> Callable[[str], Client]:
    """A client signed in with a role; "" is a person without one, "anonymous" nobody at all."""

    def sign_in(role: str) -> Client:
        from django.contrib.auth.models import Group

        from webapp.accounts.models import User

        client = Client()
        if role == "anonymous":
            return client
        user, made = User.objects.get_or_create(username=f"{role or 'nobody'}-person")
        if made and role:
            user.groups.add(Group.objects.get_or_create(name=role)[0])
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return client

    return sign_in


@pytest.fixture
def viewer(as_role: Callable[[str], Client]) -> Client:
    return as_role("viewer")


@pytest.fixture
def operator(as_role: Callable[[str], Client]) -> Client:
    return as_role("operator")


@pytest.fixture
def ingested(db: None, tmp_path: Path) -> Callable[..., Any]:
    """``ingested(rollouts=4, status="running", …)``: a run whose synthetic log has been taken in by the real ingest."""

    def make(*, name: str = "tanks", status: str = "running", **options: Any) -> Any:
        from django.utils import timezone

        from webapp.runs.ingest import Ingester
        from webapp.runs.models import Run

        directory = tmp_path / f"run-{Run.objects.count() + 1}"
        make_run(directory, **{"rollouts": 4, "environments": 3, "plays": 3, **options})
        config = json.loads((directory / "config.json").read_text())["config"]
        run = Run.objects.create(
            name=name, slug=f"run-{Run.objects.count() + 1}", config=config, preset="demo", seed=7, status="running",
            total_rollouts=config["schedule"]["rollouts"], directory=str(directory), gpu_set=str(directory), started_at=timezone.now(),
        )  # fmt: skip
        Ingester(run_id=run.pk, directory=directory).drain()
        Run.objects.filter(pk=run.pk).update(status=status)
        run.refresh_from_db()
        return run

    return make


@pytest.fixture
def run(ingested: Callable[..., Any]) -> Any:
    """A running run: four rollouts of three environments."""
    return ingested()
