"""Which page may open a socket."""

from __future__ import annotations

from collections.abc import Iterable

from channels.security.websocket import WebsocketDenier


class ExactOrigin:
    """Lets a WebSocket through only when its Origin equals one of ours: scheme, host and port.

    Channels' AllowedHostsOriginValidator compares hosts only; cookies ignore ports, so any other web tool on this host
    could then open our sockets as the user.
    """

    def __init__(self, application: object, origins: Iterable[str]) -> None:
        self._application = application
        self._origins = frozenset(origin.lower() for origin in origins)

    async def __call__(self, scope: dict, receive: object, send: object) -> object:  # type: ignore[type-arg]
        given = [value for name, value in scope.get("headers", []) if name == b"origin"]
        if len(given) == 1 and given[0].decode("latin1").lower() in self._origins:
            return await self._application(scope, receive, send)  # type: ignore[operator]
        return await WebsocketDenier()(scope, receive, send)
