"""The taxonomy, for admins."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.review import selectors, services_kinds
from webapp.review.errors import ReviewRefused
from webapp.review.forms import KindForm
from webapp.review.models import FlagKind

_ACTS = {"retire": services_kinds.retire_kind, "restore": services_kinds.restore_kind}


@require_role(Role.ADMIN)
@require_safe
def kinds(request: HttpRequest) -> HttpResponse:
    """Every kind of flag and how often it was used."""
    return render(request, "review/kinds.html", {"kinds": selectors.all_kinds()})


@require_role(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def kind(request: HttpRequest, kind_id: int | None = None) -> HttpResponse:
    """Add a kind, or reword one."""
    found = None if kind_id is None else FlagKind.objects.filter(pk=kind_id).first()
    if kind_id is not None and found is None:
        raise Http404("There is no such kind of flag.")
    initial = {"label": found.label, "description": found.description} if found else None
    form = KindForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        actor, values = signed_in_user(request), form.cleaned_data
        try:
            if found is None:
                done = services_kinds.add_kind(actor=actor, **values)
            else:
                done = services_kinds.reword_kind(actor=actor, kind_id=found.pk, **values)
        except ReviewRefused as error:
            form.add_error("label", str(error))
        else:
            messages.success(request, f"{done.label} is in the list.")
            return redirect("review:kinds")
    return render(request, "review/kind.html", {"form": form, "kind": found})


@require_role(Role.ADMIN)
@require_POST
def kind_act(request: HttpRequest, kind_id: int, act: str) -> HttpResponse:
    """Retire or restore a kind."""
    service = _ACTS.get(act)
    if service is None:
        raise Http404("There is no such act.")
    try:
        done = service(actor=signed_in_user(request), kind_id=kind_id)
        messages.success(request, f"{done.label} is {'retired' if done.retired_at else 'offered again'}.")
    except ReviewRefused as error:
        messages.error(request, str(error))
    return redirect("review:kinds")
