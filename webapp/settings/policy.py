"""What a page may load and run: the content security policy, as django-csp's directive dict."""

from __future__ import annotations

from collections.abc import Sequence

from csp.constants import NONE, SELF


def content_security_policy(*, socket_sources: Sequence[str]) -> dict[str, object]:
    """Everything from our own origin, nothing inline, no eval, no plugins, no framing.

    Sockets are listed by their ``ws://`` spelling because not every browser lets 'self' cover them. Style *attributes*
    are inline style too: pages size things with classes, ``<progress>`` and SVG attributes instead.
    """
    return {
        "DIRECTIVES": {
            "default-src": [NONE],
            "script-src": [SELF],
            "style-src": [SELF],
            "img-src": [SELF],
            "font-src": [SELF],
            "connect-src": [SELF, *socket_sources],
            "manifest-src": [SELF],
            "form-action": [SELF],
            "frame-ancestors": [NONE],
            "base-uri": [NONE],
            "object-src": [NONE],
        }
    }
