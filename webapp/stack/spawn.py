"""Starting one process so that it dies with us, and under which identity a database server can run here."""

import enum
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from webapp.stack.child import EXIT_CANNOT_START
from webapp.stack.errors import StackError

_LAUNCHER = Path(__file__).with_name("child.py")
_PROBE_TIMEOUT_S = 20


class IdentityKind(enum.StrEnum):
    """How a child's user relates to ours; the values are the words child.py understands."""

    SAME = "same"
    NAMESPACE = "namespace"
    DROP = "drop"


@dataclass(frozen=True)
class Identity:
    """The user a child runs as. `uid`/`gid` are inside the namespace for NAMESPACE, real for DROP, unused for SAME."""

    kind: IdentityKind = IdentityKind.SAME
    uid: int = -1
    gid: int = -1

    def __str__(self) -> str:
        return self.kind.value if self.kind is IdentityKind.SAME else f"{self.kind}:{self.uid}:{self.gid}"

    @property
    def file_owner_uid(self) -> int:
        """Who must own the files the child writes, as seen from outside."""
        return self.uid if self.kind is IdentityKind.DROP else os.geteuid()


SAME_USER = Identity()


def spawn(
    argv: Sequence[str | Path],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    identity: Identity = SAME_USER,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `argv` (an absolute program path first) in a session of its own; the kernel ends it when we die.

    The promise follows the *thread* that calls this: call it from the main thread.
    """
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), death_signal.name, str(os.getpid()), str(identity)]
    return subprocess.Popen(
        [*launcher, *(os.fspath(argument) for argument in argv)],
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )


def database_identity(program: Path, *, environment: Mapping[str, str] = os.environ) -> Identity:
    """The identity under which PostgreSQL agrees to run: it wants a user that is not root and has a passwd entry.

    `SPADEWORK_POSTGRES_IDENTITY` (auto, namespace, drop) overrides the choice when running as root.

    Raises:
        StackError: no such identity can be had here, or the setting is wrong.
    """
    wish = environment.get("SPADEWORK_POSTGRES_IDENTITY", "auto")
    if wish not in ("auto", IdentityKind.NAMESPACE, IdentityKind.DROP):
        raise StackError(f"SPADEWORK_POSTGRES_IDENTITY is {wish!r}: must be auto, namespace or drop")
    is_root = os.geteuid() == 0
    if not is_root and has_passwd_entry(os.geteuid()):
        return SAME_USER
    ordinary = _ordinary_user()
    namespace = Identity(IdentityKind.NAMESPACE, ordinary.pw_uid, ordinary.pw_gid)
    if not (is_root and wish == IdentityKind.DROP) and _can_run(program, namespace):
        return namespace
    if is_root and wish != IdentityKind.NAMESPACE:
        return Identity(IdentityKind.DROP, ordinary.pw_uid, ordinary.pw_gid)
    if is_root:
        raise StackError("SPADEWORK_POSTGRES_IDENTITY=namespace, but this kernel does not let us make a user namespace")
    raise StackError(
        f"user id {os.geteuid()} has no entry in /etc/passwd, which PostgreSQL needs: "
        "run as a named user, or set DATABASE_URL to an existing server"
    )


def has_passwd_entry(uid: int) -> bool:
    """Whether the system has a name for this user id."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _ordinary_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        others = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
        if others:
            return others[-1]
        raise StackError(
            "/etc/passwd knows no user but root, and PostgreSQL does not run as root: set DATABASE_URL"
        ) from None


def _can_run(program: Path, identity: Identity) -> bool:
    probe = spawn([program, "--version"], identity=identity, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return probe.wait(_PROBE_TIMEOUT_S) != EXIT_CANNOT_START
