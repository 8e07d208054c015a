"""Answers that are saved, never shown: a browser must not take a download for a page."""

from __future__ import annotations

from django.http import HttpResponse


def attachment(text: str, *, name: str, kind: str) -> HttpResponse:
    """A file called ``name`` (a constant of ours or made from numbers) of media type ``kind``; lone surrogates become escapes."""
    response = HttpResponse(text.encode("utf-8", "backslashreplace"), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
