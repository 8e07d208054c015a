"""`backup`: the database and the data directory as one file, while runs go on.

The database comes first, in one snapshot; files come after it, so that every event the database knows is also in the files. Of a
run, checkpoints come before its event log, so that the log never ends before the newest checkpoint. What a run writes between the
snapshot and its files is in the files only and is taken in when it is restored.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from psycopg import errors

from webapp.stack.backup_file import DUMP, HOME, Manifest, Writer, writing
from webapp.stack.errors import StackError
from webapp.stack.lock import exclusive, holder_pid
from webapp.stack.paths import Home
from webapp.stack.postgres import postgres_server
from webapp.stack.postgres_tools import connect, run_tool
from webapp.stack.serving import start_service

Checkpoints = Literal["all", "newest", "none"]
CHECKPOINTS: tuple[Checkpoints, ...] = ("all", "newest", "none")
#: What is made again by itself, belongs to this machine only, or is secret.
_NOT_KEPT = frozenset({"postgres", "valkey", "sockets", "logs", "secrets", "static", "import", "lock", "state.json"})
_NOT_KEPT_ENDS = (".ready", ".part", ".old", ".unfinished")
#: Where the database was put aside by a restore that was cut short.
SCHEMA_ASIDE = "spadework_before_restore"


def is_kept(name: str) -> bool:
    """Whether an entry of the data directory belongs into a backup."""
    return not (name in _NOT_KEPT or name.startswith("beat-schedule") or name.endswith(_NOT_KEPT_ENDS))


def backup(home: Home, target: Path, *, checkpoints: Checkpoints = "all", say: Callable[[str], None]) -> Manifest:
    """Write a backup to `target`. Runs, people and workers are not disturbed; a stopped stack's database is started for it.

    Raises:
        StackError: the target exists or cannot be written, or the database cannot be read. Nothing is left behind.
    """
    if target.exists():
        raise StackError(f"{target} exists: choose another name, or remove it first")
    with ExitStack() as cleanup:
        url = database_url(home, cleanup)
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        schema, outside, server = _facts(url, home)
        manifest = Manifest(
            made_at=made_at,
            home=str(home.root),
            checkpoints=checkpoints,
            postgres=server,
            schema=schema,
            outside=outside,
        )
        try:
            with writing(target, manifest) as writer, tempfile.TemporaryDirectory(dir=target.parent) as folder:
                dump = Path(folder) / DUMP
                say("reading the database")
                options = ("--format=custom", "--no-owner", "--no-privileges", f"--exclude-schema={SCHEMA_ASIDE}")
                run_tool("pg_dump", [*options, f"--file={dump}"], url=url)
                writer.add(dump, DUMP)
                dump.unlink()
                say(f"reading {home.root}")
                for path in _files(home.root, checkpoints, writer):
                    writer.add(path, f"{HOME}/{path.relative_to(home.root)}")
        except OSError as error:
            raise StackError(
                f"cannot write {error.filename or target}: {error.strerror}; nothing was kept of it"
            ) from error
    return manifest


def database_url(home: Home, cleanup: ExitStack) -> str:
    """The address of the database; the embedded one is started for as long as `cleanup` lasts when the stack is down.

    Raises:
        StackError: there is no database yet, or it does not start.
    """
    if url := os.environ.get("DATABASE_URL"):
        return url
    if holder_pid(home) is not None:
        return postgres_server(home).url
    cleanup.enter_context(exclusive(home))
    server = postgres_server(home)
    if not (server.data / "PG_VERSION").exists():
        raise StackError(f"there is no database in {home.root}: nothing was ever started there")
    server.ensure_cluster()
    start_service(server.service(), home, cleanup)
    return server.url


def _facts(url: str, home: Home) -> tuple[list[list[str]], list[str], int]:
    """Migrations of the database, runs that lie outside the data directory, and PostgreSQL's major version."""
    with connect(url) as connection:
        try:
            schema = connection.execute("SELECT app, name FROM django_migrations ORDER BY app, name").fetchall()
            runs = connection.execute(
                "SELECT slug, directory FROM runs_run WHERE directory <> '' ORDER BY id"
            ).fetchall()
        except errors.UndefinedTable as error:
            raise StackError(
                "the database is empty: start the stack once (`make up`), then there is something to keep"
            ) from error
        inside = f"{home.root}{os.sep}"
        outside = [f"{slug}: {directory}" for slug, directory in runs if not str(directory).startswith(inside)]
        return [[str(app), str(name)] for app, name in schema], outside, connection.info.server_version // 10_000


def _files(root: Path, checkpoints: Checkpoints, writer: Writer) -> Iterator[Path]:
    for entry in sorted(root.iterdir()):
        if not is_kept(entry.name):
            continue
        if entry.name == "runs" and entry.is_dir() and not entry.is_symlink():
            for run in sorted(entry.iterdir()):
                yield from _run_files(run, checkpoints, writer) if run.is_dir() else _plain_files(run, writer)
        else:
            yield from _plain_files(entry, writer)


def _run_files(run: Path, checkpoints: Checkpoints, writer: Writer) -> Iterator[Path]:
    """A run's checkpoints, then its event log, then the rest. Of checkpoints only whole ones."""
    names = _names(run)
    if "checkpoints" in names and checkpoints != "none":
        whole = [name for name in _names(run / "checkpoints") if (run / "checkpoints" / name / "COMPLETE").is_file()]
        for name in whole if checkpoints == "all" else whole[-1:]:
            marker = run / "checkpoints" / name / "COMPLETE"
            yield from (path for path in _plain_files(marker.parent, writer) if path != marker)
            yield marker  # last: the trainer takes it away before anything else of an old checkpoint
    ordered = ["attempts", *(name for name in names if name not in ("attempts", "checkpoints", "trainer.lock"))]
    for name in ordered:
        if name in names and not (name == "start" and checkpoints == "none"):
            yield from _plain_files(run / name, writer)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:  # given up meanwhile
        return []


def _plain_files(path: Path, writer: Writer) -> Iterator[Path]:
    """The file, or the files below the folder. Anything else (links, sockets) is noted as left out."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        for name in _names(path):
            yield from _plain_files(path / name, writer)
    elif stat.S_ISREG(mode):
        yield path
    else:
        writer.manifest.left_out.append(str(path))


def summary(manifest: Manifest, target: Path) -> Sequence[str]:
    """What a person should know about a backup."""
    lines = [
        f"{target}: {len(manifest.files)} files, {manifest.total_bytes:,} bytes unpacked, checkpoints: {manifest.checkpoints}",
    ]
    if manifest.left_out:
        lines.append(
            f"left out: {len(manifest.left_out)} (links, or gone while it was read), the first {manifest.left_out[0]}"
        )
    if manifest.outside:
        lines.append(
            f"not in it are the directories of {len(manifest.outside)} runs that were imported where they lie, the first "
            f"{manifest.outside[0]}: keep those yourself, or import them with --copy"
        )
    return lines
