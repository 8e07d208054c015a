"""Turning text that a model wrote into text that Postgres takes, without hiding what it was.

Postgres text and JSONB hold neither NUL nor lone surrogates; both are written out as visible escapes (``\\u0000``, ``\\udc00``).
The run directory keeps the original.
"""

from __future__ import annotations

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def storable_text(text: str) -> str:
    """``text`` with NULs and lone surrogates as visible escapes."""
    return _UNSTORABLE.sub(_escape, text)


def storable(value: Any) -> Any:
    """The same for every string and key of decoded JSON; non-finite numbers, which JSONB refuses, become their names."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value
