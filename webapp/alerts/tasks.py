"""Celery's side of webhooks: thin launchers on the queue "default"."""

from __future__ import annotations

from celery import shared_task

from webapp.alerts import delivering


@shared_task  # type: ignore[untyped-decorator]
def deliver(delivery_id: int) -> None:
    """Try one delivery."""
    delivering.deliver(delivery_id=delivery_id)


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Try everything that is due: second and later tries, and what no worker was told of."""
    for delivery_id in delivering.due():
        delivering.deliver(delivery_id=delivery_id)
