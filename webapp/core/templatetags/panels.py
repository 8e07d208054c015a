"""``{% panels "environment_side" environment %}``: what other features show at a place of this page (core/panels.py)."""

from __future__ import annotations

from typing import Any

from django import template
from django.template import Context
from django.utils.safestring import SafeString

from webapp.core.panels import render_place

register = template.Library()


@register.simple_tag(takes_context=True)
def panels(context: Context, place: str, subject: Any) -> SafeString:
    """Everything shown at ``place`` about ``subject``."""
    return render_place(place, context["request"], subject)
