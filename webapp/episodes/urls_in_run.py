"""Addresses inside a run; included by ``webapp.runs.urls`` (names join the namespace "runs")."""

from __future__ import annotations

from django.urls import path

from webapp.episodes import views, views_reading

urlpatterns = [
    path("episodes/", views.episode_list, name="episodes"),
    path("episodes/<int:episode_id>/", views.episode_page, name="episode"),
    path("episodes/<int:episode_id>/turns/", views.episode_turns, name="episode_turns"),
    path("episodes/<int:episode_id>/raw/", views.episode_raw, name="episode_raw"),
    path("episodes/<int:episode_id>/tokens/", views_reading.episode_tokens, name="episode_tokens"),
    path("beside/", views_reading.beside, name="beside"),
    path("pairs/<str:key>/<int:play>/", views.pair_page, name="pair"),
]
