"""The address people open in their browser, and everything that follows from it: hosts, origins, sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult

from webapp.settings.env import parse_origin

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Origins:
    """``public`` is the canonical ``scheme://host[:port]``; the lists hold it and every accepted spelling of it."""

    public: str
    https: bool
    hosts: list[str]
    http_origins: list[str]
    socket_sources: list[str]


def _spell(scheme: str, host: str, port: int | None) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    default = 443 if scheme in ("https", "wss") else 80
    return f"{scheme}://{bracketed}" + ("" if port in (None, default) else f":{port}")


def read_origins(name: str, text: str, *, extra_name: str, extra: Sequence[str]) -> Origins:
    """Accepted hosts and origins of the public URL ``text`` and of the ``extra`` ones. Raises BadSetting.

    A loopback address is accepted under its three names, with the same scheme and port: people type any of them.
    """
    public = parse_origin(name, text)
    addresses: list[SplitResult] = [public, *(parse_origin(extra_name, item) for item in extra)]
    hosts: list[str] = []
    http_origins: list[str] = []
    socket_sources: list[str] = []
    for address in addresses:
        names = _LOOPBACK if address.hostname in _LOOPBACK else (address.hostname or "",)
        for host in names:
            allowed = f"[{host}]" if ":" in host else host
            if allowed not in hosts:
                hosts.append(allowed)
            http_origins.append(_spell(address.scheme, host, address.port))
            if ":" not in host:  # the policy's grammar has no IPv6 addresses; 'self' covers that page
                socket_sources.append(_spell("wss" if address.scheme == "https" else "ws", host, address.port))
    return Origins(
        public=_spell(public.scheme, public.hostname or "", public.port),
        https=public.scheme == "https",
        hosts=hosts,
        http_origins=list(dict.fromkeys(http_origins)),
        socket_sources=list(dict.fromkeys(socket_sources)),
    )
