"""Where Postgres and Valkey/Redis are: one URL each, and the forms that Django, Channels and Celery want."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from webapp.settings.env import BadSetting, parse_url

DATABASE_EXAMPLE = "postgresql://user:password@host:5432/name or postgresql://user:password@/name?host=/socket/folder"
REDIS_EXAMPLE = "redis://:password@127.0.0.1:6379/0 or unix://:password@/run/valkey.sock?db=0"
_KEYWORDS = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def database_settings(name: str, text: str, *, pool_size: int) -> dict[str, Any]:
    """Django's database entry for any connection string libpq understands (URL or ``key=value`` pairs).

    ``pool_size`` connections are pooled by psycopg (0: none); under ASGI a pool replaces CONN_MAX_AGE, which would keep
    one connection per thread for ever. Raises BadSetting, without the text, which holds a password.
    """
    expected = f"a connection string like {DATABASE_EXAMPLE}"
    try:
        parameters = conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        raise BadSetting(name, "is not a Postgres connection string", expected) from error
    if not parameters.get("dbname"):
        raise BadSetting(name, "names no database", expected)
    for port in str(parameters.get("port") or "").split(","):  # libpq takes a list, one port a host
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BadSetting(name, f"has the port {port!r}", expected)
    entry: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": 0, "OPTIONS": {}}
    for keyword, value in parameters.items():
        if keyword in _KEYWORDS:
            entry[_KEYWORDS[keyword]] = str(value)
        else:
            entry["OPTIONS"][keyword] = value
    entry["OPTIONS"].setdefault("application_name", "spadework")
    entry["OPTIONS"].setdefault("connect_timeout", 10)
    if pool_size:
        entry["OPTIONS"]["pool"] = {"min_size": 1, "max_size": pool_size, "timeout": 10}
    else:
        entry["CONN_HEALTH_CHECKS"] = True
    return entry


@dataclass(frozen=True, kw_only=True)
class RedisAddress:
    """One Valkey/Redis database, reachable over TCP (``host``, ``port``) or a unix socket (``socket_path``)."""

    host: str
    port: int
    socket_path: str
    database: int
    user: str
    password: str
    tls: bool

    @property
    def _credentials(self) -> str:
        if not (self.user or self.password):
            return ""
        return f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"

    @property
    def client_url(self) -> str:
        """What redis-py's ``from_url`` and the channel layer take."""
        if self.socket_path:
            return f"unix://{self._credentials}{quote(self.socket_path)}?db={self.database}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{self._credentials}{host}:{self.port}/{self.database}"

    @property
    def celery_url(self) -> str:
        """What Celery's transport takes: it spells sockets ``redis+socket://`` and their database ``virtual_host``."""
        if self.socket_path:
            return f"redis+socket://{self._credentials}{quote(self.socket_path)}?virtual_host={self.database}"
        return self.client_url

    def with_database(self, database: int) -> RedisAddress:
        """The same server, another numbered database."""
        return RedisAddress(
            host=self.host,
            port=self.port,
            socket_path=self.socket_path,
            database=database,
            user=self.user,
            password=self.password,
            tls=self.tls,
        )


def redis_address(name: str, text: str) -> RedisAddress:
    """Read ``redis://``, ``rediss://`` or ``unix://``; raises BadSetting without the text, which holds a password."""
    expected = f"a URL like {REDIS_EXAMPLE}"
    parts = parse_url(name, text, schemes=("redis", "rediss", "unix"), example=REDIS_EXAMPLE)
    query = parse_qs(parts.query)
    unknown = sorted(set(query) - {"db"})
    if unknown:
        raise BadSetting(name, f"has the unknown option {unknown[0]!r}", expected)
    database_text = query["db"][0] if "db" in query else ""
    if parts.scheme == "unix":
        if not parts.path.startswith("/") or parts.hostname:
            raise BadSetting(name, "names no absolute socket path", expected)
    else:
        if not parts.hostname:
            raise BadSetting(name, "names no host", expected)
        database_text = database_text or parts.path.strip("/")
    database_text = database_text or "0"
    if not (database_text.isascii() and database_text.isdigit()):
        raise BadSetting(name, f"has the database {database_text!r}, which is not a number", expected)
    return RedisAddress(
        host=parts.hostname or "",
        port=parts.port or 6379,
        socket_path=unquote(parts.path) if parts.scheme == "unix" else "",
        database=int(database_text),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=parts.scheme == "rediss",
    )
