"""`restore`: a backup put in place of what is there, or not at all.

Everything is unpacked and checked aside first. Then the present database is put aside (another schema), the present files too
(`restore.old`), what the backup holds takes their places, and only when the application has gone over it the old things are
removed. A marker says how far this came: when a restore is cut short, `up` refuses to start, and the next `restore` puts back
what was there before it begins.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
from psycopg import sql

from webapp.stack.application import application_environment
from webapp.stack.backup import SCHEMA_ASIDE, is_kept
from webapp.stack.backup_file import DUMP, HOME, Manifest, unpack
from webapp.stack.errors import StackError
from webapp.stack.lock import exclusive
from webapp.stack.paths import REPOSITORY, Home
from webapp.stack.postgres import first_line, postgres_server
from webapp.stack.postgres_tools import connect, run_tool
from webapp.stack.preflight import DEFAULT_PORT
from webapp.stack.serving import start_service
from webapp.stack.valkey import valkey_server

_DEADLINE_S = 3600.0


def restore(home: Home, source: Path, *, replace: bool, say: Callable[[str], None]) -> Manifest:
    """Put the backup in place. Refuses a data directory or database that holds something, unless `replace`.

    Raises:
        StackError: the stack is up, the backup cannot be used, or something failed; what was there before is then back.
    """
    if not source.is_file():
        raise StackError(f"there is no file {source}")
    with ExitStack() as cleanup:
        cleanup.enter_context(exclusive(home))
        url = _database(home, cleanup)
        place = _Place(home, url)
        place.refuse_if_in_use()
        if place.marker.exists():
            say("a restore was cut short: putting back what was there before it")
            place.put_back()
        if not replace:
            place.refuse_if_used()
        cleanup.callback(shutil.rmtree, place.aside, ignore_errors=True)
        shutil.rmtree(place.aside, ignore_errors=True)
        say(f"checking {source}")
        manifest = unpack(source, place.aside)
        _refuse_newer(manifest, source)
        try:
            say("filling the database")
            place.swap_database()
            run_tool(
                "pg_restore",
                ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--dbname=", place.dump],
                url=url,
            )  # fmt: skip
            say("putting the files in place")
            place.swap_files()
            say("going over what was restored")
            _manage(home, url, "migrate", "--noinput", "--verbosity=0")
            _manage(home, url, "settle_restore", "--home-before", manifest.home, "--made-at", manifest.made_at)
        except BaseException:
            place.put_back()
            raise
        place.finish()
    return manifest


def refuse_cut_short(home: Home) -> None:
    """Raise StackError when a restore of this data directory was cut short."""
    marker = home.root / _Place.MARKER
    if marker.exists():
        raise StackError(
            f"a restore of {home.root} was cut short: run `python -m webapp.stack restore FILE` again; it puts back what was there first"
        )


class _Place:
    """The database and data directory a backup goes to, with what was there put aside."""

    MARKER = "restore.unfinished"

    def __init__(self, home: Home, url: str) -> None:
        self._home, self._url = home, url
        self.aside = home.root / "restore.part"
        self.marker = home.root / self.MARKER
        self._old = home.root / "restore.old"

    @property
    def dump(self) -> Path:
        """The unpacked dump of the database."""
        return self.aside / DUMP

    def refuse_if_in_use(self) -> None:
        """Raise StackError while Spadework is connected to the database, from whatever machine."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'spadework'"
        with connect(self._url) as connection:
            count = (connection.execute(query).fetchone() or (0,))[0]
        if count:
            raise StackError(f"Spadework has {count} connections to the database: stop it on every machine first")

    def refuse_if_used(self) -> None:
        """Raise StackError when anything would be replaced: files of runs, people or runs in the database."""
        runs = self._home.runs
        what = f"{runs} holds runs" if runs.is_dir() and any(runs.iterdir()) else ""
        with connect(self._url) as connection:
            for table in ("accounts_user", "runs_run"):
                query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table))
                there = connection.execute("SELECT to_regclass(%s)", [f"public.{table}"]).fetchone()
                if there and there[0] is not None and (connection.execute(query).fetchone() or [False])[0]:
                    what = what or f"the table {table} of the database is not empty"
        if what:
            raise StackError(f"{what}: restore into another SPADEWORK_HOME, or add --replace to give up what is there")

    def swap_database(self) -> None:
        """Put the present schema aside and make an empty one."""
        self._mark("database", new=[])
        aside = sql.Identifier(SCHEMA_ASIDE)
        try:
            with connect(self._url) as connection, connection.transaction():
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(aside))
                connection.execute(sql.SQL("ALTER SCHEMA public RENAME TO {}").format(aside))
                connection.execute("CREATE SCHEMA public")
        except psycopg.Error as error:
            raise StackError(
                f"the present tables cannot be put aside: {first_line(error)}; the role of DATABASE_URL has to own the database"
            ) from error

    def swap_files(self) -> None:
        """Put the present files aside and those of the backup in their place."""
        unpacked = self.aside / HOME
        new = sorted(path.name for path in unpacked.iterdir()) if unpacked.is_dir() else []
        self._old.mkdir(mode=0o700, exist_ok=True)
        self._mark("files", new=new)
        for path in self._kept():
            path.rename(self._old / path.name)
        for name in new:
            (unpacked / name).rename(self._home.root / name)
        self._home.create()

    def put_back(self) -> None:
        """What was there before, as far as it was put aside; safe to repeat."""
        state = json.loads(self.marker.read_text()) if self.marker.exists() else {"stage": "", "new": []}
        if state["stage"] == "done":
            self.finish()
            return
        aside = sql.Identifier(SCHEMA_ASIDE)
        with connect(self._url) as connection, connection.transaction():
            found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA_ASIDE]).fetchone()
            if found is not None and state["stage"]:
                connection.execute("DROP SCHEMA IF EXISTS public CASCADE")
                connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO public").format(aside))
        if state["stage"] == "files":
            unpacked = self.aside / HOME
            for name in state["new"]:  # renamed, not removed: this may be cut short as well
                if not (unpacked / name).exists() and (self._home.root / name).exists():
                    (self._home.root / name).rename(unpacked / name)
            for path in self._old.iterdir():
                path.rename(self._home.root / path.name)  # an empty folder that was made anew gives way
        self._clean()

    def finish(self) -> None:
        """The backup is in place for good: remove what was put aside."""
        self._mark("done", new=[])
        with connect(self._url) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA_ASIDE)))
        self._clean()

    def _clean(self) -> None:
        for folder in (self._old, self.aside):
            shutil.rmtree(folder, ignore_errors=True)
        self.marker.unlink(missing_ok=True)
        self._home.create()

    def _kept(self) -> list[Path]:
        return [path for path in sorted(self._home.root.iterdir()) if is_kept(path.name)]

    def _mark(self, stage: str, *, new: list[str]) -> None:
        part = self.marker.with_name(f"{self.MARKER}.part")
        with part.open("w") as file:
            json.dump({"stage": stage, "new": new}, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.marker)


