"""``manage.py import_run DIR``: show a run that was made without the web application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from webapp.runs.errors import ActRefused
from webapp.runs.import_copy import Copying
from webapp.runs.importing import import_run


class Command(BaseCommand):
    """The directory is checked first. It is not changed, and unless told to copy it, it is shown from where it lies."""

    help = (
        "Take in a run directory made elsewhere. It is checked first, stays where it is unless --copy is given, and is never changed. "
        "Importing it again adds only what is new."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Which directory, what to call it, and what to copy."""
        parser.add_argument("directory", type=Path, help="run directory (it holds config.json)")
        parser.add_argument("--name", default="", help="name of the run (default: that of the directory)")
        parser.add_argument(
            "--copy",
            choices=Copying.values,
            default=Copying.NOTHING,
            help="what to copy into SPADEWORK_HOME (default: nothing). records: all but the checkpoints; everything: those too",
        )
        parser.add_argument("--damaged", action="store_true", help="take in a damaged event log; its holes are shown")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import and print the address."""
        try:
            run = import_run(
                actor=None, directory=options["directory"], name=options["name"], copying=Copying(options["copy"]),
                accept_damage=options["damaged"],
            )  # fmt: skip
        except ActRefused as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename or options['directory']}: {error.strerror or error}") from error
        self.stderr.write(f"{run}: {run.status}, {run.rollouts_done} of {run.total_rollouts} rollouts")
        self.stdout.write(settings.SPADEWORK_PUBLIC_URL + reverse("runs:page", args=[run.pk]))
