"""``manage.py settle_restore``: the last step of ``python -m webapp.stack restore``; not meant to be called by people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.keeping.settling import settle_restore


class Command(BaseCommand):
    """Runs that were at work when the backup was made are ended; paths follow the data directory."""

    help = "Make restored rows fit this data directory (called by `python -m webapp.stack restore`)."

    def add_arguments(self, parser: CommandParser) -> None:
        """What the manifest of the backup says."""
        parser.add_argument("--home-before", type=Path, required=True, help="data directory the backup was made of")
        parser.add_argument("--made-at", required=True, help="when the backup was made")

    def handle(self, *args: Any, **options: Any) -> None:
        """Settle, and say what became of runs."""
        counts = settle_restore(home_before=options["home_before"], made_at=options["made_at"])
        for what, count in counts.items():
            self.stdout.write(f"{count} {what}")
