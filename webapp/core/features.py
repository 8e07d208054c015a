"""Which product features are installed. A feature is one folder under ``webapp/``: delete the folder and it is gone.

A feature folder has ``apps.py``; its ``urls.py`` is mounted at ``/<name>/`` and its ``routing.py`` adds sockets.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

FEATURES = ("runs", "environments", "episodes", "review", "pools", "corpora", "keeping", "alerts", "trying", "api")


def installed_features(webapp_folder: Path) -> tuple[str, ...]:
    """Names of the features whose folder is there, in the order of FEATURES."""
    return tuple(name for name in FEATURES if (webapp_folder / name / "apps.py").is_file())


def has_module(dotted: str) -> bool:
    """True when the module exists. It is not imported here, so that an error inside it shows as itself."""
    return find_spec(dotted) is not None
