"""Celery's side of plays and gates: thin launchers on the queue "default". The rows say what is to be done."""

from __future__ import annotations

from celery import shared_task

from webapp.environments import jobs
from webapp.environments.sandboxing import gating, playing


@shared_task  # type: ignore[untyped-decorator]
def drive_play(session_id: int) -> None:
    """Answer what a play session waits for."""
    playing.drive(session_id=session_id)


@shared_task  # type: ignore[untyped-decorator]
def run_gates(gate_run_id: int) -> None:
    """Judge a program once more."""
    gating.examine(gate_run_id=gate_run_id)


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Expire old plays; send again what was forgotten."""
    jobs.sweep()
