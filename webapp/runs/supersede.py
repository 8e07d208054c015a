"""What a resume leaves behind: rows of older attempts beyond the checkpoint stay, marked superseded."""

from __future__ import annotations

from django.db.models import Q

from webapp.environments.models import Environment, EnvironmentTransition, MemoryRecord
from webapp.runs.models import Attempt, Recorded, Run


def supersede_older_attempts(*, run: Run, attempt: int, start_rollout: int) -> None:
    """Mark rows of attempts before ``attempt`` whose rollout is ``start_rollout`` or later, in the caller's transaction.

    What older attempts did to rows that stay is undone from that rollout on: removals from memory, states of environments.
    """
    for model in Recorded.__subclasses__():
        rows = model._default_manager.filter(run=run, attempt__lt=attempt, rollout__gte=start_rollout, superseded=False)
        rows.update(superseded=True)
    Attempt.objects.filter(
        Q(superseded_from=None) | Q(superseded_from__gt=start_rollout), run=run, number__lt=attempt
    ).update(superseded_from=start_rollout)
    MemoryRecord.objects.filter(run=run, removed_attempt__lt=attempt, removed_rollout__gte=start_rollout).update(
        removed_rollout=None, removed_attempt=None, removed_reason=""
    )
    _restore_states(run=run, attempt=attempt, start_rollout=start_rollout)


def _restore_states(*, run: Run, attempt: int, start_rollout: int) -> None:
    undone = EnvironmentTransition.objects.filter(run=run, attempt__lt=attempt, rollout__gte=start_rollout)
    touched = Environment.objects.filter(pk__in=undone.values("environment"), superseded=False)
    for environment in touched:
        last = environment.transitions.filter(superseded=False).order_by("-id").first()
        environment.state = last.state if last else Environment.State.ACTIVE
        environment.state_reason = last.reason if last else ""
        environment.state_rollout = last.rollout if last else None
        environment.save(update_fields=["state", "state_reason", "state_rollout"])
