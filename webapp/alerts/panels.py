"""What alerts show on the pages of runs (see core/panels.py)."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from webapp.alerts.selectors import newest_alerts
from webapp.runs.models import Run

_SHOWN = 5


def overview(request: HttpRequest, run: Run) -> SafeString:
    """The newest alerts of a run; nothing where there are none."""
    if not run.alerts:
        return SafeString("")
    context = {"run": run, "alerts": newest_alerts(run=run, limit=_SHOWN)}
    return render_to_string("alerts/_overview.html", context, request=request)
