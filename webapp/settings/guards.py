"""Variables of other programs that would silently override ours."""

from __future__ import annotations

import os

from webapp.settings.env import BadSetting

# Celery reads these from the environment and obeys them over what the code says.
_CELERY_VARIABLES = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND")


def refuse_celery_environment() -> None:
    """Raise BadSetting when the environment would make Celery talk to a broker other than REDIS_URL's."""
    for name in _CELERY_VARIABLES:
        if os.environ.get(name):
            raise BadSetting(
                name, "is set, and Celery would obey it over REDIS_URL", "nothing (unset it) and use REDIS_URL"
            )
