"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "webapp.runs"
    label = "runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """List runs, their pages and what can be done in the palette."""
        from webapp.core.palette import Heading, Place, add_finder, add_places
        from webapp.runs import finders

        add_places(
            Place(label="Start a run", url_name="runs:new", heading=Heading.ACTIONS, words="new train"),
            Place(label="Queue and workers", url_name="runs:queue", words="gpu waiting"),
        )
        add_finder(Heading.THIS_RUN, finders.tabs)
        add_finder(Heading.NEWEST, finders.newest)
        add_finder(Heading.RUNS, finders.runs)
