"""The people and runs of the page tests, and programs that pass the gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.environments.conftest import GUESS, reviewer
from tests.pages.conftest import as_role, ingested, operator, run, viewer

__all__ = ["as_role", "ingested", "operator", "reviewer", "run", "viewer"]


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Path:
    """Archives go where the test can look."""
    settings.SPADEWORK_HOME = tmp_path / "home"
    return tmp_path / "home"


@pytest.fixture
def programs(run: Any) -> list[Any]:
    """Two honest programs and one that does not compile, in the order of their slots."""
    found = list(run.environments.filter(superseded=False, rollout=0).order_by("slot"))
    for number, environment in enumerate(found):
        environment.code = (
            GUESS.replace("Right.", f"Right {number}.") if number < 2 else "class BrokenEnv:\n    def reset(\n"
        )
        environment.hint_state, environment.hint_text = (
            ("ok", f"halve the range {number}") if number == 0 else ("none", None)
        )
        environment.save()
    return found


@pytest.fixture
def built(programs: list[Any], reviewer: Any) -> Callable[..., Any]:
    """``built(name="tanks")``: a pool of them, judged by the real sandbox and written."""

    def make(name: str = "tanks", licence: str = "Apache-2.0", chosen: list[Any] | None = None) -> Any:
        from webapp.pools.building import build
        from webapp.pools.services import add_environments, build_pool, create_pool

        pool = create_pool(actor=reviewer, name=name, licence=licence)
        add_environments(actor=reviewer, pool_id=pool.pk, environment_ids=[one.pk for one in chosen or programs])
        build_pool(actor=reviewer, pool_id=pool.pk)
        build(pool_id=pool.pk)
        pool.refresh_from_db()
        return pool

    return make
