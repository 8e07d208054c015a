"""Everything people do to runs. Each function owns its transaction and its audit entry; views check the role first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.text import slugify

from trainer.config import RunConfig
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.models import Environment, MemoryRecord
from webapp.runs import dispatch, journal
from webapp.runs.configuration import parse_config, why_not_startable
from webapp.runs.errors import ActRefused, InvalidConfig, RunNotFound
from webapp.runs.models import Command, Run
from webapp.runs.states import ACTS, Status
from webapp.runs.storable import storable_text
from webapp.runs.suggestions import refused

NAME_CHARS = 120
TAG_CHARS = 40
TAGS = 20
_AUDITED = {
    "quarantine": "environment.quarantined",
    "release": "environment.released",
    "down_weight": "environment.down_weighted",
    "purge_memory": "memory.purged",
    "restore_memory": "memory.restored",
}


def runs_directory() -> Path:
    """Where run directories are made."""
    return Path(settings.SPADEWORK_HOME) / "runs"


@transaction.atomic
def create_run(
    *,
    actor: User,
    config: RunConfig,
    name: str = "",
    tags: Sequence[str] = (),
    notes: str = "",
    parent: Run | None = None,
) -> Run:
    """A new draft. Without a name it is called by its preset and number. The settings are frozen with it.

    Raises InvalidConfig for what this installation does not allow, such as a corpus outside its folder.
    """
    problems = refused(config.model_dump(mode="json"), parent.config if parent else None)
    if problems:
        raise InvalidConfig(problems)
    run = Run(
        name=clean_name(name),
        owner=actor,
        config=config.model_dump(mode="json"),
        preset=config.preset,
        seed=config.seed,
        parent=parent,
        tags=clean_tags(tags),
        notes=storable_text(notes),
        total_rollouts=config.schedule.rollouts,
    )
    run.save()
    run.slug = f"{slugify(run.name or config.preset)[:80] or 'run'}-{run.pk}"
    run.name = run.name or run.slug
    run.directory = str(runs_directory() / run.slug)
    run.save(update_fields=["slug", "name", "directory"])
    record(
        actor=actor, action="run.created", target=run, detail={"preset": run.preset, "parent": parent and parent.slug}
    )
    return run


@transaction.atomic
def start_run(*, actor: User, run_id: int) -> Run:
    """Put a draft into the queue. Raises ActRefused when it is no draft or cannot run on this machine."""
    run = _locked(run_id)
    if run.imported_from:
        raise ActRefused(f"{run} is being imported; if that was cut short, import {run.imported_from} again")
    _queue(actor=actor, run=run, act="start", why="")
    record(actor=actor, action="run.started", target=run)
    return run


@transaction.atomic
def resume_run(*, actor: User, run_id: int) -> Run:
    """Queue a new attempt from the newest checkpoint. Raises ActRefused when nothing is left to do or the state forbids it."""
    run = _locked(run_id)
    if run.status in ACTS["resume"] and run.rollouts_done >= run.total_rollouts:
        raise ActRefused(f"{run} has done all its {run.total_rollouts} rollouts; clone it with more to go on")
    if run.imported_from and run.rollouts_done and not any((Path(run.directory) / "checkpoints").glob("*/COMPLETE")):
        raise ActRefused(
            f"{run} was imported without its checkpoints and would begin anew; import {run.imported_from} again with them"
        )
    _queue(actor=actor, run=run, act="resume", why="resumed")
    record(actor=actor, action="run.resumed", target=run, detail={"after_attempt": run.attempt})
    return run


def _queued() -> QuerySet[Run]:
    return Run.objects.filter(status=Status.QUEUED)


def _queue(*, actor: User, run: Run, act: str, why: str) -> None:
    if run.deleted_at is not None:
        raise ActRefused(f"{run} is deleted; restore it first")
    obstacle = why_not_startable(parse_config(run.config))
    if obstacle:
        raise ActRefused(f"{run} cannot start: {obstacle}")
    _move(
        actor=actor,
        run=run,
        act=act,
        target=Status.QUEUED,
        why=why,
        queued_at=timezone.now(),
        queue_rank=Coalesce(Subquery(_queued().order_by("-queue_rank").values("queue_rank")[:1]), 0) + 1,
        finished_at=None,
        failure_owner="",
        failure_message="",
    )
    transaction.on_commit(dispatch.wake_gpu_worker)


@transaction.atomic
def pause_run(*, actor: User, run_id: int, reason: str = "") -> Command:
    """Ask the trainer to wait at its next safe point. Raises ActRefused."""
    run = _get(run_id)
    _move(actor=actor, run=run, act="pause", target=Status.PAUSING, why=reason)
    record(actor=actor, action="run.paused", target=run, detail={"reason": reason})
    return _ask(actor=actor, run=run, action="pause", reason=reason)


@transaction.atomic
def unpause_run(*, actor: User, run_id: int, reason: str = "") -> Command:
    """Ask a paused trainer to go on; the state changes when it says that it does. Raises ActRefused."""
    run = _locked(run_id)
    _require(run, "unpause")
    record(actor=actor, action="run.unpaused", target=run, detail={"reason": reason})
    return _ask(actor=actor, run=run, action="resume", reason=reason)


@transaction.atomic
def stop_run(*, actor: User, run_id: int, reason: str = "") -> Command | None:
    """Stop for good: a queued run at once (returns None), a running one within a minute, its processes proven gone.

    Raises ActRefused when there is nothing to stop.
    """
    run = _locked(run_id)
    record(actor=actor, action="run.stopped", target=run, detail={"reason": reason, "state": run.status})
    if run.status == Status.QUEUED:
        why = reason or "taken out of the queue"
        _move(actor=actor, run=run, act="stop", target=Status.STOPPED, why=why, finished_at=timezone.now())
        return None
    _move(actor=actor, run=run, act="stop", target=Status.STOPPING, why=reason)
    return _ask(actor=actor, run=run, action="stop", reason=reason)


@transaction.atomic
def checkpoint_run(*, actor: User, run_id: int) -> Command:
    """Ask for a checkpoint now. Raises ActRefused."""
    run = _locked(run_id)
    _require(run, "checkpoint")
    record(actor=actor, action="run.checkpointed", target=run)
    return _ask(actor=actor, run=run, action="checkpoint", reason="")


@transaction.atomic
def clone_run(*, actor: User, run_id: int, name: str = "", config: RunConfig | None = None) -> Run:
    """A new draft with the same settings (or ``config``, changed from them), which remembers where it came from."""
    parent = _get(run_id)
    return create_run(
        actor=actor,
        config=config or parse_config(parent.config),
        name=name or f"{parent.name} copy",
        tags=parent.tags,
        parent=parent,
    )


@transaction.atomic
def rename_run(*, actor: User, run_id: int, name: str) -> Run:
    """Give the run another name; its address stays. Raises ActRefused for an empty name."""
    run = _locked(run_id)
    cleaned = clean_name(name)
    if not cleaned:
        raise ActRefused("A run needs a name; type one.")
    old, run.name = run.name, cleaned
    run.save(update_fields=["name"])
    journal.append(run_id=run.pk, kind="renamed", payload={"by": actor.get_username(), "from": old, "to": cleaned})
    record(actor=actor, action="run.renamed", target=run, detail={"from": old, "to": cleaned})
    return run


@transaction.atomic
def tag_run(*, actor: User, run_id: int, tags: Sequence[str]) -> Run:
    """Replace the run's tags."""
    run = _locked(run_id)
    old, run.tags = run.tags, clean_tags(tags)
    run.save(update_fields=["tags"])
    journal.append(run_id=run.pk, kind="tagged", payload={"by": actor.get_username(), "tags": run.tags})
    record(actor=actor, action="run.tagged", target=run, detail={"from": old, "to": run.tags})
    return run


