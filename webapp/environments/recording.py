"""Events about documents, candidates, environments, regret, memory and designer rewards as rows."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from trainer.events import (
    CandidateJudged,
    DesignerRewarded,
    DocumentUsed,
    EnvironmentAdded,
    EnvironmentStateChanged,
    EnvironmentWeighted,
    HintWritten,
    MemoryAdded,
    MemoryRemoved,
    MemoryRestored,
    RegretMeasured,
)
from webapp.environments.models import (
    Candidate,
    CorpusDocument,
    DesignerReward,
    Environment,
    EnvironmentTransition,
    MemoryRecord,
    RegretPoint,
)
from webapp.runs.eventlog import Line
from webapp.runs.recording import Handler, Recording, compact

_HINT_CHARS = 300  # of the hint that travel over sockets; the whole stands in the environment


def record_document(recording: Recording, line: Line, payload: DocumentUsed) -> dict[str, Any]:
    """Keep the document at its first use; one first used beyond a checkpoint is taken over by the attempt that uses it again."""
    fields = {
        "attempt": recording.attempt.number,
        "rollout": line.rollout,
        "superseded": False,
        "title": payload.title,
        "text": payload.text,
        "words": payload.words,
        "metadata": payload.metadata,
    }
    document, _ = CorpusDocument.objects.get_or_create(run=recording.run, key=payload.document, defaults=fields)
    if document.superseded:
        CorpusDocument.objects.filter(pk=document.pk).update(**fields)
    return compact(payload, without=frozenset({"text"}), id=document.pk)


def record_candidate(recording: Recording, line: Line, payload: CandidateJudged) -> dict[str, Any]:
    """One design attempt."""
    candidate = Candidate.objects.create(
        **recording.owner(line),
        key=payload.candidate,
        environment_key=payload.environment,
        design_attempt=payload.attempt,
        document=recording.document(payload.document),
        document_key=payload.document,
        **payload.model_dump(mode="json", exclude={"environment", "candidate", "attempt", "document"}),
    )
    stages = [stage.model_dump(include={"stage", "outcome", "message"}) for stage in payload.stages]
    heavy = frozenset({"prompt", "reply", "code", "stages"})
    return compact(payload, without=heavy, stages=stages, id=candidate.pk)


def record_environment(recording: Recording, line: Line, payload: EnvironmentAdded) -> dict[str, Any]:
    """An accepted candidate became an environment."""
    accepted = Candidate.objects.filter(
        run=recording.run, attempt=recording.attempt.number, key=payload.candidate
    ).first()
    environment = Environment.objects.create(
        **recording.owner(line),
        key=payload.environment,
        candidate=accepted,
        candidate_key=payload.candidate,
        document=recording.document(payload.document),
        document_key=payload.document,
        code_digest=sha256(payload.code.encode()).hexdigest(),
        added_at=line.at,
        **payload.model_dump(mode="json", exclude={"environment", "candidate", "document"}),
    )
    return compact(payload, without=frozenset({"code"}), id=environment.pk)


def record_hint(recording: Recording, line: Line, payload: HintWritten) -> dict[str, Any]:
    """The environment's hint, or why it has none."""
    environment = recording.environment(payload.environment)
    if environment is not None:
        Environment.objects.filter(pk=environment.pk).update(
            hint_state=payload.state,
            hint_text=payload.text,
            hint_tries=payload.tries,
            hint_reason=payload.reason,
            hint_reply_tokens=payload.reply_tokens,
        )
    text = payload.text[:_HINT_CHARS] if payload.text is not None else None
    return compact(payload, without=frozenset({"text"}), text=text, id=environment.pk if environment else None)


def record_state(recording: Recording, line: Line, payload: EnvironmentStateChanged) -> dict[str, Any]:
    """The environment was barred, quarantined, released or retired."""
    environment = recording.environment(payload.environment)
    if environment is not None:
        EnvironmentTransition.objects.create(
            **recording.owner(line), environment=environment, state=payload.state, reason=payload.reason, at=line.at
        )
        Environment.objects.filter(pk=environment.pk).update(
            state=payload.state, state_reason=payload.reason, state_rollout=line.rollout
        )
    return compact(payload, id=environment.pk if environment else None)


def record_weight(recording: Recording, line: Line, payload: EnvironmentWeighted) -> dict[str, Any]:
    """A person changed how much the environment's samples count. After a resume the trainer reads the command again and says so again."""
    environment = recording.environment(payload.environment)
    if environment is not None:
        Environment.objects.filter(pk=environment.pk).update(training_weight=payload.weight)
    return compact(payload, id=environment.pk if environment else None)


def record_regret(recording: Recording, line: Line, payload: RegretMeasured) -> dict[str, Any]:
    """Regret of an environment, at offset 0."""
    environment = recording.environment(payload.environment)
    RegretPoint.objects.create(
        **recording.owner(line),
        environment=environment,
        environment_key=payload.environment,
        **payload.model_dump(mode="json", exclude={"environment"}),
    )
    return compact(payload, id=environment.pk if environment else None)


def record_designer_reward(recording: Recording, line: Line, payload: DesignerRewarded) -> dict[str, Any]:
    """A designer sample joined this rollout's batch."""
    environment = recording.environment(payload.environment)
    DesignerReward.objects.create(
        **recording.owner(line),
        environment=environment,
        environment_key=payload.environment,
        **payload.model_dump(mode="json", exclude={"environment"}),
    )
    return compact(payload, id=environment.pk if environment else None)


def record_memory_added(recording: Recording, line: Line, payload: MemoryAdded) -> dict[str, Any]:
    """A record entered the memory."""
    environment = recording.environment(payload.environment)
    MemoryRecord.objects.create(
        **recording.owner(line),
        environment=environment,
        environment_key=payload.environment,
        **payload.model_dump(mode="json", exclude={"environment"}),
    )
    return compact(payload, without=frozenset({"snippet"}), id=environment.pk if environment else None)


def record_memory_removed(recording: Recording, line: Line, payload: MemoryRemoved) -> dict[str, Any]:
    """A record left the memory."""
    MemoryRecord.objects.filter(
        run=recording.run, environment_key=payload.environment, superseded=False, removed_rollout=None
    ).update(removed_rollout=line.rollout, removed_attempt=recording.attempt.number, removed_reason=payload.reason)
    environment = recording.environment(payload.environment)
    return compact(payload, id=environment.pk if environment else None)


def record_memory_restored(recording: Recording, line: Line, payload: MemoryRestored) -> dict[str, Any]:
    """A purged record is back. After a resume the trainer reads the command again and says so again."""
    MemoryRecord.objects.filter(
        run=recording.run, environment_key=payload.environment, superseded=False, removed_reason="purged"
    ).update(removed_rollout=None, removed_attempt=None, removed_reason="")
    environment = recording.environment(payload.environment)
    return compact(payload, id=environment.pk if environment else None)


HANDLERS: dict[str, Handler] = {
    "document": record_document,
    "candidate": record_candidate,
    "environment": record_environment,
    "hint": record_hint,
    "environment_state": record_state,
    "environment_weight": record_weight,
    "regret": record_regret,
    "designer_reward": record_designer_reward,
    "memory_added": record_memory_added,
    "memory_removed": record_memory_removed,
    "memory_restored": record_memory_restored,
}
