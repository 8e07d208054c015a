"""Checks before anything is started: what is wrong with the machine or the settings, in one line each."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import redis

from webapp.stack.errors import StackError
from webapp.stack.paths import REPOSITORY
from webapp.stack.postgres import first_line

DEFAULT_PORT = 8400
_PORTS_TRIED = 20
_NEEDED_BYTES = 300_000_000
_CONNECT_TIMEOUT_S = 5
_SANDBOX_TIMEOUT_S = 120
_OLDEST_POSTGRES = 140000  # Django 5.2's own limit


def check_platform() -> None:
    """Linux only: parent-death signals and the sandbox are the kernel's.

    Raises:
        StackError: another system.
    """
    if sys.platform != "linux":
        raise StackError(
            f"this system is {sys.platform}: Spadework runs on Linux (for other systems see docker/compose.yaml)"
        )


def check_disk(directory: Path) -> None:
    """Raises StackError when the data directory's disk is nearly full: databases do not take that well."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < _NEEDED_BYTES:
        raise StackError(
            f"only {free_bytes // 1_000_000} MB free on the disk of {directory}, at least {_NEEDED_BYTES // 1_000_000} MB "
            "are needed: make room, or set SPADEWORK_HOME to a directory on another disk"
        )


def check_sandbox() -> None:
    """Raises StackError when generated code could not be kept apart on this machine: nothing is started then.

    In a process of its own: only workers and trainers may have the sandbox in their address space.
    """
    command = [sys.executable, "-m", "sandbox", "check"]
    check = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_SANDBOX_TIMEOUT_S, check=False
    )
    if check.returncode != 0:
        reasons = "; ".join(" ".join(line.split()) for line in check.stdout.splitlines() if " no " in f"{line} ")
        raise StackError(
            f"this machine cannot isolate generated code, and without that Spadework runs none of it: "
            f"{reasons or first_line(RuntimeError(check.stderr))} (`python -m sandbox check` tells more)"
        )


def check_database(url: str) -> None:
    """Raises StackError when DATABASE_URL leads to no usable PostgreSQL. The text never quotes the password."""
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT_S) as connection:
            version = connection.info.server_version
            where = f"{connection.info.host}:{connection.info.port}/{connection.info.dbname}"
    except psycopg.ProgrammingError as error:
        raise StackError(
            "DATABASE_URL is not a PostgreSQL connection URL, it should look like "
            f"postgresql://USER:PASSWORD@HOST:5432/DATABASE ({_without_url(first_line(error), url)})"
        ) from None
    except psycopg.Error as error:
        raise StackError(
            f"DATABASE_URL: {_without_url(first_line(error), url)}; correct it, or unset it to use the embedded one"
        ) from None
    if version < _OLDEST_POSTGRES:
        raise StackError(
            f"DATABASE_URL: {where} is PostgreSQL {version // 10000}, at least {_OLDEST_POSTGRES // 10000} is needed"
        )


def check_broker(url: str) -> None:
    """Raises StackError when REDIS_URL leads to no usable Redis or Valkey. The text never quotes the password."""
    try:
        client = redis.Redis.from_url(url, socket_timeout=_CONNECT_TIMEOUT_S, socket_connect_timeout=_CONNECT_TIMEOUT_S)
        try:
            client.ping()
        finally:
            client.close()
    except ValueError as error:
        raise StackError(
            f"REDIS_URL should look like redis://:PASSWORD@HOST:6379/0 or unix://:PASSWORD@/path/to.sock?db=0 "
            f"({_without_url(first_line(error), url)})"
        ) from None
    except redis.RedisError as error:
        raise StackError(
            f"REDIS_URL: {_without_url(first_line(error), url)}; correct it, or unset it to use the embedded one"
        ) from None


def _without_url(text: str, url: str) -> str:
    return text.replace(url, "the given value")


def bind_port(environment: Mapping[str, str] = os.environ) -> tuple[socket.socket, int]:
    """The web server's listening socket, and the port that was wished for (`SPADEWORK_PORT`).

    A taken port is replaced by the next free one. Bound here and handed down, so that the port stays ours while the web
    server restarts. `SPADEWORK_BIND` is the address, this machine only unless set.

    Raises:
        StackError: a setting is wrong or the address cannot be bound.
    """
    text = environment.get("SPADEWORK_PORT") or str(DEFAULT_PORT)
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < 65536:
        raise StackError(f"SPADEWORK_PORT is {text!r}: must be a number from 1 to 65535")
    wished = int(text)
    address = environment.get("SPADEWORK_BIND") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in [*range(wished, min(wished + _PORTS_TRIED, 65536)), 0]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise StackError(
                f"cannot listen on {address} port {port}: {error.strerror}; set SPADEWORK_PORT or SPADEWORK_BIND"
            ) from None
        return listener, wished
    raise StackError(f"no free port on {address}: set SPADEWORK_PORT")
