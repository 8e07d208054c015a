"""The Log tab: the end of what a run or one of its attempts printed, lines with a text in all of it, and both as files."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.runs.logsearch import find_lines
from webapp.runs.logtail import log_path, parts_of, pieces_of, read_tail
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run
from webapp.runs.storable import storable_text


@require_role(Role.VIEWER)
@require_safe
def log(request: HttpRequest, run_id: int) -> HttpResponse:
    """The end of what the trainer printed (htmx asks again while the run is active), or the lines that have ``?find=``."""
    run = access_run(run_id=run_id)
    find = storable_text(request.GET.get("find", "").strip())[:200]
    parts = parts_of(run=run)
    part = next((one for one in parts if str(one.attempt) == request.GET.get("attempt")), None)
    chosen: dict[str, Any] = {"attempt": part.attempt} if part else {}
    names = [("all of it", None), *((f"attempt {one.attempt}", one.attempt) for one in parts)]
    context = run_context(
        request, run, "log", tail=None if find else read_tail(run=run, part=part), log_removed=_log_removed(run), find=find, part=part,
        found=find_lines(run=run, text=find, part=part) if find else None, query=urlencode(chosen),
        parts=[
            {
                "label": label,
                "url": "?" + urlencode({**({"attempt": number} if number else {}), **({"find": find} if find else {})}),
                "active": number == (part.attempt if part else None),
            }
            for label, number in names
        ]
        if parts
        else [],
    )  # fmt: skip
    return render(request, "runs/_log.html" if request.headers.get("HX-Request") else "runs/log.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def log_file(request: HttpRequest, run_id: int) -> StreamingHttpResponse:
    """The log as it was printed: all of it, or one attempt's (``?attempt=``)."""
    run = access_run(run_id=run_id)
    path = log_path(run)
    if path is None:
        raise Http404(
            f"The log of this run was removed by retention on {run.log_removed_at:%Y-%m-%d}."
            if run.log_removed_at
            else "This run has printed nothing yet."
        )
    asked = request.GET.get("attempt", "")
    part = next((one for one in parts_of(run=run) if str(one.attempt) == asked), None)
    if asked and part is None:
        raise Http404("The log does not say which lines are of that attempt.")
    name = f"run-{run.pk}-attempt-{part.attempt}-log.txt" if part else f"run-{run.pk}-log.txt"
    response = StreamingHttpResponse(pieces_of(path, part), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _log_removed(run: Run) -> str:
    at = run.log_removed_at
    return f"On {at:%-d %B %Y}, for good. The state of the run, its events and its charts are all here." if at else ""
