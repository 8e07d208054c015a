"""A checkpoint's archive as an answer, whole or the piece that a broken download still wants. Pages and API send it alike."""

from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.core.views import out_of_range
from webapp.runs.checkpoint_files import CheckpointArchive, Part, open_archive
from webapp.runs.models import Run

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
CONTENT_TYPE = "application/x-tar"


def send_archive(request: HttpRequest, *, actor: User, run: Run, name: str, part: Part) -> HttpResponseBase:
    """The archive, or what ``Range`` asks of it: 200, 206, or 416 in words when it begins behind the end. Raises ActRefused.

    A piece that starts at the beginning is written into the audit log.
    """
    archive = open_archive(run=run, name=name, part=part)
    if request.method == "HEAD":
        archive.close()
        return _headers(HttpResponse(content_type=CONTENT_TYPE), archive, archive.size)
    asked = _asked(request, archive)
    if asked is None:
        archive.close()
        return out_of_range(request, size_bytes=archive.size)
    start, end = asked
    if start == 0:
        record(
            actor=actor,
            action="checkpoint.downloaded",
            target=run,
            detail={"checkpoint": name, "part": part},
        )
    response = StreamingHttpResponse(archive.pieces(start, end), content_type=CONTENT_TYPE)
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
