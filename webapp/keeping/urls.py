"""Addresses of keeping."""

from __future__ import annotations

from django.urls import path

from webapp.keeping import views, views_imports

app_name = "keeping"

urlpatterns = [
    path("disk/", views.disk, name="disk"),
    path("disk/measure/", views.measure, name="measure"),
    path("retention/", views.retention_page, name="retention"),
    path("imports/", views_imports.imports, name="imports"),
    path("imports/<int:job_id>/", views_imports.import_page, name="import"),
]
