"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig

from webapp.core.panels import fill_place


class TryingConfig(AppConfig):
    name = "webapp.trying"
    label = "trying"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Offer it beside every checkpoint that is on the disk."""
        from webapp.trying import panels

        fill_place("checkpoint_acts", panels.try_button)
