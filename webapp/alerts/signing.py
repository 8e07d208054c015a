"""The secret of a webhook and the signature of what it is sent."""

from __future__ import annotations

import hashlib
import hmac

from django.utils.crypto import salted_hmac

from webapp.alerts.models import Webhook

_PURPOSE = "webapp.alerts.webhook"


def secret_of(webhook: Webhook) -> str:
    """Shown once to whoever registers the webhook; derived from the installation's own key."""
    return f"spwh_{salted_hmac(_PURPOSE, webhook.salt, algorithm='sha256').hexdigest()}"


def signature(*, secret: str, timestamp: int, body: bytes) -> str:
    """``v1=`` and the HMAC-SHA-256 of "timestamp.body", hex: an old body cannot be sent again under a new time."""
    signed = str(timestamp).encode() + b"." + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
