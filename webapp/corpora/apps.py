"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig

from webapp.core.panels import fill_place


class CorporaConfig(AppConfig):
    name = "webapp.corpora"
    label = "corpora"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Offer corpora in the start form, name them on the pages of runs, and list what can be done in the palette."""
        from webapp.core.palette import Heading, Place, add_places
        from webapp.corpora import panels, selectors, storage
        from webapp.runs.suggestions import guard, suggest

        fill_place("run_corpus", panels.of_run)
        suggest("corpus.source", selectors.choices)
        guard("corpus.source", storage.why_not_allowed)
        add_places(
            Place(label="Add a corpus", url_name="corpora:new", heading=Heading.ACTIONS, words="upload documents new")
        )
