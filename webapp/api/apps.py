"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "webapp.api"
    label = "api"

    def ready(self) -> None:
        """List the documentation in the palette."""
        from webapp.core.palette import Place, add_places

        add_places(Place(label="API documentation", url_name="api:docs", words="docs rest openapi client"))
