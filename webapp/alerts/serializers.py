"""Alerts and webhooks as the API shows and takes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.alerts.models import Alert, Delivery, Kind, Webhook


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """Something to look at; one that goes on is one alert from ``rollout`` to ``last_rollout`` (-1: the run as a whole).

    ``superseded``: of an earlier attempt, in what a resume left behind, or how that attempt ended.
    """

    class Meta:
        model = Alert
        fields = ("id", "run", "kind", "attempt", "rollout", "last_rollout", "message", "at", "superseded")


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    """An address alerts are sent to; ``kinds`` empty means all."""

    class Meta:
        model = Webhook
        fields = ("id", "name", "url", "kinds", "created_at", "failures", "disabled_at", "disabled_reason")


class CreatedWebhookSerializer(WebhookSerializer):
    """A new webhook with the secret that signs what it is sent, shown this once."""

    secret = serializers.CharField(read_only=True)

    class Meta:
        model = Webhook
        fields = (*WebhookSerializer.Meta.fields, "secret")


class NewWebhookSerializer(serializers.Serializer[Any]):
    """A webhook to register."""

    name = serializers.CharField(max_length=80)
    url = serializers.CharField(max_length=500)
    kinds = serializers.MultipleChoiceField(choices=Kind.values, required=False, default=set, allow_empty=True)


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """An alert (null: a test) on its way; ``status`` is null when no answer came."""

    class Meta:
        model = Delivery
        fields = (
            "id", "alert", "state", "tries", "next_at", "created_at", "finished_at", "status", "answer", "body",
        )  # fmt: skip
