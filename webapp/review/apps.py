"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class ReviewConfig(AppConfig):
    name = "webapp.review"
    label = "review"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Show flags on the pages of environments and episodes."""
        from webapp.core.panels import fill_place
        from webapp.review import panels

        fill_place("environment_actions", panels.environment_button)
        fill_place("environment_side", panels.environment_flags)
        fill_place("environment_lineage", panels.environment_lineage)
        fill_place("episode_actions", panels.episode_button)
        fill_place("episode_top", panels.episode_flags)
