"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class EnvironmentsConfig(AppConfig):
    name = "webapp.environments"
    label = "environments"
    default_auto_field = "django.db.models.BigAutoField"
