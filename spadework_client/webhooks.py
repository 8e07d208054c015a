"""For receivers of webhooks: whether a request really came from the workbench."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from spadework_client.errors import SpadeworkError


class WebhookRefused(SpadeworkError):
    """The request is not one that was just sent with this secret."""


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance_s: float = 300.0, now: float | None = None
) -> dict[str, Any]:
    """The alert in a request's raw body, after its signature and its age were checked. Raises WebhookRefused.

    The signature is v1= and the HMAC-SHA-256 of "timestamp.body" under the secret, hex.
    """
    sent = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = sent.get("x-spadework-timestamp", ""), sent.get("x-spadework-signature", "")
    expected = "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    if not timestamp.isdecimal() or not hmac.compare_digest(signature.encode(), expected.encode()):
        raise WebhookRefused("The signature does not fit the body and the secret.")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance_s:
        raise WebhookRefused(f"The request is more than {tolerance_s:g} s old, or the clocks differ.")
    return dict(json.loads(body))
