"""Checkpoints of a run: the list with the best one marked, and their download."""

from __future__ import annotations

import re

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from webapp.accounts.audit import record
from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.runs import selectors
from webapp.runs.checkpoint_files import CheckpointArchive, best_metric, open_archive, stored_checkpoints
from webapp.runs.errors import ActRefused
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")


@require_role(Role.VIEWER)
@require_safe
def checkpoints(request: HttpRequest, run_id: int) -> HttpResponse:
    """Checkpoints and attempts."""
    run = access_run(run_id=run_id)
    page = selectors.checkpoints_of(run=run, cursor=request.GET.get("after", ""))
    stored = stored_checkpoints(run=run)
    shown: set[str] = set()
    rows = []
    for row in page.rows:  # a name may have been saved by several attempts; the newest one is what is on the disk
        there = stored.get(row.name) if row.name not in shown else None
        shown.add(row.name)
        rows.append({"checkpoint": row, "stored": there})
    context = run_context(
        request, run, "checkpoints",
        page=page, rows=rows, attempts=selectors.attempts_of(run=run), best_metric=best_metric(run),
        has_best=any(one.is_best for one in stored.values()),
    )  # fmt: skip
    return render(request, "runs/checkpoints.html", dict(context))


@require_role(Role.OPERATOR)
@require_safe
def download(request: HttpRequest, run_id: int, name: str, part: str) -> HttpResponseBase:
    """A checkpoint as a tar: ``model`` for the Hugging Face directory, ``all`` with the optimiser. Takes ``Range`` for going on."""
    run = access_run(run_id=run_id)
    if part not in ("model", "all"):
        raise Http404("A checkpoint is downloaded as model or all.")
    try:
        archive = open_archive(run=run, name=name, part="model" if part == "model" else "all")
    except ActRefused as error:
        messages.error(request, str(error))
        return redirect("runs:checkpoints", run.pk)
    if request.method == "HEAD":
        archive.close()
        return _headers(HttpResponse(content_type="application/x-tar"), archive, archive.size)
    asked = _asked(request, archive)
    if asked is None:
        archive.close()
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{archive.size}"})
    start, end = asked
    if start == 0:
        record(
            actor=signed_in_user(request),
            action="checkpoint.downloaded",
            target=run,
            detail={"checkpoint": name, "part": part},
        )
    response = StreamingHttpResponse(archive.pieces(start, end), content_type="application/x-tar")
    if "Range" in request.headers and (start, end) != (0, archive.size):
        response.status_code = 206
        response["Content-Range"] = f"bytes {start}-{end - 1}/{archive.size}"
    return _headers(response, archive, end - start)


def _asked(request: HttpRequest, archive: CheckpointArchive) -> tuple[int, int] | None:
    """Start and end of what is wanted: all of it without a range we serve, or when the checkpoint is another one; None if out of reach."""
    wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
    if wanted is None or request.headers.get("If-Range", archive.etag) != archive.etag:
        return 0, archive.size
    start = int(wanted[1])
    end = min(archive.size, int(wanted[2]) + 1) if wanted[2] else archive.size
    return (start, end) if start < end else None


def _headers(response: HttpResponseBase, archive: CheckpointArchive, size: int) -> HttpResponseBase:
    response["Content-Length"] = str(size)
    response["Content-Disposition"] = f'attachment; filename="{archive.file_name}"'
    response["Accept-Ranges"] = "bytes"
    response["ETag"] = archive.etag
    return response
