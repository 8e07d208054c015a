"""Filters for text that people or models wrote."""

from __future__ import annotations

from collections.abc import Mapping

from django import template
from django.utils.safestring import SafeString

from webapp.core.hostile import plain as plain_text
from webapp.core.hostile import visible

register = template.Library()


@register.filter
def hostile(text: object) -> SafeString:
    """Model output as safe HTML, invisible characters marked. None is empty."""
    return visible("" if text is None else str(text))


@register.filter
def plain(text: object) -> str:
    """Model output for an attribute or a heading: one string, invisible characters spelled out."""
    return plain_text("" if text is None else str(text))


@register.filter
def at(values: Mapping[object, object], key: object) -> object:
    """The value of a key, None where there is none."""
    return values.get(key)


@register.filter
def dash(value: object) -> object:
    """The value, or "–" for None and empty text. Zero stays zero."""
    return "–" if value is None or value == "" else value