def _database(home: Home, cleanup: ExitStack) -> str:
    """The database to restore into: that of DATABASE_URL, else the embedded one, made and started."""
    if url := os.environ.get("DATABASE_URL"):
        return url
    server = postgres_server(home)
    server.ensure_cluster()
    start_service(server.service(), home, cleanup)
    server.ensure_database()
    return server.url


def _refuse_newer(manifest: Manifest, source: Path) -> None:
    """Raise StackError when the backup's database has migrations of ours that this version does not know."""
    for app, name in manifest.schema:
        folder = REPOSITORY / "webapp" / app / "migrations"
        if folder.is_dir() and not (folder / f"{name}.py").is_file():
            raise StackError(
                f"{source} was made by a newer version of Spadework (migration {app}.{name}): update this one, then restore"
            )


def _manage(home: Home, url: str, *arguments: str) -> None:
    """Run a management command on what is being restored."""
    broker = os.environ.get("REDIS_URL") or valkey_server(home).url
    environment = application_environment(home, database_url=url, redis_url=broker, port=DEFAULT_PORT)
    try:
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "manage.py"), *arguments],
            cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=_DEADLINE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise StackError(f"manage.py {arguments[0]} did not finish in {_DEADLINE_S:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise StackError(f"manage.py {arguments[0]} failed: {lines[-1]}")
