"""Whether the parts behind the web process answer."""

from __future__ import annotations

import logging

import redis
from django.conf import settings
from django.db import DatabaseError, connection

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 2.0


def database_answers() -> bool:
    """True when Postgres answers a trivial query."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return bool(cursor.fetchone() == (1,))
    except DatabaseError as error:
        _LOG.warning("Postgres does not answer: %s", error)
        return False


def redis_answers() -> bool:
    """True when Valkey/Redis answers PING within two seconds."""
    client = redis.Redis.from_url(
        settings.SPADEWORK_REDIS_URL, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
    )
    try:
        return bool(client.ping())
    except redis.RedisError as error:
        _LOG.warning("Valkey does not answer: %s", error)
        return False
    finally:
        client.close()
