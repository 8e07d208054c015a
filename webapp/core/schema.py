"""Whether the database has the form this version of the code expects."""

from __future__ import annotations

import django
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

_NAMED = 3


def missing_migrations() -> list[str]:
    """Migrations of this version that the database lacks, as "app.name" in the order in which they would run."""
    connection = connections["default"]
    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    finally:
        connection.close()
    return [f"{migration.app_label}.{migration.name}" for migration, _backwards in plan]


def refuse_old_schema() -> None:
    """Set Django up; raise `SystemExit` with one line when migrations have not been run on this database."""
    django.setup()
    missing = missing_migrations()
    if missing:
        named = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
        raise SystemExit(
            f"spadework: {len(missing)} migrations have not been run on this database ({named}); "
            "start the web part once (make up), or run: make manage ARGS=migrate"
        )