@transaction.atomic
def annotate_run(*, actor: User, run_id: int, notes: str) -> Run:
    """Replace the run's notes."""
    run = _locked(run_id)
    run.notes = storable_text(notes)
    run.save(update_fields=["notes"])
    journal.append(run_id=run.pk, kind="annotated", payload={"by": actor.get_username()})
    record(actor=actor, action="run.annotated", target=run)
    return run


@transaction.atomic
def quarantine_environment(*, actor: User, run_id: int, environment_key: str, reason: str) -> Command:
    """Ask the trainer not to play or train on the environment any more. Raises ActRefused."""
    return _judge(actor=actor, run_id=run_id, key=environment_key, action="quarantine", reason=reason)


@transaction.atomic
def release_environment(*, actor: User, run_id: int, environment_key: str, reason: str = "") -> Command:
    """Undo a quarantine. Raises ActRefused."""
    return _judge(actor=actor, run_id=run_id, key=environment_key, action="release", reason=reason)


@transaction.atomic
def down_weight_environment(
    *, actor: User, run_id: int, environment_key: str, weight: float, reason: str = ""
) -> Command:
    """Ask the trainer to multiply the advantages of the environment's samples by ``weight``, in (0, 1]; 1 restores. Raises ActRefused."""
    if not 0 < weight <= 1:
        raise ActRefused(
            f"A weight is above 0 and at most 1, not {weight:g}; to leave an environment out, quarantine it."
        )
    return _judge(actor=actor, run_id=run_id, key=environment_key, action="down_weight", reason=reason, weight=weight)


