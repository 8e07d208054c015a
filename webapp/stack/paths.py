"""Where a stack keeps its things: one data directory per installation, and a short directory for sockets."""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from webapp.stack.errors import StackError

REPOSITORY = Path(__file__).resolve().parents[2]

# The kernel's limit for a socket's path is 107 bytes; the longest name that goes below the directory is Postgres' lock.
_LONGEST_SOCKET_NAME = ".s.PGSQL.5432.lock"
_SOCKET_PATH_LIMIT_BYTES = 107


@dataclass(frozen=True)
class Home:
    """The data directory (`SPADEWORK_HOME`) and the places inside it."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Home":
        """`SPADEWORK_HOME`, else ``spadework`` below the user's data home.

        Raises:
            StackError: neither is set and the user has no home directory.
        """
        if chosen := environment.get("SPADEWORK_HOME"):
            return cls(Path(os.path.abspath(Path(chosen).expanduser())))  # noqa: PTH100  keeps symbolic links as written
        data_home = environment.get("XDG_DATA_HOME", "")
        if Path(data_home).is_absolute():
            return cls(Path(data_home) / "spadework")
        try:
            return cls(Path.home() / ".local" / "share" / "spadework")
        except RuntimeError as error:
            raise StackError(
                "this user has no home directory: set SPADEWORK_HOME to a directory for the data"
            ) from error

    @property
    def postgres(self) -> Path:
        """The database cluster's parent directory."""
        return self.root / "postgres"

    @property
    def valkey(self) -> Path:
        """The broker's append-only file and configuration."""
        return self.root / "valkey"

    @property
    def runs(self) -> Path:
        """Run directories, written by trainers."""
        return self.root / "runs"

    @property
    def logs(self) -> Path:
        """One log file per process."""
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        """Generated keys and passwords, each a file of mode 0600."""
        return self.root / "secrets"

    @property
    def state(self) -> Path:
        """What `status` shows; true only while the lock is held."""
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        """Locked (flock) by the supervisor that owns this directory."""
        return self.root / "lock"

    def create(self) -> None:
        """Make the directory tree, everything 0700.

        Raises:
            StackError: the place cannot be written or belongs to somebody else.
        """
        try:
            for directory in (self.root, self.postgres, self.valkey, self.runs, self.logs, self.secrets):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"cannot create {error.filename or self.root}: {error.strerror}; set SPADEWORK_HOME to a directory you can write"
            ) from error
        owner_uid = self.root.stat().st_uid
        if owner_uid != os.geteuid():
            raise StackError(
                f"{self.root} belongs to user id {owner_uid}, this is user id {os.geteuid()}: "
                "run as its owner, or set SPADEWORK_HOME to another directory"
            )
        for directory in (self.root, self.secrets):
            if directory.stat().st_mode & (0o077 & ~self._passage(directory)):
                directory.chmod(0o700)

    def _passage(self, directory: Path) -> int:
        """Mode bits that a PostgreSQL which runs as another user may have needed (see postgres.py)."""
        return 0o011 if directory == self.root else 0


def socket_directory(
    home: Home,
    *,
    owner_uid: int | None = None,
    temporary: Path = Path("/tmp"),  # noqa: S108  owner and mode are checked below
) -> Path:
    """A 0700 directory for unix sockets whose path is short enough for them; created when missing.

    Inside the data directory when that is short, else in the user's runtime directory, else under `temporary` by a name
    derived from the data directory (so that a restart finds the same place). A server that runs as another user
    (`owner_uid`) always gets one under `temporary`, because that user need not be able to enter the data directory.

    Raises:
        StackError: somebody else made the directory first.
    """
    owner = os.geteuid() if owner_uid is None else owner_uid
    name = f"sw-{owner}-{hashlib.sha256(os.fsencode(home.root)).hexdigest()[:10]}"
    candidates = [temporary / name]
    if owner == os.geteuid():
        if runtime := os.environ.get("XDG_RUNTIME_DIR"):
            candidates.insert(0, Path(runtime) / name)
        candidates.insert(0, home.root / "sockets")
    for directory in candidates:
        if len(os.fsencode(directory / _LONGEST_SOCKET_NAME)) > _SOCKET_PATH_LIMIT_BYTES:
            continue
        try:
            _make_private(directory, owner)
        except OSError:
            continue  # a runtime directory that does not exist, a read-only place: the next candidate
        return directory
    raise StackError(f"no directory with a path short enough for unix sockets: tried {', '.join(map(str, candidates))}")


def _make_private(directory: Path, owner_uid: int) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner_uid:
            raise StackError(f"{directory} is not this user's: remove it, the unix sockets have to go there") from None
    if owner_uid != os.geteuid():
        os.chown(directory, owner_uid, -1)
    directory.chmod(0o700)


def reachable_by_others(path: Path) -> bool:
    """Whether a user without any rights of its own can enter every directory above `path`."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.absolute().parents)
