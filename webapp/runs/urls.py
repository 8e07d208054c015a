"""Addresses of runs; what belongs to a run (environments, episodes) is mounted inside it by those apps' ``urls_in_run``."""

from __future__ import annotations

from django.conf import settings
from django.urls import include, path

from webapp.core.features import has_module
from webapp.runs import (
    views,
    views_checkpoints,
    views_compare,
    views_list,
    views_log,
    views_queue,
    views_run,
    views_system,
)

app_name = "runs"

urlpatterns = [
    path("", views_list.run_list, name="list"),
    path("bulk/", views_list.bulk, name="bulk"),
    path("compare/", views_compare.compare, name="compare"),
    path("compare/series/", views_compare.compare_series, name="compare_series"),
    path("compare/series.csv", views_compare.compare_csv, name="compare_csv"),
    path("queue/", views_queue.queue, name="queue"),
    path("queue/<int:run_id>/<slug:to>/", views_queue.queue_move, name="queue_move"),
    path("views/", views_list.view_save, name="view_save"),
    path("views/<int:view_id>/delete/", views_list.view_delete, name="view_delete"),
    path("new/", views.run_new, name="new"),
    path("<int:run_id>/", views_run.overview, name="page"),
    path("<int:run_id>/row/", views_list.run_row, name="row"),
    path("<int:run_id>/head/", views_run.head, name="head"),
    path("<int:run_id>/progress/", views_run.progress, name="progress"),
    path("<int:run_id>/latest/", views_run.latest, name="latest"),
    path("<int:run_id>/act/<slug:act>/", views.run_act, name="act"),
    path("<int:run_id>/edit/", views.run_edit, name="edit"),
    path("<int:run_id>/charts/", views_run.charts, name="charts"),
    path("<int:run_id>/series/", views_run.series, name="series"),
    path("<int:run_id>/series.csv", views_run.series_csv, name="series_csv"),
    path("<int:run_id>/checkpoints/", views_checkpoints.checkpoints, name="checkpoints"),
    path("<int:run_id>/checkpoints/<str:name>/<slug:part>.tar", views_checkpoints.download, name="checkpoint_download"),
    path("<int:run_id>/config/", views_run.config, name="config"),
    path("<int:run_id>/config.json", views_run.config_json, name="config_json"),
    path("<int:run_id>/log/", views_log.log, name="log"),
    path("<int:run_id>/log.txt", views_log.log_file, name="log_file"),
    path("<int:run_id>/system/", views_system.system, name="system"),
    path("<int:run_id>/system/series/", views_system.system_series, name="system_series"),
    *(
        path("<int:run_id>/", include(f"webapp.{name}.urls_in_run"))
        for name in settings.SPADEWORK_FEATURES
        if name != "runs" and has_module(f"webapp.{name}.urls_in_run")
    ),
]
