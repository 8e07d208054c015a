"""API of alerts and webhooks."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import IsOperator
from webapp.alerts import selectors, services
from webapp.alerts.models import Kind
from webapp.alerts.serializers import (
    AlertSerializer,
    CreatedWebhookSerializer,
    DeliverySerializer,
    NewWebhookSerializer,
    WebhookSerializer,
)
from webapp.alerts.views import ACTS
from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.runs.selectors import access_run

_FILTERS = {
    "kind": f"{', '.join(Kind.values)}.",
    "attempts": "current: what holds; earlier: of earlier attempts that a resume left behind. Both by default.",
}
_ACTS = {name: act for name, act in ACTS.items() if name != "delete"}


def _chosen(request: Request) -> dict[str, Any]:
    return {name: request.query_params.get(name, "") for name in _FILTERS}


class Alerts(ApiView):
    """Alerts of all runs."""

    @lists("alerts_list", AlertSerializer, filters=_FILTERS)
    def get(self, request: Request) -> Response:
        """Newest first."""
        page = selectors.list_alerts(**_chosen(request), **paging(request))
        return page_response(request, page, AlertSerializer(page.rows, many=True).data)


class RunAlerts(ApiView):
    """Alerts of a run."""

    @lists("runs_alerts", AlertSerializer, filters=_FILTERS)
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first."""
        page = selectors.list_alerts(run=access_run(run_id=run_id), **_chosen(request), **paging(request))
        return page_response(request, page, AlertSerializer(page.rows, many=True).data)


class Webhooks(ApiView):
    """Webhooks."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @answers("webhooks_list", WebhookSerializer(many=True))  # type: ignore[arg-type]
    def get(self, request: Request) -> Response:
        """All of them."""
        return Response(WebhookSerializer(selectors.list_webhooks(), many=True).data)

    @answers("webhooks_create", CreatedWebhookSerializer, takes=NewWebhookSerializer, status=201)
    def post(self, request: Request) -> Response:
        """Register one; the answer holds the secret that signs what it is sent, this once."""
        webhook, secret = services.create_webhook(actor=actor_of(request), **sent(request, NewWebhookSerializer))
        return Response({**WebhookSerializer(webhook).data, "secret": secret}, status=201)


class OneWebhook(ApiView):
    """One webhook."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @answers("webhooks_delete", None, status=204)
    def delete(self, request: Request, webhook_id: int) -> Response:
        """Delete it with its deliveries."""
        webhook = selectors.access_webhook(webhook_id=webhook_id)
        services.delete_webhook(actor=actor_of(request), webhook_id=webhook.pk)
        return Response(status=204)


class Deliveries(ApiView):
    """Deliveries of a webhook."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @lists("webhooks_deliveries", DeliverySerializer)
    def get(self, request: Request, webhook_id: int) -> Response:
        """Newest first."""
        webhook = selectors.access_webhook(webhook_id=webhook_id)
        page = selectors.deliveries_of(webhook=webhook, **paging(request))
        return page_response(request, page, DeliverySerializer(page.rows, many=True).data)


class WebhookAct(ApiView):
    """An act on a webhook."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @extend_schema(
        operation_id="webhooks_act", request=None, responses=WebhookSerializer,
        parameters=[OpenApiParameter("act", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(_ACTS))],
    )  # fmt: skip
    def post(self, request: Request, webhook_id: int, act: str) -> Response:
        """Send a test, switch it on or off."""
        webhook, service = selectors.access_webhook(webhook_id=webhook_id), _ACTS.get(act)
        if service is None:
            raise Http404(f"There is no act {act}; there are {', '.join(_ACTS)}.")
        service(actor=actor_of(request), webhook_id=webhook.pk)
        return Response(WebhookSerializer(selectors.access_webhook(webhook_id=webhook.pk)).data)
