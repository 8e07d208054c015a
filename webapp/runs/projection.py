"""Events about the run itself as rows, and the table of all handlers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from trainer.events import (
    CheckpointSaved,
    CommandAcknowledged,
    MetricsReported,
    PhaseProgress,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    RunStateChanged,
    Warned,
)
from webapp.environments import recording as environments
from webapp.episodes import recording as episodes
from webapp.runs import journal
from webapp.runs.eventlog import Line
from webapp.runs.models import Checkpoint, Command, MetricPoint, Run
from webapp.runs.recording import Handler, Recording, compact
from webapp.runs.states import Status
from webapp.runs.supersede import supersede_older_attempts

#: Which statuses a reported state changes, and into which. Ends are set by the supervisor, when the process is proven gone.
_REPORTED: dict[str, tuple[Status, tuple[Status, ...]]] = {
    "running": (Status.RUNNING, (Status.STARTING, Status.PAUSING, Status.PAUSED)),
    "paused": (Status.PAUSED, (Status.STARTING, Status.RUNNING, Status.PAUSING)),
    "stopping": (Status.STOPPING, (Status.STARTING, Status.RUNNING, Status.PAUSING, Status.PAUSED)),
}


def record_run_started(recording: Recording, line: Line, payload: RunStarted) -> dict[str, Any]:
    """An attempt began: rows of older attempts from its first rollout on are superseded, in this same transaction."""
    attempt, run = recording.attempt, recording.run
    attempt.start_rollout = payload.start_rollout
    attempt.checkpoint = payload.checkpoint
    attempt.engine = payload.engine
    attempt.versions = payload.versions
    attempt.sandbox_tier = payload.sandbox_tier
    attempt.pid = attempt.pid or payload.pid
    attempt.started_at = attempt.started_at or line.at
    attempt.save()
    supersede_older_attempts(run=run, attempt=attempt.number, start_rollout=payload.start_rollout)
    recording.forget()
    if recording.is_newest:
        run.total_rollouts = payload.total_rollouts
        run.rollout = payload.start_rollout
        run.rollouts_done = payload.start_rollout
        run.phase = {}
        run.latest = _newest_reported(run)
        run.eta_s = None
        run.started_at = run.started_at or line.at
    return compact(payload)


def _newest_reported(run: Run) -> dict[str, float | None]:
    """What every metric was last reported as on the line that holds; a resume leaves later values behind."""
    points = MetricPoint.objects.filter(run=run, superseded=False)
    newest = points.order_by("name", "-attempt", "-id").distinct("name")
    return dict(newest.values_list("name", "value"))


def record_run_state(recording: Recording, line: Line, payload: RunStateChanged) -> dict[str, Any]:
    """The trainer said how it is."""
    attempt = recording.attempt
    attempt.reported_state = payload.state
    attempt.reported_owner = payload.owner or ""
    attempt.reported_reason = payload.reason
    attempt.save(update_fields=["reported_state", "reported_owner", "reported_reason"])
    if recording.is_newest and payload.state in _REPORTED:
        target, sources = _REPORTED[payload.state]
        journal.move(run_id=recording.run.pk, target=target, why=payload.reason, sources=sources)
    return compact(payload)


def record_rollout_started(recording: Recording, line: Line, payload: RolloutStarted) -> dict[str, Any]:
    """A rollout began: the stages shown start afresh."""
    if recording.is_newest:
        recording.run.rollout = line.rollout
        recording.run.phase = {"rollout": line.rollout, **compact(payload), "phases": {}}
    return compact(payload)


def record_phase(recording: Recording, line: Line, payload: PhaseProgress) -> dict[str, Any]:
    """A stage of the rollout moved on."""
    if recording.is_newest:
        phases = {
            **recording.run.phase.get("phases", {}),
            payload.phase: compact(payload, without=frozenset({"phase"})),
        }
        recording.run.phase = {**recording.run.phase, "phases": phases}
    return compact(payload)


def record_rollout_finished(recording: Recording, line: Line, payload: RolloutFinished) -> dict[str, Any]:
    """A rollout ended."""
    if recording.is_newest:
        if line.rollout is not None:
            recording.run.rollouts_done = line.rollout + 1
        recording.run.eta_s = payload.eta_s
        recording.run.eta_at = line.at
    return compact(payload)


def record_metrics(recording: Recording, line: Line, payload: MetricsReported) -> dict[str, Any]:
    """One point of every metric."""
    owner = recording.owner(line)
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(**owner, name=name, value=value, mark=payload.not_finite.get(name, ""))
            for name, value in payload.values.items()
        ]
    )
    if recording.is_newest:
        recording.run.latest = {**recording.run.latest, **payload.values}
    return compact(payload)


def record_checkpoint(recording: Recording, line: Line, payload: CheckpointSaved) -> dict[str, Any]:
    """A checkpoint is complete on disk; saving the same one again replaces what was said about it."""
    fields = {
        "rollout": line.rollout,
        "next_rollout": payload.next_rollout,
        "bytes": payload.bytes,
        "elapsed_s": payload.elapsed_s,
        "at": line.at,
    }
    checkpoint, _ = Checkpoint.objects.update_or_create(
        run=recording.run, attempt=recording.attempt.number, name=payload.name, defaults=fields
    )
    return compact(payload, id=checkpoint.pk)


def record_command(recording: Recording, line: Line, payload: CommandAcknowledged) -> dict[str, Any]:
    """The trainer answered a command. A run made elsewhere answers commands we never sent; they stay events."""
    try:
        identity = UUID(payload.command)
    except ValueError:
        return compact(payload)
    Command.objects.filter(pk=identity, run=recording.run).update(
        acknowledged_at=line.at,
        accepted=payload.accepted,
        message=payload.message,
        effective_rollout=payload.effective_rollout,
    )
    return compact(payload)


def record_warning(recording: Recording, line: Line, payload: Warned) -> dict[str, Any]:
    """The trainer warned."""
    recording.run.warnings += 1
    return compact(payload)


def record_only(recording: Recording, line: Line, payload: Any) -> dict[str, Any]:
    """Kinds that are shown but become no rows."""
    return compact(payload)


HANDLERS: dict[str, Handler] = {
    "run_started": record_run_started,
    "run_state": record_run_state,
    "corpus": record_only,
    "rollout_started": record_rollout_started,
    "phase": record_phase,
    "rollout_finished": record_rollout_finished,
    "metrics": record_metrics,
    "checkpoint": record_checkpoint,
    "command": record_command,
    "warning": record_warning,
    **environments.HANDLERS,
    **episodes.HANDLERS,
}
#: Columns of the run that handlers change on the object; saved once per batch.
RUN_FIELDS = (
    "total_rollouts",
    "rollout",
    "rollouts_done",
    "phase",
    "latest",
    "eta_s",
    "eta_at",
    "started_at",
    "warnings",
)
