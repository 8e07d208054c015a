"""Reading what was imported."""

from __future__ import annotations

from django.http import Http404

from webapp.core.pagination import Page, keyset_page
from webapp.keeping.models import ImportJob

PAGE_ROWS = 20


def list_imports(*, cursor: str = "", size: int = PAGE_ROWS) -> Page[ImportJob]:
    """Newest first. Raises BadRequest for a damaged cursor."""
    return keyset_page(ImportJob.objects.select_related("by", "run"), order=("-id",), cursor=cursor, size=size)


def access_import(*, job_id: int) -> ImportJob:
    """One import. Raises Http404."""
    job = ImportJob.objects.select_related("by", "run").filter(pk=job_id).first()
    if job is None:
        raise Http404(f"There is no import {job_id}.")
    return job
