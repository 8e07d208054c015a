"""What runs' own pages show about their corpus."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from webapp.corpora.selectors import corpus_of_run


def of_run(request: HttpRequest, run: Any) -> SafeString:
    """A line that says from which corpus the run draws, with the way there."""
    settings = run.config.get("corpus") or {}
    if not settings.get("enabled", True):
        return SafeString("")
    context = {"corpus": corpus_of_run(run=run), "source": settings.get("source", "")}
    return render_to_string("corpora/_of_run.html", context, request=request)
