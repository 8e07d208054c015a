"""Keys and passwords, generated at the first start, one 0600 file each."""

import os
import secrets
from pathlib import Path

from webapp.stack.errors import StackError

_SECRET_BYTES = 32


def read_or_create(path: Path) -> str:
    """The secret in `path`; made from the system's random source when the file does not exist.

    Hexadecimal, so that it needs no quoting in a URL or a configuration file. Written under another name first: a start
    that is killed half-way leaves no half secret behind.

    Raises:
        StackError: the file exists but is empty.
    """
    if not path.exists():
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    value = path.read_text().strip()
    if not value:
        raise StackError(f"{path} is empty: restore it from a backup, or remove it to have a new one made")
    return value
