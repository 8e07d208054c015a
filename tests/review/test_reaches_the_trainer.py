"""From a flag to the loop and back: the real relay, the real trainer loop on fake engines, the real ingest."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fakes import fake_config
from tests.trainer.loop.test_control import Driven, at
from trainer.rundir import RunDirectory
from webapp.episodes.models import Episode
from webapp.review import services
from webapp.review.effects import state_of
from webapp.review.models import Effect
from webapp.review.services import Wish
from webapp.review.trained import trained_before
from webapp.runs.ingest import Ingester
from webapp.runs.models import Command, Run
from webapp.runs.supervision.lease import Claim
from webapp.runs.supervision.relay import Relay

pytestmark = pytest.mark.django_db
KEY = "r0000-s01"


@pytest.fixture
def run(db: None, tmp_path: Path) -> Run:
    """The row of a run whose trainer a test drives in this process."""
    config = fake_config().model_dump(mode="json")
    return Run.objects.create(
        name="driven", slug="driven-1", config=config, preset="tiny", seed=0, status="running", total_rollouts=6, attempt=1,
        directory=str(tmp_path / "run"), gpu_set="driven",
    )  # fmt: skip


@pytest.fixture
def flag(
    run: Run, person: Callable[[str], Any], kind: Callable[[str], Any]
) -> Callable[[Wish], Callable[[RunDirectory], None]]:
    """``flag(wish)``: what happens at an event: what the log says so far is taken in, somebody flags, the relay passes it on."""

    def on_event(wish: Wish) -> Callable[[RunDirectory], None]:
        def act(directory: RunDirectory) -> None:
            Ingester(run_id=run.pk, directory=directory.root).drain()
            environment = run.environments.get(key=KEY)
            services.place_flag(
                actor=person("operator"), environment_id=environment.pk, kind_id=kind("shortcut").pk, wish=wish
            )
            pass_on(run, directory)

        return act

    return on_event


def pass_on(run: Run, directory: RunDirectory) -> None:
    Relay(Claim(run_id=run.pk, lease=uuid.uuid4(), attempt=1, directory=directory)).pass_on()


def effect_of(run: Run) -> Effect:
    Ingester(run_id=run.pk, directory=Path(run.directory)).drain()
    return Effect.objects.select_related("environment__run", "command", "undo").get()


def test_a_quarantine_holds_from_the_rollout_shown_and_what_was_trained_before_is_what_was_trained(
    run: Run, flag: Any
) -> None:
    driven = Driven(Path(run.directory), (at("rollout_started", 1), flag(Wish(act="quarantine"))))
    effect = effect_of(run)
    assert state_of(effect).word == "in effect from rollout 1"
    assert effect.environment.state == "quarantined"
    played = Episode.objects.filter(environment=effect.environment)
    assert set(played.values_list("rollout", flat=True)) == {0}
    rows = [
        row for batch in driven.engines.learner.batches for row in batch if row.sample.startswith(KEY) and any(row.mask)
    ]
    trained = trained_before(environment=effect.environment, rollout=1)
    assert (trained.episodes, trained.tokens) == (len(rows), sum(sum(row.mask) for row in rows))
    assert trained.episodes > 0
    assert trained.designs == 0


def test_a_down_weight_and_its_undo_arrive_with_their_weights(run: Run, flag: Any, person: Any) -> None:
    def undo(directory: RunDirectory) -> None:
        services.undo_effect(actor=person("operator"), effect_id=effect_of(run).pk)
        pass_on(run, directory)

    driven = Driven(
        Path(run.directory),
        (at("rollout_started", 1), flag(Wish(act="down_weight", weight=0.5))),
        (at("rollout_started", 2), undo),
    )
    effect = effect_of(run)
    assert state_of(effect).word == "undone from rollout 2"
    weights = [event["payload"]["weight"] for event in driven.of("environment_weight")]
    assert weights == [0.5, 1.0]
    assert list(Command.objects.order_by("created_at").values_list("accepted", "effective_rollout")) == [
        (True, 1),
        (True, 2),
    ]


def test_a_purge_takes_the_record_away_and_its_undo_brings_it_back(run: Run, flag: Any, person: Any) -> None:
    def undo(directory: RunDirectory) -> None:
        effect = effect_of(run)
        assert state_of(effect).word == "in effect from rollout 1"
        assert run.memoryrecords.get(environment_key=KEY).removed_reason == "purged"
        services.undo_effect(actor=person("operator"), effect_id=effect.pk)
        pass_on(run, directory)

    Driven(
        Path(run.directory),
        (at("rollout_started", 1), flag(Wish(act="purge_memory"))),
        (at("rollout_started", 2), undo),
    )
    assert state_of(effect_of(run)).word == "undone from rollout 2"
    assert run.memoryrecords.get(environment_key=KEY).removed_rollout is None
