"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig

from webapp.core.panels import fill_place


class KeepingConfig(AppConfig):
    name = "webapp.keeping"
    label = "keeping"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Show ways here above the list of runs, in the account's menu and in the palette."""
        from webapp.core.palette import Heading, Place, add_places
        from webapp.keeping import panels

        fill_place("run_list_actions", panels.import_link)
        fill_place("account_menu", panels.menu)
        add_places(
            Place(label="Import a run", url_name="keeping:imports", heading=Heading.ACTIONS, words="imports"),
            Place(label="Disk", url_name="keeping:disk", words="space storage"),
            Place(label="Retention", url_name="keeping:retention", words="keep days"),
        )
