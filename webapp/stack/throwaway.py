"""A pair of real servers for tests: in a temporary directory, without fsync, gone when the caller is."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from webapp.stack.credentials import read_or_create
from webapp.stack.paths import Home
from webapp.stack.postgres import FAST_AND_UNSAFE, postgres_server
from webapp.stack.serving import start_service
from webapp.stack.valkey import valkey_server


@contextmanager
def throwaway_services(kept: Path | None = None) -> Iterator[dict[str, str]]:
    """Start PostgreSQL and Valkey; yields the environment variables that lead to them; stops and deletes everything.

    Call it from the main thread. Takes about a second. With ``kept`` the data lie in that directory and stay there.

    Raises:
        StackError: a server did not come up; the text quotes its log.
    """
    root = kept or Path(tempfile.mkdtemp(prefix="spadework-test-"))
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as cleanup:
        if kept is None:
            cleanup.callback(shutil.rmtree, root, ignore_errors=True)
        if os.geteuid() == 0:
            root.chmod(0o711)  # without user namespaces, root's PostgreSQL runs as another user
        home = Home(root / "home")
        home.create()
        home.root.chmod(0o711)
        broker = valkey_server(home, durable=False)
        start_service(broker.service(), home, cleanup)
        database = postgres_server(home, settings=FAST_AND_UNSAFE)
        database.ensure_cluster(sync=False)
        start_service(database.service(), home, cleanup)
        database.ensure_database()
        key_file = home.secrets / "secret_key"
        read_or_create(key_file)
        yield {
            "DATABASE_URL": database.url,
            "REDIS_URL": broker.url,
            "SPADEWORK_HOME": str(home.root),
            "SPADEWORK_SECRET_KEY_FILE": str(key_file),
        }
