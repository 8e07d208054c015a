"""A time limit for one query, for patterns that people type: a regular expression can take hours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def statement_limit(*, milliseconds: int) -> Iterator[None]:
    """Statements inside are cancelled by Postgres after that time (OperationalError); the limit before holds again afterwards."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        (before,) = cursor.fetchone()
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
        yield
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])
