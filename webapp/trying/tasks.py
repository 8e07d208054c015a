"""Celery's side of trying: ``hold`` on the queue "try", where weights may be loaded; ``sweep`` on "default"."""

from __future__ import annotations

from celery import shared_task

from webapp.trying import holding, jobs


@shared_task  # type: ignore[untyped-decorator]
def hold(trial_id: int) -> None:
    """Hold a session until it ends."""
    holding.hold(trial_id=trial_id)


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Mark lost sessions; send again what was forgotten."""
    jobs.sweep()
