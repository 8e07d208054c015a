"""Django application of the shell."""

from __future__ import annotations

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """Design system, middleware and health; it has no models."""

    name = "webapp.core"
    label = "core"

    def ready(self) -> None:
        """Make our Celery application the one that ``shared_task`` uses, in the web process too."""
        from webapp.celery import app

        app.set_default()
