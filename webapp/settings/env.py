"""Typed readers of environment variables.

Every reader names the variable it could not read, shows what it got (never for secrets) and says what it should look
like, so that a wrong environment stops the program at start with one line instead of failing later somewhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import overload
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ImproperlyConfigured

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})

SECRET_MIN_CHARACTERS = 50  # what Django's deployment check asks for
SECRET_MIN_DISTINCT = 12
_SECRET_PLACEHOLDERS = re.compile(r"change.?me|insecure|example|placeholder|your.secret|password", re.IGNORECASE)


class BadSetting(ImproperlyConfigured):
    """An environment variable is missing or has a value that cannot be used."""

    def __init__(self, name: str, problem: str, expected: str) -> None:
        self.name = name
        super().__init__(f"{name} {problem}; set it to {expected}")


def _raw(name: str) -> str | None:
    """The variable's text, None when it is unset or blank (an empty line in an env file means "not set")."""
    text = os.environ.get(name, "").strip()
    return text or None


@overload
def envstr(name: str, *, expected: str, default: str) -> str: ...
@overload
def envstr(name: str, *, expected: str, default: None = None) -> str: ...
def envstr(name: str, *, expected: str, default: str | None = None) -> str:
    """Text of a variable. Without a default the variable is required (raises BadSetting)."""
    text = _raw(name)
    if text is not None:
        return text
    if default is None:
        raise BadSetting(name, "is not set", expected)
    return default


def envbool(name: str, *, default: bool) -> bool:
    """yes/no, true/false, on/off or 1/0 in any case. Anything else raises BadSetting."""
    text = _raw(name)
    if text is None:
        return default
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise BadSetting(name, f"is {text!r}, which is neither true nor false", "yes or no")


def envint(name: str, *, default: int, minimum: int, maximum: int) -> int:
    """A whole number in [minimum, maximum]; anything else raises BadSetting."""
    text = _raw(name)
    if text is None:
        return default
    expected = f"a whole number from {minimum} to {maximum}"
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise BadSetting(name, f"is {text!r}, which is not a whole number", expected)
    value = int(text)
    if not minimum <= value <= maximum:
        raise BadSetting(name, f"is {value}, which is out of range", expected)
    return value


def envchoice(name: str, *, default: str, choices: Sequence[str]) -> str:
    """One of ``choices``, compared without case; anything else raises BadSetting."""
    text = _raw(name)
    if text is None:
        return default
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise BadSetting(name, f"is {text!r}, which is not a choice", "one of " + ", ".join(choices))


def envlist(name: str) -> list[str]:
    """Comma-separated items, blanks dropped; an unset variable is an empty list."""
    return [item for item in (part.strip() for part in (_raw(name) or "").split(",")) if item]


def envpath(name: str, *, default: Path) -> Path:
    """An absolute folder or file path (``~`` is expanded); a relative one raises BadSetting."""
    text = _raw(name)
    if text is None:
        return default
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise BadSetting(name, f"is {text!r}, which is a relative path", "an absolute path, like /srv/spadework")
    return path


def parse_url(name: str, text: str, *, schemes: Sequence[str], example: str) -> SplitResult:
    """Split a URL that came from variable ``name``; a bad scheme, port or shape raises BadSetting without its text."""
    expected = f"a URL like {example}"
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for a port that is no number or above 65535
    except ValueError as error:
        raise BadSetting(name, f"is not a URL ({error})", expected) from error
    if parts.scheme not in schemes:
        raise BadSetting(name, f"has the scheme {parts.scheme!r}, not one of {', '.join(schemes)}", expected)
    return parts


def envurl(name: str, *, schemes: Sequence[str], example: str, default: str | None = None) -> SplitResult:
    """A URL with one of ``schemes``. Without a default the variable is required. Raises BadSetting."""
    text = (
        envstr(name, expected=f"a URL like {example}")
        if default is None
        else envstr(name, expected="", default=default)
    )
    return parse_url(name, text, schemes=schemes, example=example)


def parse_origin(name: str, text: str) -> SplitResult:
    """A web origin: scheme and host, maybe a port, nothing else. Raises BadSetting."""
    example = "https://spadework.example.org or http://127.0.0.1:8000"
    parts = parse_url(name, text, schemes=("http", "https"), example=example)
    if not parts.hostname:
        raise BadSetting(name, f"is {text!r}, which names no host", f"a URL like {example}")
    if parts.username or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise BadSetting(name, f"is {text!r}, which has more than scheme, host and port", f"a URL like {example}")
    if "*" in parts.hostname:
        raise BadSetting(name, f"is {text!r}, which has a wildcard", f"a URL like {example}")
    return parts


def _check_secret_strength(name: str, secret: str) -> str:
    expected = f"at least {SECRET_MIN_CHARACTERS} random characters (python -c 'import secrets; print(secrets.token_urlsafe(48))')"
    if len(secret) < SECRET_MIN_CHARACTERS:
        raise BadSetting(name, f"is weak: {len(secret)} characters", expected)
    if len(set(secret)) < SECRET_MIN_DISTINCT:
        raise BadSetting(name, f"is weak: only {len(set(secret))} different characters", expected)
    if _SECRET_PLACEHOLDERS.search(secret):
        raise BadSetting(name, "is weak: it looks like a placeholder from a manual", expected)
    return secret


def envsecret(name: str, *, file_name: str) -> str:
    """A secret, from the file that ``file_name`` points to or else from ``name`` itself; never shown in messages.

    Raises BadSetting when neither is set, the file cannot be read, others may read the file, or the secret is weak.
    """
    file_text = _raw(file_name)
    if file_text is None:
        secret = envstr(name, expected=f"a random secret, or {file_name} to a file holding one (mode 0600)")
        return _check_secret_strength(name, secret)
    path = envpath(file_name, default=Path(file_text))
    expected = "the path of a file holding the secret, mode 0600"
    try:
        mode = path.stat().st_mode
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise BadSetting(file_name, f"points to {path}, which cannot be read ({reason})", expected) from error
    if mode & 0o007:
        raise BadSetting(file_name, f"points to {path}, which everybody on this machine can read", expected)
    return _check_secret_strength(file_name, secret)
