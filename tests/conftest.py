"""Session set-up shared by all tests: a throw-away PostgreSQL and Valkey before Django is configured.

A run that collects only packages without Django (`pytest tests/trainer`) does not pay for them.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from webapp.stack.throwaway import throwaway_services

SETTINGS = "webapp.settings"
TESTS = Path(__file__).parent
# Test folders of packages that never import Django (import-linter proves it for the packages themselves).
WITHOUT_DJANGO = ("trainer", "sandbox", "stack", "tools", "conformance", "docs")

# Variables that would lead a test to somebody's real data, or (Celery's) silently beat the settings.
FOREIGN_VARIABLES = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "SECRET_KEY")

# `make fuzz` selects the second one. Two busy cores make single examples slow now and then: no deadline per example.
hypothesis.settings.register_profile("spadework", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=10_000)
hypothesis.settings.load_profile("spadework")

_services = ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the servers and load the settings; pytest-django's own (last) pytest_configure then sets Django up."""
    for name in FOREIGN_VARIABLES:
        os.environ.pop(name, None)
    hands_out = bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")
    if hands_out or not needs_django(config.args, config.invocation_params.dir):
        return  # the processes that run the tests start their own
    os.environ.update(_services.enter_context(throwaway_services()))
    os.environ["SPADEWORK_PUBLIC_URL"] = "http://127.0.0.1:8400"
    # WhiteNoise warns in every test about a missing directory.
    (Path(os.environ["SPADEWORK_HOME"]) / "static").mkdir(parents=True, exist_ok=True)
    os.environ["SPADEWORK_STATIC_MANIFEST"] = "no"  # pages find static files without collectstatic having run
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    from django.conf import settings

    settings.DATABASES  # noqa: B018  loads the settings now, so that a wrong one fails here and by its name


def pytest_unconfigure() -> None:
    """Stop the servers and delete their data."""
    _services.close()


@pytest.fixture(scope="session")
def django_db_modify_db_settings_xdist_suffix() -> None:
    """Instead of pytest-django's: processes side by side have a database server each, so the name needs no suffix, and servers that
    tests start find the database under the name they expect."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The test database, whose rows made by migrations come back whenever a transactional test has emptied all tables.

    pytest-django runs transactional tests last, but only within a process and not across files that are handed out whole.
    """
    from django.apps import apps
    from django.core import serializers
    from django.db.models.signals import post_migrate

    own = [
        model for model in apps.get_models() if apps.get_app_config(model._meta.app_label).name.startswith("webapp.")
    ]
    with django_db_blocker.unblock():
        rows = serializers.serialize("json", [row for model in own for row in model._base_manager.all()])

    def bring_back(**told: Any) -> None:
        if "plan" not in told:  # a flush; a migration has one
            for row in serializers.deserialize("json", rows):
                row.save()

    post_migrate.connect(bring_back, sender=apps.get_app_config("review"), weak=False)


def needs_django(arguments: list[str], directory: Path) -> bool:
    """Whether any of pytest's path arguments can collect a test of the web application."""
    for argument in arguments:
        path = (directory / argument.partition("::")[0]).resolve()
        if not any(path.is_relative_to(TESTS / name) for name in WITHOUT_DJANGO):
            return True
    return not arguments
