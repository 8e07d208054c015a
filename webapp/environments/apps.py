"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class EnvironmentsConfig(AppConfig):
    name = "webapp.environments"
    label = "environments"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have the environments of a run found in the palette."""
        from webapp.core.palette import Heading, add_finder
        from webapp.environments import finders

        add_finder(Heading.ENVIRONMENTS, finders.environments)
