"""``manage.py import_run DIR``: show a run that was made without the web application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from webapp.runs.errors import ActRefused, InvalidConfig
from webapp.runs.importing import import_run


class Command(BaseCommand):
    """Takes in the directory where it lies; it is neither moved nor changed."""

    help = "Take in a run directory made elsewhere. Importing it again adds only what is new."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which directory, and what to call it."""
        parser.add_argument("directory", type=Path, help="run directory (it holds config.json)")
        parser.add_argument("--name", default="", help="name of the run (default: that of the directory)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import and print the address."""
        try:
            run = import_run(actor=None, directory=options["directory"], name=options["name"])
        except (ActRefused, InvalidConfig) as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"{run}: {run.status}, {run.rollouts_done} of {run.total_rollouts} rollouts")
        self.stdout.write(settings.SPADEWORK_PUBLIC_URL + reverse("runs:page", args=[run.pk]))
