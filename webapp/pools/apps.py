"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig

from webapp.core.graph import extend_graph
from webapp.core.panels import fill_place


class PoolsConfig(AppConfig):
    name = "webapp.pools"
    label = "pools"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Show pools on the pages of environments; what is in a pool keeps its transcripts."""
        from webapp.episodes.texts import keep_texts_of
        from webapp.pools import panels
        from webapp.pools.selectors import pooled_environments

        fill_place("environment_list", panels.choose_bar)
        fill_place("environment_lineage", panels.lineage)
        extend_graph("environment_lineage", panels.lineage_nodes)
        keep_texts_of(pooled_environments)
