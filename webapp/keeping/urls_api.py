"""Addresses of keeping in the API."""

from __future__ import annotations

from django.urls import path

from webapp.keeping import api

urlpatterns = [
    path("disk/", api.DiskUses.as_view(), name="disk"),
    path("disk/totals/", api.DiskTotals.as_view(), name="disk_totals"),
    path("disk/measure/", api.DiskMeasure.as_view(), name="disk_measure"),
    path("retention/", api.RetentionSettings.as_view(), name="retention"),
    path("retention/plan/", api.PlanRetention.as_view(), name="retention_plan"),
    path("imports/", api.Imports.as_view(), name="imports"),
    path("imports/folders/", api.ImportFolders.as_view(), name="import_folders"),
    path("imports/<int:job_id>/", api.OneImport.as_view(), name="import"),
]
