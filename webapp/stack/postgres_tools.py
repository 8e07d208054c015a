"""pg_dump and pg_restore: where they are, and how they are told of a database without showing its password to `ps`."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from webapp.stack.errors import StackError
from webapp.stack.postgres import first_line, installed_binaries

_CONNECT_TIMEOUT_S = 10


def connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """A connection in autocommit mode.

    Raises:
        StackError: the database does not answer.
    """
    try:
        return psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT_S, autocommit=True)
    except psycopg.Error as error:
        raise StackError(f"the database does not answer: {first_line(error)}") from error


def run_tool(name: str, arguments: Sequence[str | Path], *, url: str) -> None:
    """Run a PostgreSQL client program on the database of `url` and wait for it.

    Raises:
        StackError: there is no such program that is new enough for the server, or it failed; the text quotes it.
    """
    program = _find(name, url)
    done = subprocess.run(
        [program, *arguments], env=_environment(url), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        problem = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise StackError(f"{name} failed: {problem}")


def _find(name: str, url: str) -> Path:
    """The program of the embedded PostgreSQL, or the one on PATH when the server is newer than that."""
    with connect(url) as connection:
        server = connection.info.server_version // 10_000
    candidates = []
    with contextlib.suppress(StackError):  # another platform: DATABASE_URL is set, and so PATH may know the programs
        candidates.append(installed_binaries() / name)
    if found := shutil.which(name):
        candidates.append(Path(found))
    for program in candidates:
        if program.is_file() and _major(program) >= server:
            return program
    raise StackError(
        f"the database is PostgreSQL {server} and no {name} of that version or a newer one was found: install PostgreSQL {server}'s "
        "client programs and put them on PATH"
    )


def _major(program: Path) -> int:
    """18 for "pg_dump (PostgreSQL) 18.1"; 0 when it does not say."""
    try:
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    digits = text.rpartition(")")[2].strip().partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _environment(url: str) -> dict[str, str]:
    """libpq's variables for `url`, over the caller's own only where the URL says nothing."""
    variables = {
        option.keyword.decode(): option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar
    }
    said = {variables[name]: str(value) for name, value in conninfo_to_dict(url).items() if name in variables}
    return {**os.environ, **said}
