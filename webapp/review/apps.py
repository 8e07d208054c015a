"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class ReviewConfig(AppConfig):
    name = "webapp.review"
    label = "review"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Show flags on the pages of environments and episodes; what people judge keeps its transcripts; list pages in the palette."""
        from webapp.core.graph import extend_graph
        from webapp.core.listing import Column, Filter, add_column, add_filter
        from webapp.core.palette import Heading, Place, add_places
        from webapp.core.panels import fill_place
        from webapp.episodes.texts import keep_texts_of
        from webapp.review import listing, panels
        from webapp.review.selectors import flagged_environments
        from webapp.review.selectors_queues import reviewed_environments

        fill_place("environment_actions", panels.environment_button)
        fill_place("environment_side", panels.environment_flags)
        fill_place("environment_lineage", panels.environment_lineage)
        extend_graph("environment_lineage", panels.lineage_nodes)
        fill_place("pair_top", panels.pair_flags)
        add_column("environments", Column(title="flags", cells=listing.flag_cells))
        add_filter(
            "environments",
            Filter(name="flagged", label="flagged", values=listing.flag_values, narrow=listing.narrow_by_flag),
        )
        fill_place("episode_actions", panels.episode_button)
        fill_place("episode_top", panels.episode_flags)
        keep_texts_of(flagged_environments)
        keep_texts_of(reviewed_environments)
        add_places(
            Place(label="Flags", url_name="review:flags", words="review"),
            Place(label="Review queues", url_name="review:queues"),
            Place(label="Kinds of flags", url_name="review:kinds", words="review taxonomy"),
            Place(label="New review queue", url_name="review:queue_new", heading=Heading.ACTIONS, words="fill"),
        )
