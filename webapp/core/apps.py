"""Django application of the shell."""

from __future__ import annotations

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """Design system, middleware and health; it has no models."""

    name = "webapp.core"
    label = "core"

    def ready(self) -> None:
        """Make our Celery application the one that ``shared_task`` uses, in the web process too; list the shell's own pages."""
        from webapp.celery import app
        from webapp.core.palette import Place, add_places

        app.set_default()
        add_places(Place(label="Licences", url_name="licences", words="about vendored"))
