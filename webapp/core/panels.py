"""Places on one feature's pages where another feature shows something; the page's feature knows nothing about the other.

A feature fills a place from its ``AppConfig.ready``. Its folder deleted, the place is empty and the page whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.utils.safestring import SafeString, mark_safe

#: Renders what is shown about the subject of the page, as safe HTML; empty text where there is nothing to show.
Renderer = Callable[[HttpRequest, Any], SafeString]
_RENDERERS: dict[str, list[Renderer]] = {}


def fill_place(place: str, renderer: Renderer) -> None:
    """Have ``renderer`` shown at ``place``, after what is there already. Filling twice with the same one changes nothing."""
    renderers = _RENDERERS.setdefault(place, [])
    if renderer not in renderers:
        renderers.append(renderer)


def render_place(place: str, request: HttpRequest, subject: Any) -> SafeString:
    """Everything that features put there, in the order they came."""
    parts = [renderer(request, subject) for renderer in _RENDERERS.get(place, ())]
    return mark_safe("".join(parts))  # noqa: S308 - each part is safe already
