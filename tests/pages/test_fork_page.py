"""Forking from the checkpoints page: offered where the checkpoint is there, refused with words where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from webapp.runs.forms import setting_text, setting_value, specs


@pytest.fixture
def source(run: Any) -> Any:
    """A run whose checkpoint 000003 is on the disk; 000001 and 000002 are rows only."""
    (Path(run.directory) / "checkpoints" / "000003").mkdir(parents=True)
    (Path(run.directory) / "checkpoints" / "000003" / "COMPLETE").touch()
    return run


def form(run: Any, **changes: str) -> dict[str, str]:
    data = {spec.path: setting_text(setting_value(run.config, spec.path)) for spec in specs()}
    name = max(row.name for row in run.checkpoints.all() if row.name <= "000003")
    return {key: text for key, text in data.items() if text != "false"} | {
        "fork": str(run.pk),
        "checkpoint": name,
        **changes,
    }


def test_only_checkpoints_that_are_there_are_offered_and_only_to_operators(
    source: Any, operator: Client, viewer: Client
) -> None:
    page = operator.get(f"/runs/{source.pk}/checkpoints/").content.decode()
    assert f"/runs/new/?fork={source.pk}&amp;checkpoint=000003" in page
    assert "checkpoint=000002" not in page
    assert "no longer on the disk" in page
    assert "?fork=" not in viewer.get(f"/runs/{source.pk}/checkpoints/").content.decode()


def test_a_fork_starts_from_the_settings_of_its_source(source: Any, operator: Client) -> None:
    from webapp.runs.models import Run

    page = operator.get(f"/runs/new/?fork={source.pk}&checkpoint=000003").content.decode()
    assert "Fork tanks at 000003" in page
    operator.post(
        "/runs/new/", form(source, **{"schedule.rollouts": "9", "optim.learning_rate": "1e-5", "name": "sharper"})
    )
    made = Run.objects.get(parent=source)
    assert (made.name, made.status, made.fork_checkpoint) == ("sharper", "queued", "000003")
    assert (made.config["optim"]["learning_rate"], made.total_rollouts) == (1e-5, 9)
    assert "forked at 000003 of" in operator.get(f"/runs/{made.pk}/").content.decode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule.rollouts": "3"}, "leaves nothing to do"),
        ({"schedule.rollouts": "9", "checkpoint": "000001"}, "no longer on the disk"),
        ({"schedule.rollouts": "9", "checkpoint": "../../x"}, "has no checkpoint"),
        ({"schedule.rollouts": "9", "model.path": "another"}, "does not go with a checkpoint"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry", [True, False])
def test_what_cannot_be_forked_is_refused_with_words_and_nothing_is_made(
    changes: dict[str, str], words: str, dry: bool, source: Any, operator: Client
) -> None:
    from webapp.runs.models import Run

    page = operator.post("/runs/new/", form(source, **changes, **({"dry": "1"} if dry else {})))
    assert page.status_code == 422
    assert words in page.content.decode()
    assert not Run.objects.filter(parent=source).exists()
