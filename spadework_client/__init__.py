"""A thin client of Spadework's REST API, on the standard library alone: ``Client("http://127.0.0.1:8400", token="spw_…")``."""

from __future__ import annotations

from spadework_client.client import Client
from spadework_client.errors import (
    ApiError,
    Forbidden,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    Refused,
    RunEnded,
    ServerFailed,
    SpadeworkError,
    Throttled,
    Unreachable,
    WaitTimedOut,
)
from spadework_client.webhooks import WebhookRefused, verify_webhook

__all__ = [
    "ApiError",
    "Client",
    "Forbidden",
    "InvalidRequest",
    "NotAuthenticated",
    "NotFound",
    "Refused",
    "RunEnded",
    "ServerFailed",
    "SpadeworkError",
    "Throttled",
    "Unreachable",
    "WaitTimedOut",
    "WebhookRefused",
    "verify_webhook",
]
