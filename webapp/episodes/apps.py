"""Django's description of the app."""

from __future__ import annotations

from django.apps import AppConfig


class EpisodesConfig(AppConfig):
    name = "webapp.episodes"
    label = "episodes"
    default_auto_field = "django.db.models.BigAutoField"
