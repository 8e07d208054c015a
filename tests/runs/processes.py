"""Processes of ours against the test database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]


def environment_of_tests(**more: str) -> dict[str, str]:
    """Our environment, with DATABASE_URL leading to the database the tests use."""
    parameters = connection.get_connection_params()
    pairs = [(key, str(parameters[key])) for key in ("host", "port", "user", "password") if parameters.get(key)]
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in pairs)
    url = f"postgresql:///{parameters['dbname']}?{query}"
    return {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT), **more}


def start_module(
    module: str, *arguments: str, env: Mapping[str, str], stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """``python -m module`` in a session of its own, so that it can be killed with all its children."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, env=dict(env), stdout=stdout, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
