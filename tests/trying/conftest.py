"""People, a run of the built-in model with a real checkpoint, and sessions in each state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.pages.conftest import as_role, ingested, operator, run, viewer

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]


@pytest.fixture
def saved(run: Any) -> Any:
    """The run with checkpoint 000001 of the built-in model's weights, and its settings."""
    from tests.trainer.starter_run import make

    folder = Path(run.directory)
    shutil.rmtree(folder)
    made = make(folder)
    run.config = json.loads(made.config.read_text())["config"]
    run.save(update_fields=["config"])
    return run


@pytest.fixture
def person(as_role: Callable[[str], Client]) -> Callable[[str], Any]:
    """``person("operator")``: the user the client of that role is signed in as."""

    def find(role: str) -> Any:
        from webapp.accounts.models import User

        as_role(role)
        return User.objects.get(username=f"{role}-person")

    return find


@pytest.fixture
def held(saved: Any, person: Callable[[str], Any]) -> Callable[..., Any]:
    """``held(by=…, state="ready")``: a session that a worker holds."""

    def make(**fields: Any) -> Any:
        from datetime import timedelta
        from uuid import uuid4

        from django.utils import timezone

        from webapp.trying.models import Trial

        facts = {
            "reply_tokens": 959, "context_tokens": 1024, "temperature": 1.0,
            "engine": {"parameters": 1, "dtype": "float32", "device": "cpu"},
        }  # fmt: skip
        until = timezone.now() + timedelta(seconds=60)
        return Trial.objects.create(
            **{"run": saved, "checkpoint": "000001", "by": person("operator"), "state": "ready", "facts": facts, "lease": uuid4(),
               "leased_until": until} | fields
        )  # fmt: skip

    return make
