"""The seeded kinds of flags, brought back: tests with real transactions empty every table when they end."""

from __future__ import annotations

from importlib import import_module


def seed_kinds() -> None:
    """Run the seeding of the migration again; what is there stays."""
    from django.apps import apps
    from django.db import connection

    with connection.schema_editor() as editor:
        import_module("webapp.review.migrations.0002_kinds_of_flags").add_kinds(apps, editor)
