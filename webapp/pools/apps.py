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
        """Show pools on the pages of environments."""
        from webapp.pools import panels

        fill_place("environment_list", panels.choose_bar)
        fill_place("environment_lineage", panels.lineage)
        extend_graph("environment_lineage", panels.lineage_nodes)
