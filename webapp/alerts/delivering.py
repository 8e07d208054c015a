"""Trying a delivery: claimed by a conditional update, tried again later and later, given up in the end."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.alerts.addresses import LOOKUP_S
from webapp.alerts.models import Delivery, Webhook
from webapp.alerts.sending import TIMEOUT_S, Outcome, post
from webapp.alerts.signing import secret_of, signature
from webapp.runs.storable import storable_text

#: Seconds to wait after the first, second, … failed try; after the last one the delivery is given up.
WAITS_S = (10, 60, 300, 1800, 7200)
#: Tries in a row, of whatever deliveries, after which a webhook is switched off.
MOST_FAILURES = 20
_CLAIM_S = LOOKUP_S + TIMEOUT_S + 10.0  # longer than a try can take, so that none is made twice at once


def deliver(*, delivery_id: int) -> bool:
    """Try once if it is due and nobody else is at it; whether it was tried."""
    now = timezone.now()
    taken = Delivery.objects.filter(
        pk=delivery_id, state=Delivery.State.WAITING, next_at__lte=now, webhook__disabled_at=None
    ).update(tries=F("tries") + 1, next_at=now + timedelta(seconds=_CLAIM_S))
    if taken != 1:
        return False
    delivery = Delivery.objects.select_related("webhook").filter(pk=delivery_id).first()
    if delivery is None:  # its webhook was deleted just now
        return False
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
    """Store how a try went: nothing when the webhook was deleted meanwhile. The webhook comes first, as when it is deleted."""
    now = timezone.now()
    webhooks = Webhook.objects.filter(pk=delivery.webhook_id)
    webhooks.update(failures=0 if outcome.is_delivered else F("failures") + 1)
    noted: dict[str, Any] = {"status": outcome.status, "answer": storable_text(outcome.answer)}
    if outcome.is_delivered:
        noted |= {"state": Delivery.State.DELIVERED, "finished_at": now}
    elif delivery.tries > len(WAITS_S) or delivery.alert_id is None:  # a test is tried once: somebody waits for it
        noted |= {"state": Delivery.State.FAILED, "finished_at": now}
    else:
        noted |= {"next_at": now + timedelta(seconds=WAITS_S[delivery.tries - 1])}
    Delivery.objects.filter(pk=delivery.pk).update(**noted)
    if not outcome.is_delivered:
        _switch_off_after_many(delivery.webhook)


def _switch_off_after_many(webhook: Webhook) -> None:
    reason = f"{MOST_FAILURES} tries in a row failed"
    switched = Webhook.objects.filter(pk=webhook.pk, failures__gte=MOST_FAILURES, disabled_at=None).update(
        disabled_at=timezone.now(), disabled_reason=reason
    )
    if switched:
        record(actor=None, action="webhook.disabled", target=webhook, detail={"reason": reason})
