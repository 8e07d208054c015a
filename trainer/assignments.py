"""`a.b=VALUE` of a command line as settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trainer.errors import UserError


def assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Pairs of dotted setting and value; VALUE is JSON where it reads as such, else text. Raises `UserError` without "="."""
    values: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {text}: write it as a.b=VALUE")
        try:
            values[path.strip()] = json.loads(value)
        except ValueError:
            values[path.strip()] = value
    return values
