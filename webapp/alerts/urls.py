"""Addresses of alerts and webhooks."""

from __future__ import annotations

from django.urls import path

from webapp.alerts import views

app_name = "alerts"

urlpatterns = [
    path("", views.alert_list, name="list"),
    path("webhooks/", views.webhooks, name="webhooks"),
    path("webhooks/<int:webhook_id>/", views.webhook, name="webhook"),
    path("webhooks/<int:webhook_id>/<slug:act>/", views.webhook_act, name="webhook_act"),
]
