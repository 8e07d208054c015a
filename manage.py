#!/usr/bin/env python
"""Django's command line for Spadework: ``python manage.py help``."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run one management command with Spadework's settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(
            f"Django cannot be imported ({error}). Use the project's own Python: make up, or .venv/bin/python manage.py …"
        )
    from django.core.exceptions import ImproperlyConfigured
    from django.db import OperationalError, ProgrammingError

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"spadework: {error}")
    except OperationalError as error:
        sys.exit(
            f"spadework: Postgres cannot be used ({str(error).strip()}). Start it (make up), or correct DATABASE_URL."
        )
    except ProgrammingError as error:
        if "does not exist" not in str(error):
            raise
        sys.exit("spadework: the database has no tables yet, or older ones. Run: python manage.py migrate")


if __name__ == "__main__":
    main()
