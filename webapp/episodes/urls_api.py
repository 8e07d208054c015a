"""Addresses of episodes in the API."""

from __future__ import annotations

from django.urls import path

from webapp.episodes import api

urlpatterns = [
    path("runs/<int:run_id>/episodes/", api.Episodes.as_view(), name="episodes"),
    path("runs/<int:run_id>/episodes/<int:episode_id>/", api.Transcript.as_view(), name="episode"),
]
