"""The real settings with throw-away values, for tools that import them without running anything (mypy's plugin)."""

from __future__ import annotations

import os
import secrets

os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
os.environ.setdefault("REDIS_URL", "redis://127.0.0.1:1/0")
if "SPADEWORK_SECRET_KEY_FILE" not in os.environ:
    os.environ.setdefault("SPADEWORK_SECRET_KEY", secrets.token_urlsafe(48))

from webapp.settings import *  # noqa: F403
