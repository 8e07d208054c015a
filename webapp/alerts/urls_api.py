"""Addresses of alerts in the API."""

from __future__ import annotations

from django.urls import path

from webapp.alerts import api

urlpatterns = [
    path("alerts/", api.Alerts.as_view(), name="alerts"),
    path("runs/<int:run_id>/alerts/", api.RunAlerts.as_view(), name="run_alerts"),
    path("webhooks/", api.Webhooks.as_view(), name="webhooks"),
    path("webhooks/<int:webhook_id>/", api.OneWebhook.as_view(), name="webhook"),
    path("webhooks/<int:webhook_id>/deliveries/", api.Deliveries.as_view(), name="deliveries"),
    path("webhooks/<int:webhook_id>/acts/<slug:act>/", api.WebhookAct.as_view(), name="webhook_act"),
]
