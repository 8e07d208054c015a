"""Where a webhook may lead. The address is looked up once for each try and the connection goes to what was looked at."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

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
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} has no address ({error}).") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    for address in addresses:
        _check(host, address)
    return addresses[0]


def _check(host: str, text: str) -> None:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    address = mapped or address
    # Link-local holds the metadata services of clouds; some answer at these fixed addresses too. Never, whatever the setting.
    if address.is_link_local or address.is_multicast or address.is_unspecified or str(address) in _METADATA:
        raise AddressRefused(f"{host} leads to {address}, where no receiver can be: link-local, metadata or multicast.")
    if not address.is_global and not settings.SPADEWORK_WEBHOOK_PRIVATE:
        raise AddressRefused(f"{host} leads to {address}, which is not on the public internet. {_HOW}")


_METADATA = frozenset({"fd00:ec2::254", "100.100.100.200", "168.63.129.16"})
