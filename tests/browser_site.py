"""Fixtures for browser tests: the real web server on the test database, and a Chromium that reports what went wrong.

Import into a conftest: ``from tests.browser_site import browser, browser_page, live_site``. Tests that use them are marked
``browser`` and ``django_db(transaction=True)``: the server is another process and sees committed rows only.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).parents[1]
CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
START_LIMIT_S = 60.0


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def chromium_path() -> str:
    """The system's Chromium. Without one the test fails with the command that brings it."""
    candidates = [
        os.environ.get("SPADEWORK_CHROMIUM", ""),
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ]
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            return candidate
    pytest.fail("no Chromium found: apt-get install chromium, or set SPADEWORK_CHROMIUM, or run make test BROWSER=no")


@pytest.fixture(scope="session")
def live_site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a uvicorn that serves the product as in production (hashed static files) on the test database."""
    with served(tmp_path_factory.mktemp("live-site")) as address:
        yield address


@contextmanager
def served(folder: Path, **settings: str) -> Iterator[str]:
    """Such a server with more settings in its environment."""
    from django.db import connection

    address = f"http://127.0.0.1:{_free_port()}"
    environment = {
        **os.environ,
        "DATABASE_URL": make_conninfo(os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"]),
        "SPADEWORK_PUBLIC_URL": address,
        "SPADEWORK_STATIC_MANIFEST": "yes",
        "SPADEWORK_STATIC_ROOT": str(folder / "static"),
        **settings,
    }
    subprocess.run(
        [sys.executable, "manage.py", "collectstatic", "--noinput", "-v0"],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=120,
    )
    log = (folder / "uvicorn.log").open("wb")
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "webapp.asgi:application",
        "--host",
        "127.0.0.1",
        "--port",
        address.rsplit(":", 1)[1],
        "--no-proxy-headers",
    ]
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_up(address, server, folder / "uvicorn.log")
        yield address
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(timeout=10)
        log.close()


def _wait_until_up(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail(f"uvicorn ended with {server.returncode}:\n{log.read_text()[-2000:]}")
        try:
            with urlopen(f"{address}/healthz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"uvicorn did not answer within {START_LIMIT_S:.0f} s:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the browser tests of a module.

    Not of the session: while it lives, Playwright's event loop counts as running in this thread, and asynchronous tests of other
    modules could not start theirs.
    """
    from playwright.sync_api import sync_playwright

    # Playwright's loop makes Django think that we are in async code; tests touch the ORM between clicks.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        instance = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM_FLAGS)
        yield instance
        instance.close()


@pytest.fixture
def browser_page(browser: Any, live_site: str) -> Iterator[Any]:
    """A page in a fresh context, based at the live site. At the end: no policy violation, no script error, no failed load.

    ``page.expected_statuses`` is a set of HTTP statuses from 400 up that the test provokes on purpose.
    """
    context = browser.new_context(
        base_url=live_site, viewport={"width": 1280, "height": 800}, timezone_id="America/New_York"
    )
    page = context.new_page()
    page.expected_statuses = set()
    problems: list[str] = []
    page.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
    )
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on(
        "response", lambda answer: problems.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
    )
    yield page
    context.close()
    expected = page.expected_statuses
    left = [text for text in problems if not any(str(status) in text for status in expected)]
    assert left == [], left
