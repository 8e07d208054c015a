"""``manage.py start_demo_run``: have a run going, so that a first look at the product shows one."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from webapp.accounts.models import User
from webapp.accounts.roles import Role, has_role
from webapp.runs import services
from webapp.runs.configuration import read_config
from webapp.runs.errors import ActRefused, InvalidConfig
from webapp.runs.models import Run
from webapp.runs.states import ACTIVE, Status


class Command(BaseCommand):
    """Prints the address of the run alone on stdout; the explanation goes to stderr."""

    help = "Start a run of a preset (demo) for the first admin, unless a run is active or queued; print its address."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which preset, and settings changed from it."""
        parser.add_argument("--preset", default="demo", help="preset of the run (default: demo)")
        parser.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting")
        parser.add_argument("--noinput", action="store_true", help="accepted for uniformity; nothing is ever asked")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the active run or start one."""
        busy = Run.objects.filter(status__in=(Status.QUEUED, *ACTIVE)).order_by("queued_at", "id").first()
        if busy is not None:
            self.stderr.write(f"{busy} is {busy.status}; nothing new was started.")
            self._print_address(busy)
            return
        overrides = dict(pair.partition("=")[::2] for pair in options["set"])
        try:
            config = read_config(preset=options["preset"], overrides=overrides)
            run = services.create_run(actor=_first_operator(), config=config)
            run = services.start_run(actor=_first_operator(), run_id=run.pk)
        except (InvalidConfig, ActRefused) as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"{run} is queued.")
        self._print_address(run)

    def _print_address(self, run: Run) -> None:
        self.stdout.write(settings.SPADEWORK_PUBLIC_URL + reverse("runs:page", args=[run.pk]))


def _first_operator() -> User:
    for user in User.objects.filter(is_active=True).order_by("pk"):
        if has_role(user, Role.OPERATOR):
            return user
    raise CommandError("There is nobody who may start runs. Create the first admin: manage.py demo_link")
