"""What the process ends with, by the owner of the error that ended it."""

from __future__ import annotations

EXIT_CODES = {"bug": 1, "user": 2, "environment": 2, "infrastructure": 3, "limit": 4, "cancelled": 0}
