"""A process of the product does not start on a database of another form."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from psycopg import connect
from psycopg.conninfo import make_conninfo

from webapp.core.schema import missing_migrations


@pytest.mark.django_db
def test_a_migrated_database_lacks_nothing() -> None:
    assert missing_migrations() == []


def test_the_web_process_refuses_an_empty_database_in_one_line() -> None:
    url = os.environ["DATABASE_URL"]
    with connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE never_migrated")
    try:
        environment = {**os.environ, "DATABASE_URL": make_conninfo(url, dbname="never_migrated")}
        for module, argument in (("webapp.stack.web", "0"), ("webapp.stack.worker", "ready")):
            ended = subprocess.run(
                [sys.executable, "-m", module, argument],
                env=environment, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert ended.returncode == 1, ended.stderr
            assert ended.stderr.strip().count("\n") == 0
            assert "migrations have not been run on this database (" in ended.stderr
            assert "make manage ARGS=migrate" in ended.stderr
    finally:
        with connect(url, autocommit=True) as connection:
            connection.execute("DROP DATABASE never_migrated WITH (FORCE)")
