"""Checkpoints of a run: the list with the best one marked, and their download."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.runs import selectors
from webapp.runs.checkpoint_files import best_metric, files_of_rows, stored_checkpoints
from webapp.runs.checkpoint_sending import send_archive
from webapp.runs.errors import ActRefused
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run


@require_role(Role.VIEWER)
@require_safe
def checkpoints(request: HttpRequest, run_id: int) -> HttpResponse:
    """Checkpoints and attempts."""
    run = access_run(run_id=run_id)
    page = selectors.checkpoints_of(run=run, cursor=request.GET.get("after", ""))
    stored = stored_checkpoints(run=run)
    files = files_of_rows(run=run, rows=page.rows, stored=stored)
    context = run_context(
        request, run, "checkpoints",
        page=page, rows=[{"checkpoint": row, "stored": files.get(row.pk)} for row in page.rows],
        attempts=selectors.attempts_of(run=run), best_metric=best_metric(run),
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
        return send_archive(
            request, actor=signed_in_user(request), run=run, name=name, part="model" if part == "model" else "all"
        )
    except ActRefused as error:
        messages.error(request, str(error))
        return redirect("runs:checkpoints", run.pk)
