"""``manage.py sweep_runs``: one round of the sweeper by hand (workers do it every ten seconds)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from webapp.runs.supervision.sweeper import sweep


class Command(BaseCommand):
    """Marks runs of dead workers as lost and sends forgotten queue entries again."""

    help = (
        "Mark runs of dead workers as lost, after taking in what they wrote, and send queued runs to the workers again."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """One round."""
        sweep()
