"""Reading alerts, webhooks and deliveries."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Count, Q
from django.http import Http404
from django.utils import timezone

from webapp.alerts.models import Alert, Delivery, Webhook
from webapp.core.pagination import Page, keyset_page
from webapp.runs.models import Run

PAGE_ROWS = 50
#: Of what holds, or of earlier attempts that a resume left behind.
ATTEMPTS = ("current", "earlier")


def list_alerts(
    *, run: Run | None = None, kind: str = "", attempts: str = "", cursor: str = "", size: int = PAGE_ROWS
) -> Page[Alert]:
    """Newest first, of one run or of all that are not deleted; ``attempts``: one of ATTEMPTS, else all. Raises BadRequest."""
    rows = Alert.objects.select_related("run")
    rows = rows.filter(run__deleted_at=None) if run is None else rows.filter(run=run)
    if kind:
        rows = rows.filter(kind=kind)
    if attempts in ATTEMPTS:
        rows = rows.filter(superseded=attempts == "earlier")
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def newest_alerts(*, run: Run, limit: int) -> list[Alert]:
    """The newest alerts of a run that no resume left behind."""
    return list(Alert.objects.filter(run=run, superseded=False).order_by("-id")[:limit])


def list_webhooks() -> list[Webhook]:
    """All, each with ``delivered``, ``waiting`` and ``given_up`` of the last seven days."""
    recent = Q(deliveries__created_at__gt=timezone.now() - timedelta(days=7))
    states = {"delivered": "delivered", "waiting": "waiting", "given_up": "failed"}
    counts = {name: Count("deliveries", filter=recent & Q(deliveries__state=state)) for name, state in states.items()}
    return list(Webhook.objects.select_related("created_by").annotate(**counts).order_by("id"))


def access_webhook(*, webhook_id: int) -> Webhook:
    """The webhook. Raises Http404."""
    webhook = Webhook.objects.select_related("created_by").filter(pk=webhook_id).first()
    if webhook is None:
        raise Http404(f"There is no webhook {webhook_id}.")
    return webhook


def deliveries_of(*, webhook: Webhook, cursor: str = "", size: int = PAGE_ROWS) -> Page[Delivery]:
    """Newest first. Raises BadRequest for a damaged cursor."""
    rows = Delivery.objects.filter(webhook=webhook).select_related("alert__run")
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)
