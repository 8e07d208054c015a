"""Paths that people write in settings."""

from __future__ import annotations

from pathlib import Path

from trainer.errors import UserError

_SHOWN_CHARS = 100


def given_path(setting: str, text: str) -> Path | None:
    """The file or folder `text` names, ~ being a home directory; None when it is not there.

    Raises `UserError`, naming `setting`, when it is empty or can be no path on this machine.
    """
    if not text.strip():
        raise UserError(f"{setting} is empty: give a path")
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"
    try:
        path = Path(text).expanduser().absolute()
        return path if path.exists() else None
    except RuntimeError as error:  # pathlib's, of an unknown ~user
        raise UserError(f"{setting}: {shown}: there is no home directory of that user") from error
    except OSError as error:
        raise UserError(f"{setting}: {shown} cannot be used: {error.strerror or error}") from error