@transaction.atomic
def purge_memory_record(*, actor: User, run_id: int, environment_key: str, reason: str = "") -> Command:
    """Ask the trainer to show the environment to no designer any more. Raises ActRefused when the memory does not hold it."""
    _require_record(run_id=run_id, key=environment_key, purged=False)
    return _judge(actor=actor, run_id=run_id, key=environment_key, action="purge_memory", reason=reason)


@transaction.atomic
def restore_memory_record(*, actor: User, run_id: int, environment_key: str, reason: str = "") -> Command:
    """Undo a purge, answered by the trainer or not: it reads commands in their order. Raises ActRefused when the record was not purged."""
    _require_record(run_id=run_id, key=environment_key, purged=True)
    return _judge(actor=actor, run_id=run_id, key=environment_key, action="restore_memory", reason=reason)


def _require_record(*, run_id: int, key: str, purged: bool) -> None:
    rows = MemoryRecord.objects.filter(run_id=run_id, environment_key=key, superseded=False)
    rows = rows.filter(removed_reason="purged") if purged else rows.filter(removed_rollout=None)
    if not rows.exists() and not (purged and _purge_waits(run_id, key)):
        raise ActRefused(f"No {'purged ' if purged else ''}memory record of {key} is there.")


def _purge_waits(run_id: int, key: str) -> bool:
    """Whether a purge of the record is the newest of what the trainer has yet to answer; at rest it does so when it goes on."""
    asked = Command.objects.filter(run_id=run_id, environment=key, action__in=("purge_memory", "restore_memory"))
    newest = asked.filter(acknowledged_at=None).order_by("-created_at").values_list("action", flat=True).first()
    return newest == "purge_memory"


def _judge(*, actor: User, run_id: int, key: str, action: str, reason: str, weight: float | None = None) -> Command:
    run = _locked(run_id)
    if run.status in (Status.DRAFT, Status.COMPLETED):
        raise ActRefused(
            f"{run} is {run.status}: no trainer will read this. Environments can be judged until a run completes."
        )
    environment = Environment.objects.filter(run=run, key=key, superseded=False).first()
    if environment is None:
        raise ActRefused(f"{run} has no environment {key!r}")
    detail = {"run": run.slug, "reason": reason} | ({} if weight is None else {"weight": weight})
    record(actor=actor, action=_AUDITED[action], target=environment, detail=detail)
    return _ask(actor=actor, run=run, action=action, reason=reason, environment=key, weight=weight)


def _ask(
    *,
    actor: User,
    run: Run,
    action: str,
    reason: str,
    environment: str | None = None,
    weight: float | None = None,
) -> Command:
    """Store the command; the supervisor of an active run passes it on. Only judgements outlive the attempt."""
    command = Command.objects.create(
        run=run,
        attempt=None if environment is not None else run.attempt,
        action=action,
        environment=environment,
        weight=weight,
        reason=storable_text(reason),
        by=actor,
    )
    payload = {
        "id": str(command.pk),
        "action": action,
        "environment": environment,
        "weight": weight,
        "by": actor.get_username(),
        "reason": reason,
    }
    journal.append(run_id=run.pk, kind="command_asked", payload=payload)
    return command


def _move(*, actor: User, run: Run, act: str, target: str, why: str, **fields: Any) -> None:
    if not journal.move(run_id=run.pk, target=target, by=actor, why=why, sources=ACTS[act], **fields):
        _require(_get(run.pk), act)
        raise ActRefused(f"{run} changed just now; look again and repeat if you still want to {act} it")
    run.refresh_from_db()


def _require(run: Run, act: str) -> None:
    if run.status not in ACTS[act]:
        raise ActRefused(f"{run} is {run.status}; {act} is possible when a run is {' or '.join(ACTS[act])}")


def _get(run_id: int) -> Run:
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise RunNotFound(f"there is no run {run_id}")
    return run


def _locked(run_id: int) -> Run:
    run = Run.objects.select_for_update().filter(pk=run_id).first()
    if run is None:
        raise RunNotFound(f"there is no run {run_id}")
    return run


def clean_name(name: str) -> str:
    """In one line, without what Postgres refuses, not too long."""
    return " ".join(storable_text(name).split())[:NAME_CHARS]


def clean_tags(tags: Sequence[str]) -> list[str]:
    """Tags as they are stored: trimmed, cut to TAG_CHARS, each once, at most TAGS."""
    cleaned = (" ".join(storable_text(tag).split())[:TAG_CHARS] for tag in tags)
    return list(dict.fromkeys(tag for tag in cleaned if tag))[:TAGS]
