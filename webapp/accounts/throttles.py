"""How often the API may be called. Counts stand in Valkey, shared by all web processes."""

from __future__ import annotations

import logging
from typing import Any

from django.core.cache import caches
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

log = logging.getLogger(__name__)


class _Throttle(SimpleRateThrottle):
    """With Valkey away nothing is counted: a limit that cannot be kept must not stop people from reading their runs."""

    cache = caches["throttle"]

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether this one may go on."""
        try:
            return super().allow_request(request, view)
        except (RedisError, OSError) as error:
            log.warning("requests are not counted, because Valkey is away (%s)", error)
            return True


class RequestThrottle(_Throttle):
    """Every request of a token, or of a signed-in person; SPADEWORK_API_RATE of them a minute."""

    scope = "requests"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """By token, else by person; None (not counted) for nobody, who is refused anyway."""
        if request.auth is not None:
            return f"token-{request.auth.pk}"
        return f"person-{request.user.pk}" if request.user.is_authenticated else None


class BadTokenThrottle(_Throttle):
    """Refused tokens of one address (as uvicorn saw it, never a raw header)."""

    scope = "bad-tokens"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """By address."""
        return f"bad-tokens-{request.META.get('REMOTE_ADDR', '')}"
