"""Choosing a run directory below the import folder, and how its import goes."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.keeping import selectors, services
from webapp.keeping.folders import import_root, list_folder
from webapp.runs.errors import ActRefused
from webapp.runs.import_copy import Copying


@require_role(Role.OPERATOR)
@require_http_methods(["GET", "HEAD", "POST"])
def imports(request: HttpRequest) -> HttpResponse:
    """The folders below the import folder (``?path=``), and what was imported. A POST asks for an import."""
    path = (request.POST if request.method == "POST" else request.GET).get("path", "")
    if request.method == "POST":
        return _request(request, path)
    problem, listing = "", None
    try:
        listing = list_folder(path=path)
    except ActRefused as error:
        problem = str(error)
    context = {
        "listing": listing, "problem": problem, "root": import_root(), "is_root_there": import_root().is_dir(),
        "page": selectors.list_imports(cursor=request.GET.get("after", "")),
        "copyings": Copying.choices, "path": path,
    }  # fmt: skip
    return render(request, "keeping/imports.html", context, status=400 if problem and path else 200)


def _request(request: HttpRequest, path: str) -> HttpResponse:
    data = request.POST
    try:
        job = services.request_import(
            actor=signed_in_user(request), path=path, name=data.get("name", ""),
            copying=data.get("copying", Copying.NOTHING), accept_damage="damaged" in data,
        )  # fmt: skip
    except ActRefused as error:
        messages.error(request, str(error))
        return redirect(f"{reverse('keeping:imports')}?{urlencode({'path': path[:1000]})}")
    return redirect("keeping:import", job.pk)


@require_role(Role.OPERATOR)
@require_safe
def import_page(request: HttpRequest, job_id: int) -> HttpResponse:
    """How one import goes; the part that changes alone for htmx."""
    job = selectors.access_import(job_id=job_id)
    name = "keeping/_import.html" if request.headers.get("HX-Request") else "keeping/import.html"
    return render(request, name, {"job": job})
