"""Trying a delivery: claimed by a conditional update, tried again later and later, given up in the end."""

from __future__ import annotations

import time
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.alerts.models import Delivery, Webhook
from webapp.alerts.sending import TIMEOUT_S, Outcome, post
from webapp.alerts.signing import secret_of, signature
from webapp.runs.storable import storable_text

#: Seconds to wait after the first, second, … failed try; after the last one the delivery is given up.
WAITS_S = (10, 60, 300, 1800, 7200)
#: Tries in a row, of whatever deliveries, after which a webhook is switched off.
MOST_FAILURES = 20
_CLAIM_S = 3 * TIMEOUT_S


def deliver(*, delivery_id: int) -> bool:
    """Try once if it is due and nobody else is at it; whether it was tried."""
    now = timezone.now()
    taken = Delivery.objects.filter(
        pk=delivery_id, state=Delivery.State.WAITING, next_at__lte=now, webhook__disabled_at=None
    ).update(tries=F("tries") + 1, next_at=now + timedelta(seconds=_CLAIM_S))
    if taken != 1:
        return False
    delivery = Delivery.objects.select_related("webhook").get(pk=delivery_id)
    _note(delivery, _send(delivery))
    return True


def due() -> list[int]:
    """Deliveries whose time has come, oldest first."""
    waiting = Delivery.objects.filter(
        state=Delivery.State.WAITING, next_at__lte=timezone.now(), webhook__disabled_at=None
    )
    return list(waiting.order_by("next_at").values_list("pk", flat=True)[:100])


def _send(delivery: Delivery) -> Outcome:
    timestamp, body = int(time.time()), delivery.body.encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Spadework",
        "X-Spadework-Delivery": str(delivery.pk),
        "X-Spadework-Timestamp": str(timestamp),
        "X-Spadework-Signature": signature(secret=secret_of(delivery.webhook), timestamp=timestamp, body=body),
    }
    return post(url=delivery.webhook.url, body=body, headers=headers)


@transaction.atomic
def _note(delivery: Delivery, outcome: Outcome) -> None:
    now = timezone.now()
    delivery.status, delivery.answer = outcome.status, storable_text(outcome.answer)
    webhooks = Webhook.objects.filter(pk=delivery.webhook_id)
    if outcome.is_delivered:
        delivery.state, delivery.finished_at = Delivery.State.DELIVERED, now
        webhooks.update(failures=0)
    elif delivery.tries > len(WAITS_S) or delivery.alert_id is None:  # a test is tried once: somebody waits for it
        delivery.state, delivery.finished_at = Delivery.State.FAILED, now
    else:
        delivery.next_at = now + timedelta(seconds=WAITS_S[delivery.tries - 1])
    delivery.save(update_fields=["status", "answer", "state", "finished_at", "next_at"])
    if not outcome.is_delivered:
        webhooks.update(failures=F("failures") + 1)
        _switch_off_after_many(delivery.webhook)


def _switch_off_after_many(webhook: Webhook) -> None:
    reason = f"{MOST_FAILURES} tries in a row failed"
    switched = Webhook.objects.filter(pk=webhook.pk, failures__gte=MOST_FAILURES, disabled_at=None).update(
        disabled_at=timezone.now(), disabled_reason=reason
    )
    if switched:
        record(actor=None, action="webhook.disabled", target=webhook, detail={"reason": reason})
