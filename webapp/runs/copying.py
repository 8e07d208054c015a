"""Bulk insert by COPY: several times less work for large JSON than an INSERT of the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection
from psycopg import sql

from webapp.episodes.models import Transcript
from webapp.runs.models import Event


def as_json(value: Any) -> str:
    """JSON text for a JSONB column. Raises ValueError for non-finite numbers."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def insert_events(events: Iterable[Event]) -> None:
    """Insert events whose cursors are set, in the caller's transaction. Raises DatabaseError, ValueError."""
    columns = ("run_id", "cursor", "attempt", "seq", "rollout", "kind", "at", "payload", "problem")
    rows = (
        (row.run_id, row.cursor, row.attempt, row.seq, row.rollout, row.kind, row.at, as_json(row.payload), row.problem)
        for row in events
    )
    _copy(Event._meta.db_table, columns, rows)


def insert_transcripts(transcripts: Iterable[Transcript]) -> None:
    """Insert transcripts whose episodes have ids, in the caller's transaction. Raises DatabaseError, ValueError."""
    rows = ((row.episode_id, as_json(row.turns), row.final_observation) for row in transcripts)
    _copy(Transcript._meta.db_table, ("episode_id", "turns", "final_observation"), rows)


def _copy(table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
