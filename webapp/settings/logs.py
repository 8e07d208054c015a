"""Logging to stderr: one line an event, secrets kept out of it."""

from __future__ import annotations

import logging
import re
from typing import Any

_LINK = re.compile(r"(/accounts/link/)[^/\s\"?]+")


class HideLinkTokens(logging.Filter):
    """Blanks the token of a one-time link in access logs: whoever reads a log must not be able to sign in with it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._clean(item) for item in record.args)
        record.msg = self._clean(record.msg)
        return True

    @staticmethod
    def _clean(item: object) -> Any:
        return _LINK.sub(r"\1…", item) if isinstance(item, str) else item


def logging_settings(*, level: str) -> dict[str, Any]:
    """``logging.config.dictConfig`` data; ``level`` is for our own packages, libraries speak from WARNING up."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"hide_link_tokens": {"()": "webapp.settings.logs.HideLinkTokens"}},
        "formatters": {
            "line": {
                "format": "{asctime}.{msecs:03.0f}Z {levelname} {name}: {message}",
                "datefmt": "%Y-%m-%dT%H:%M:%S",
                "style": "{",
            }
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["hide_link_tokens"],
            }
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "webapp": {"level": level},
            "trainer": {"level": level},
            "sandbox": {"level": level},
            "celery": {"level": level},
            # "due", "received" and "succeeded" of every sweep would bury what a person wants to read; failures are errors.
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.beat": {"level": "WARNING"},
            "uvicorn": {"level": level, "handlers": ["stderr"], "propagate": False},
            "uvicorn.access": {"level": level, "handlers": ["stderr"], "propagate": False},
            "django.server": {"level": level, "handlers": ["stderr"], "propagate": False},
        },
    }
