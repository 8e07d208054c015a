"""What people may do with runs, in which states, and what is written down about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from celery import current_app

from trainer.config import RunConfig
from trainer.presets import load_preset
from webapp.accounts.models import AuditEntry, User
from webapp.environments.models import Environment, MemoryRecord
from webapp.runs import configuration, dispatch, journal, services
from webapp.runs.errors import ActRefused, InvalidConfig, RunNotFound
from webapp.runs.models import Command, Event, Run
from webapp.runs.states import ACTS, FINAL, MOVES, Status, acts_in, sources
from webapp.runs.supervision import relay

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path


def in_state(run: Run, status: str, **fields: Any) -> Run:
    Run.objects.filter(pk=run.pk).update(status=status, **fields)
    run.refresh_from_db()
    return run


def test_a_new_run_is_a_draft_with_frozen_settings(operator: User, tmp_path: Path) -> None:
    run = services.create_run(actor=operator, config=load_preset("tiny"), tags=[" cpu ", "cpu", ""])
    assert run.status == "draft"
    assert run.name == run.slug == f"tiny-{run.pk}"
    assert run.directory == str(tmp_path / "runs" / f"tiny-{run.pk}")
    assert run.config["schedule"]["rollouts"] == run.total_rollouts == 6
    assert run.tags == ["cpu"]
    entry = AuditEntry.objects.get(action="run.created")
    assert (entry.actor, entry.object_id) == (operator, str(run.pk))


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "<script>alert(1)</script>", "a\x00b", "Ω" * 500, "  two   words "]
)
def test_a_hostile_name_never_becomes_a_path(operator: User, tmp_path: Path, name: str) -> None:
    run = services.create_run(actor=operator, config=RunConfig(), name=name)
    directory = Path(run.directory)
    assert directory.parent == tmp_path / "runs"
    assert set(directory.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    assert "\x00" not in run.name
    assert len(run.name) <= services.NAME_CHARS


def test_start_queues_the_run_and_tells_a_worker(operator: User, django_capture_on_commit_callbacks: Any) -> None:
    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge("gpu")
    run = services.create_run(actor=operator, config=RunConfig())
    with django_capture_on_commit_callbacks(execute=True):
        run = services.start_run(actor=operator, run_id=run.pk)
    assert run.status == "queued"
    assert run.queued_at is not None
    assert dispatch.waiting_messages() == 1
    transition = run.transitions.get()
    assert (transition.source, transition.target, transition.by) == ("draft", "queued", operator)


@pytest.mark.parametrize("act", ["start", "pause", "unpause", "stop", "checkpoint", "resume"])
@pytest.mark.parametrize("status", list(Status))
def test_an_act_is_refused_in_every_state_but_its_own(run: Run, operator: User, act: str, status: str) -> None:
    in_state(run, status)
    service = {
        "start": services.start_run, "pause": services.pause_run, "unpause": services.unpause_run,
        "stop": services.stop_run, "checkpoint": services.checkpoint_run, "resume": services.resume_run,
    }[act]  # fmt: skip
    if status in ACTS[act]:
        service(actor=operator, run_id=run.pk)
        assert AuditEntry.objects.filter(actor=operator).count() == 1
    else:
        with pytest.raises(ActRefused, match=f"{run} is {status}"):
            service(actor=operator, run_id=run.pk)
        run.refresh_from_db()
        assert run.status == status
        assert not Command.objects.filter(run=run).exists()
        assert not AuditEntry.objects.exists()


def test_every_state_but_completed_has_a_way_on() -> None:
    assert {state for state, targets in MOVES.items() if not targets} == {Status.COMPLETED}
    assert set(MOVES) == set(Status)
    for act, states in ACTS.items():
        assert set(states) <= set(Status), act


def test_no_state_leads_to_an_end_without_having_been_active_or_queued() -> None:
    for state in (Status.COMPLETED, Status.FAILED, Status.LOST):
        assert set(sources(state)) == {"starting", "running", "pausing", "paused", "stopping"}
    assert set(sources(Status.STOPPED)) == {"queued", "starting", "running", "pausing", "paused", "stopping"}


def test_acts_are_listed_per_state() -> None:
    assert acts_in("running") == ["pause", "stop", "checkpoint", "clone", "rename", "quarantine", "release"]
    assert acts_in("completed") == ["clone", "rename", "archive", "delete", "quarantine", "release"]


def test_a_move_happens_only_from_the_expected_state(run: Run, operator: User) -> None:
    assert journal.move(run_id=run.pk, target="running", by=operator, why="test")
    assert not journal.move(run_id=run.pk, target="running")
    assert not journal.move(run_id=run.pk, target="draft")
    run.refresh_from_db()
    assert run.status == "running"
    event = Event.objects.get(run=run, kind="status")
    assert event.payload == {"from": "starting", "to": "running", "by": "olga", "why": "test"}


def test_a_queued_run_stops_at_once(operator: User) -> None:
    run = services.create_run(actor=operator, config=RunConfig())
    services.start_run(actor=operator, run_id=run.pk)
    assert services.stop_run(actor=operator, run_id=run.pk) is None
    run.refresh_from_db()
    assert run.status == "stopped"
    assert run.finished_at is not None


def test_pause_asks_the_trainer_of_this_attempt(run: Run, operator: User) -> None:
    in_state(run, "running", attempt=3)
    command = services.pause_run(actor=operator, run_id=run.pk, reason="lunch")
    run.refresh_from_db()
    assert run.status == "pausing"
    assert (command.attempt, command.action, command.reason, command.by) == (3, "pause", "lunch", operator)
    asked = Event.objects.get(run=run, kind="command_asked")
    assert asked.payload["id"] == str(command.pk)


def test_unpause_changes_nothing_until_the_trainer_says_so(run: Run, operator: User) -> None:
    in_state(run, "paused")
    services.unpause_run(actor=operator, run_id=run.pk)
    run.refresh_from_db()
    assert run.status == "paused"


def test_a_run_that_has_done_everything_is_not_resumed(run: Run, operator: User) -> None:
    in_state(run, "stopped", rollouts_done=4)
    with pytest.raises(ActRefused, match="has done all its 4 rollouts"):
        services.resume_run(actor=operator, run_id=run.pk)


def test_a_clone_is_a_draft_that_knows_its_parent(run: Run, operator: User) -> None:
    in_state(run, "completed")
    clone = services.clone_run(actor=operator, run_id=run.pk)
    assert (clone.status, clone.parent, clone.name) == ("draft", run, "tanks copy")
    assert clone.config == run.config
    assert clone.directory != run.directory
    changed = services.clone_run(actor=operator, run_id=run.pk, name="longer", config=RunConfig(seed=5))
    assert (changed.name, changed.seed) == ("longer", 5)


def test_renaming_keeps_the_address_and_is_in_the_history(run: Run, operator: User) -> None:
    services.rename_run(actor=operator, run_id=run.pk, name="  big   tanks ")
    run.refresh_from_db()
    assert (run.name, run.slug) == ("big tanks", "tanks-1")
    assert Event.objects.get(run=run).payload == {"by": "olga", "from": "tanks", "to": "big tanks"}
    with pytest.raises(ActRefused, match="needs a name"):
        services.rename_run(actor=operator, run_id=run.pk, name="  ")


def test_a_quarantine_holds_for_the_run_and_names_the_environment(run: Run, operator: User) -> None:
    Environment.objects.create(
        run=run, attempt=1, rollout=0, key="r0000-s00", slot=0, skill="Optimization", class_name="TankEnv", code="x",
        code_digest="0", candidate_key="r0000-s00-a1", added_at=run.created_at,
    )  # fmt: skip
    command = services.quarantine_environment(
        actor=operator, run_id=run.pk, environment_key="r0000-s00", reason="the answer is visible"
    )
    assert (command.attempt, command.environment, command.action) == (None, "r0000-s00", "quarantine")
    assert AuditEntry.objects.get().action == "environment.quarantined"
    services.release_environment(actor=operator, run_id=run.pk, environment_key="r0000-s00")
    assert AuditEntry.objects.filter(action="environment.released").exists()
    with pytest.raises(ActRefused, match="no environment 'r9999-s00'"):
        services.quarantine_environment(actor=operator, run_id=run.pk, environment_key="r9999-s00", reason="")
    in_state(run, "completed")
    with pytest.raises(ActRefused, match="no trainer will read this"):
        services.release_environment(actor=operator, run_id=run.pk, environment_key="r0000-s00")


def test_weights_and_purges_are_asked_for_the_run_and_audited(run: Run, operator: User) -> None:
    key = "r0000-s00"
    place = {"run": run, "attempt": 1, "rollout": 0, "skill": "Optimization", "class_name": "TankEnv"}
    environment = Environment.objects.create(
        **place, key=key, slot=0, code="x", code_digest="0", candidate_key=f"{key}-a1", added_at=run.created_at
    )
    record = MemoryRecord.objects.create(
        **place, environment=environment, environment_key=key, snippet="x", success_share=0.5
    )
    who = {"actor": operator, "run_id": run.pk, "environment_key": key}
    command = services.down_weight_environment(**who, weight=0.25, reason="easy to game")
    assert (command.action, command.attempt, command.environment, command.weight) == ("down_weight", None, key, 0.25)
    assert json.loads(relay._line(command))["weight"] == 0.25
    audited = AuditEntry.objects.get(action="environment.down_weighted")
    assert audited.detail == {"run": run.slug, "reason": "easy to game", "weight": 0.25}
    for weight in (0.0, 1.01, -1.0, float("nan")):
        with pytest.raises(ActRefused, match="above 0 and at most 1"):
            services.down_weight_environment(**who, weight=weight)
    with pytest.raises(ActRefused, match="No purged memory record of r0000-s00"):
        services.restore_memory_record(**who)
    assert services.purge_memory_record(**who).action == "purge_memory"
    record.removed_rollout, record.removed_reason = 1, "purged"
    record.save()
    assert services.restore_memory_record(**who).action == "restore_memory"
    with pytest.raises(ActRefused, match="No memory record of r0000-s00"):
        services.purge_memory_record(**who)
    assert list(AuditEntry.objects.filter(action__startswith="memory.").order_by("pk").values_list("action", flat=True)) == [
        "memory.purged", "memory.restored",
    ]  # fmt: skip


def test_an_unknown_run_is_not_found(operator: User) -> None:
    with pytest.raises(RunNotFound):
        services.start_run(actor=operator, run_id=12345)


def test_a_preset_that_needs_a_gpu_says_why_it_cannot_start(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "gpus", lambda: ())
    choices = {choice.name: choice for choice in configuration.presets()}
    assert next(iter(choices)) == "demo"
    assert choices["demo"].available
    assert not choices["games-4b"].available
    assert "needs a CUDA GPU" in choices["games-4b"].why_not
    run = services.create_run(actor=operator, config=choices["games-4b"].config)
    with pytest.raises(ActRefused, match="needs a CUDA GPU"):
        services.start_run(actor=operator, run_id=run.pk)
    monkeypatch.setattr(configuration, "gpus", lambda: ("NVIDIA H200",))
    assert services.start_run(actor=operator, run_id=run.pk).status == "queued"


def test_overrides_are_validated_by_the_trainers_own_model() -> None:
    config = configuration.read_config(preset="tiny", overrides={"schedule.rollouts": "12", "model.thinking": "true"})
    assert (config.schedule.rollouts, config.model.thinking, config.preset) == (12, True, "tiny")


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"schedule.rollouts": "0"}, "schedule.rollouts"),
        ({"schedule.rollouts": "many"}, "schedule.rollouts"),
        ({"schedule.rolouts": "3"}, "schedule.rolouts"),
        ({"schedule": "3"}, "schedule"),
        ({"__class__.x": "3"}, "__class__.x"),
        ({"optim.learning_rate": "nan"}, "optim.learning_rate"),
        ({"schedule.designer_delay": 1}, ""),
    ],
)
def test_a_wrong_setting_is_named(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        configuration.read_config(preset="tiny", overrides=overrides)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert caught.value.problems[0].message


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="no preset"):
        configuration.read_config(preset="../secrets", overrides={})


def test_final_states_hold_no_gpu_set(run: Run) -> None:
    for status in FINAL:
        in_state(run, status)
        other = Run.objects.create(name="x", config={}, seed=0, total_rollouts=1, status="running", gpu_set=run.gpu_set)
        other.delete()
