"""The folder whose run directories the browser may choose from."""

from __future__ import annotations

from pathlib import Path

from webapp.settings.env import BadSetting, envpath


def read_import_root(name: str, *, home: Path) -> Path:
    """The folder of variable ``name``, by default ``import`` in the data directory.

    Raises BadSetting for a folder that holds the data directory or lies inside another part of it: secrets, databases and the
    runs of this server must not be offered as something to import.
    """
    default = home / "import"
    root = envpath(name, default=default)
    real, real_home = root.resolve(), home.resolve()
    expected = f"a folder that holds nothing but run directories, like {default}"
    if real_home == real or real_home.is_relative_to(real):
        raise BadSetting(name, f"is {root}, which holds the data directory {home}", expected)
    if real.is_relative_to(real_home) and real != default.resolve():
        raise BadSetting(name, f"is {root}, which lies in the data directory {home}", expected)
    return root
