"""What every group of methods stands on: reads, writes, pages, waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from spadework_client.errors import WaitTimedOut
from spadework_client.transport import Transport

Json = dict[str, Any]
_ROWS = 200


class Calls:
    """Calls one server with one token. ``timeout_s`` is for each request; reads are tried ``tries`` times."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 30.0, tries: int = 3) -> None:
        self._transport = Transport(url, token, timeout_s=timeout_s, tries=tries)

    def _get(self, path: str, /, **query: Any) -> Any:
        return self._transport.call("GET", path, query=query)

    def _post(self, path: str, body: Any = None) -> Any:
        return self._transport.call("POST", path, body={} if body is None else body)

    def _patch(self, path: str, body: Any) -> Any:
        return self._transport.call("PATCH", path, body=body)

    def _delete(self, path: str) -> None:
        self._transport.call("DELETE", path)

    def _pages(self, path: str, /, **query: Any) -> Iterator[Json]:
        """Every row; the next page is fetched when it is reached."""
        page = self._get(path, **{"limit": _ROWS, **query})
        while True:
            yield from page["results"]
            if not page["next"]:
                return
            # Only the query is taken over: behind a proxy the server may know itself by another name.
            page = self._transport.call("GET", f"{path}?{page['next'].partition('?')[2]}")


def wait(
    read: Callable[[], Json], is_there: Callable[[Json], bool], what: str, timeout_s: float | None, poll_s: float
) -> Json:
    """Read until it is as wanted, and return that. Raises WaitTimedOut."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        found = read()
        if is_there(found):
            return found
        if deadline is not None and time.monotonic() + poll_s > deadline:
            raise WaitTimedOut(f"waited {timeout_s:g} s for {what}", found)
        time.sleep(poll_s)
