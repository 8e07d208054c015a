"""Which proxies may say where a request came from and whether it came by HTTPS."""

from __future__ import annotations

import ipaddress

from webapp.settings.env import BadSetting, envlist

_LOOPBACK = ["127.0.0.1", "::1"]
_WIDEST = {4: 8, 6: 16}  # more than a provider's whole network is a mistake


def read_trusted_proxies(name: str, *, https: bool) -> list[str]:
    """Addresses and networks from variable ``name``; with HTTPS the loopback ones by default, without it none.

    Raises BadSetting for what is no address, for networks that let anybody in, and when it is set without HTTPS.
    """
    expected = "addresses or networks of your TLS proxy, like 127.0.0.1,::1 or 172.18.0.0/16"
    given = envlist(name)
    if not https:
        if given:
            raise BadSetting(name, "is set but SPADEWORK_HTTPS is off, and without TLS no proxy is believed", "nothing")
        return []
    for item in given:
        try:
            network = ipaddress.ip_network(item)
        except ValueError as error:
            raise BadSetting(name, f"has {item!r}, which is no address and no network ({error})", expected) from error
        if network.prefixlen < _WIDEST[network.version]:
            raise BadSetting(name, f"has {item}, from where anybody could forge addresses", expected)
    return given or _LOOPBACK
