"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "webapp.alerts"
    label = "alerts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Look at what is taken in, show alerts on the overview of runs, and list the pages in the palette."""
        from webapp.alerts import panels, recording
        from webapp.core.palette import Place, add_places
        from webapp.core.panels import fill_place
        from webapp.runs.watchers import watch

        watch(events=recording.look_at_events, statuses=recording.look_at_status)
        fill_place("run_overview", panels.overview)
        add_places(
            Place(label="Alerts", url_name="alerts:list"),
            Place(label="Webhooks", url_name="alerts:webhooks", words="alerts"),
        )
