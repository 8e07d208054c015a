"""Addresses inside a run; included by ``webapp.runs.urls`` (names join the namespace "runs")."""

from __future__ import annotations

from django.urls import path

from webapp.trying import views, views_beside

urlpatterns = [
    path("checkpoints/<str:name>/try/", views.try_new, name="try"),
    path("try/<int:trial_id>/", views.trial, name="trial"),
    path("try/<int:trial_id>/board/", views.trial_board, name="trial_board"),
    path("try/<int:trial_id>/state/", views.trial_state, name="trial_state"),
    path(
        "try/<int:trial_id>/<int:exchange_id>/beside/<int:episode_id>/", views_beside.trial_beside, name="trial_beside"
    ),
    path("try/<int:trial_id>/act/", views.trial_act, name="trial_act"),
]
