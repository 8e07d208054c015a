"""What trying shows on the pages of checkpoints (see core/panels.py)."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from webapp.runs.models import Checkpoint


def try_button(request: HttpRequest, checkpoint: Checkpoint) -> SafeString:
    """The way to the page where the checkpoint is tried."""
    return render_to_string("trying/_button.html", {"checkpoint": checkpoint}, request=request)
