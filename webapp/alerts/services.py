"""What people do with webhooks, and handing alerts to them. Each function owns its transaction and its audit entry."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.alerts import addresses
from webapp.alerts.models import Alert, Delivery, Kind, Webhook
from webapp.alerts.signing import secret_of
from webapp.environments.jobs import send
from webapp.runs.errors import ActRefused

DELIVER_TASK = "webapp.alerts.tasks.deliver"
WEBHOOKS = 50
#: What happened longer ago is listed and not sent: a run imported from elsewhere, a log taken in late.
FRESH = timedelta(hours=1)


@transaction.atomic
def create_webhook(*, actor: User, name: str, url: str, kinds: Sequence[str] = ()) -> tuple[Webhook, str]:
    """A new webhook and its secret, which is shown this once. Raises ActRefused."""
    cleaned = " ".join(name.replace("\x00", "").split())[:80]
    if not cleaned:
        raise ActRefused("A webhook needs a name; type one.")
    if Webhook.objects.count() >= WEBHOOKS:
        raise ActRefused(f"There are {WEBHOOKS} webhooks already; delete one first.")
    try:
        addresses.resolve(addresses.parse(url))
    except addresses.AddressRefused as error:
        raise ActRefused(str(error)) from error
    webhook = Webhook.objects.create(
        name=cleaned, url=url, kinds=[kind for kind in Kind.values if kind in kinds], salt=secrets.token_hex(32), created_by=actor
    )  # fmt: skip
    record(actor=actor, action="webhook.created", target=webhook, detail={"url": url, "kinds": webhook.kinds})
    return webhook, secret_of(webhook)


@transaction.atomic
def delete_webhook(*, actor: User, webhook_id: int) -> None:
    """Delete a webhook with its deliveries. Raises ActRefused."""
    webhook = _locked(webhook_id)
    record(actor=actor, action="webhook.deleted", target=webhook, detail={"url": webhook.url})
    webhook.delete()


@transaction.atomic
def enable_webhook(*, actor: User, webhook_id: int) -> Webhook:
    """Switch a webhook on again; what waits is tried at once. Raises ActRefused."""
    webhook = _locked(webhook_id)
    webhook.disabled_at, webhook.disabled_reason, webhook.failures = None, "", 0
    webhook.save(update_fields=["disabled_at", "disabled_reason", "failures"])
    record(actor=actor, action="webhook.enabled", target=webhook)
    return webhook


@transaction.atomic
def disable_webhook(*, actor: User, webhook_id: int) -> Webhook:
    """Switch a webhook off; new alerts wait for nothing there. Raises ActRefused."""
    webhook = _locked(webhook_id)
    webhook.disabled_at, webhook.disabled_reason = timezone.now(), f"switched off by {actor.get_username()}"
    webhook.save(update_fields=["disabled_at", "disabled_reason"])
    record(actor=actor, action="webhook.disabled", target=webhook, detail={"reason": webhook.disabled_reason})
    return webhook


@transaction.atomic
def test_webhook(*, actor: User, webhook_id: int) -> Delivery:
    """Send a test. Raises ActRefused when the webhook is off."""
    webhook = _locked(webhook_id)
    if webhook.disabled_at is not None:
        raise ActRefused(f"{webhook} is off; switch it on first.")
    record(actor=actor, action="webhook.tested", target=webhook)
    body = {"type": "test", "at": timezone.now().isoformat(), "message": "A test: this receiver works.", "run": None}
    return _hand_over(webhook, None, body)


def send_alert(*, alert: Alert) -> None:
    """Have the alert delivered to every webhook that wants it, inside the caller's transaction."""
    if alert.at < timezone.now() - FRESH:
        return
    body: dict[str, Any] | None = None
    for webhook in Webhook.objects.filter(disabled_at=None):
        if webhook.kinds and alert.kind not in webhook.kinds:
            continue
        body = body or _body_of(alert)
        _hand_over(webhook, alert, body)


def _hand_over(webhook: Webhook, alert: Alert | None, body: dict[str, Any]) -> Delivery:
    delivery = Delivery.objects.create(webhook=webhook, alert=alert, body=json.dumps(body), next_at=timezone.now())
    transaction.on_commit(partial(send, DELIVER_TASK, delivery.pk))
    return delivery


def _body_of(alert: Alert) -> dict[str, Any]:
    run = alert.run
    return {
        "type": alert.kind,
        "alert": alert.pk,
        "at": alert.at.isoformat(),
        "message": alert.message,
        "attempt": alert.attempt,
        "rollout": alert.rollout if alert.rollout >= 0 else None,
        "run": {
            "id": run.pk, "name": run.name, "slug": run.slug, "status": run.status,
            "url": f"{settings.SPADEWORK_PUBLIC_URL}{reverse('runs:page', args=[run.pk])}",
        },
    }  # fmt: skip


def _locked(webhook_id: int) -> Webhook:
    webhook = Webhook.objects.select_for_update().filter(pk=webhook_id).first()
    if webhook is None:
        raise ActRefused(f"There is no webhook {webhook_id}.")
    return webhook
