"""Addresses of runs in the API."""

from __future__ import annotations

from django.urls import path

from webapp.runs import api, api_checkpoints, api_control

urlpatterns = [
    path("presets/", api.Presets.as_view(), name="presets"),
    path("queue/", api.RunQueue.as_view(), name="queue"),
    path("queue/<int:run_id>/move/", api_control.QueueMove.as_view(), name="queue_move"),
    path("runs/", api_control.Runs.as_view(), name="runs"),
    path("runs/dry-run/", api_control.DryRun.as_view(), name="dry_run"),
    path("runs/<int:run_id>/", api.OneRun.as_view(), name="run"),
    path("runs/<int:run_id>/acts/<slug:act>/", api_control.RunAct.as_view(), name="run_act"),
    path("runs/<int:run_id>/attempts/", api.Attempts.as_view(), name="attempts"),
    path("runs/<int:run_id>/checkpoints/", api_checkpoints.Checkpoints.as_view(), name="checkpoints"),
    path(
        "runs/<int:run_id>/checkpoints/<str:name>/<slug:part>.tar",
        api_checkpoints.CheckpointArchive.as_view(),
        name="checkpoint_archive",
    ),
    path("runs/<int:run_id>/commands/", api.Commands.as_view(), name="commands"),
    path("runs/<int:run_id>/rollouts/", api.Rollouts.as_view(), name="rollouts"),
    path("runs/<int:run_id>/metrics/", api.MetricNames.as_view(), name="metrics"),
    path("runs/<int:run_id>/metrics/series/", api.MetricSeries.as_view(), name="series"),
]
