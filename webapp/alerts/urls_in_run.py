"""Alerts inside a run's pages."""

from __future__ import annotations

from django.urls import path

from webapp.alerts import views

urlpatterns = [path("alerts/", views.run_alerts, name="alerts")]
