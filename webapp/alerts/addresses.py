"""Where a webhook may lead. The address is looked up once for each try and the connection goes to what was looked at."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

LOOKUP_S = 10.0  # the resolver's own patience is many times that when no name server answers
_HOW = "Set SPADEWORK_WEBHOOK_PRIVATE=on to allow receivers on private networks and on this machine."


class AddressRefused(Exception):
    """The webhook may not lead there; the message says why and what to do."""


def parse(url: str) -> SplitResult:
    """The parts of a webhook's address. Raises AddressRefused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused(f"This is not an address: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise AddressRefused("A webhook's address begins with https:// or http:// and names a host.")
    if parts.username or parts.password:
        raise AddressRefused(
            "Leave name and password out of the address: it is shown to others. The signature proves who sends."
        )
    if any(ord(character) <= 32 or ord(character) > 126 for character in url):
        raise AddressRefused("The address holds blanks or other characters that an address cannot have.")
    return parts


def resolve(parts: SplitResult) -> str:
    """The IP address to connect to. Raises AddressRefused when any address of the host is not allowed, or there is none."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in _look_up(host, port)]
    for text in addresses:
        for address in _ends(ipaddress.ip_address(text)):
            _check(host, address)
    return addresses[0]


def _look_up(host: str, port: int) -> list[Any]:
    """What the resolver says, waited for LOOKUP_S at most: it has no time limit of its own. Raises AddressRefused."""
    answers: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        found = answers.get(timeout=LOOKUP_S)
    except queue.Empty as error:
        raise AddressRefused(f"{host} has no address: no name server answered within {LOOKUP_S:g} s.") from error
    if isinstance(found, Exception):
        raise AddressRefused(f"{host} has no address ({found}).") from found
    return found


def _ends(address: _Address) -> list[_Address]:
    """Where packets to it may end: an IPv6 address can carry an IPv4 one, to which a gateway passes them on."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and int(address) > 1 and any(address in network for network in _CARRIERS):  # not :: and ::1
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return [inner] if inner is not None else [*(address.teredo or ()), address]


def _check(host: str, address: _Address) -> None:
    # Link-local holds the metadata services of clouds; some answer at these fixed addresses too. Never, whatever the setting.
    if address.is_link_local or address.is_multicast or address.is_unspecified or str(address) in _METADATA:
        raise AddressRefused(f"{host} leads to {address}, where no receiver can be: link-local, metadata or multicast.")
    is_public = address.is_global and not getattr(address, "is_site_local", False)
    if not is_public and not settings.SPADEWORK_WEBHOOK_PRIVATE:
        raise AddressRefused(f"{host} leads to {address}, which is not on the public internet. {_HOW}")


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: The last 32 bits are an IPv4 address: NAT64 (RFC 6052), NAT64 of a local network (RFC 8215), IPv4-compatible (RFC 4291).
_CARRIERS = tuple(ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96"))
_METADATA = frozenset({"fd00:ec2::254", "100.100.100.200", "168.63.129.16"})
