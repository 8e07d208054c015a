"""Pages for admins: people, invitations, the audit log."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts import selectors, services
from webapp.accounts.forms import InviteForm, RoleForm
from webapp.accounts.models import User
from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.pagination import keyset_page
from webapp.core.requests import signed_in_user

_AUDIT_PAGE_ROWS = 50


@require_role(Role.ADMIN)
@require_safe
def users(request: HttpRequest) -> HttpResponse:
    """Everybody."""
    return render(request, "accounts/users.html", {"people": selectors.list_users()})


@require_role(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def invite(request: HttpRequest) -> HttpResponse:
    """Invite a person; the answer shows their one-time link, once."""
    form = InviteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            person, address = services.invite(
                actor=signed_in_user(request),
                username=form.cleaned_data["username"],
                email=form.cleaned_data["email"],
                role=form.chosen_role(),
            )
        except services.NameTaken as error:
            form.add_error("username", f"{error}.")
        else:
            return render(
                request, "accounts/link_created.html", {"person": person, "address": address, "invited": True}
            )
    return render(request, "accounts/invite.html", {"form": form})


@require_role(Role.ADMIN)
@require_safe
def user(request: HttpRequest, pk: int) -> HttpResponse:
    """One person: role, links, deactivation, and what was done to them and by them."""
    person = get_object_or_404(User, pk=pk)
    entries = selectors.audit_of_user(user=person, limit=20)
    form = RoleForm(initial={"role": person.role.value if person.role else Role.VIEWER.value})
    return render(request, "accounts/user.html", {"person": person, "form": form, "entries": entries})


@require_role(Role.ADMIN)
@require_POST
def change_role(request: HttpRequest, pk: int) -> HttpResponse:
    """Give a person another role."""
    person = get_object_or_404(User, pk=pk)
    form = RoleForm(request.POST)
    if not form.is_valid():
        messages.error(request, "That is not a role.")
    else:
        try:
            services.set_role(actor=signed_in_user(request), user=person, role=form.chosen_role())
            messages.success(request, f"{person.username} is now {form.chosen_role().value}.")
        except services.LastAdmin as error:
            messages.error(request, f"Not changed: {error}.")
    return redirect("accounts:user", pk=pk)


@require_role(Role.ADMIN)
@require_POST
def password_link(request: HttpRequest, pk: int) -> HttpResponse:
    """A new invitation or password-reset link; the answer shows it, once."""
    person = get_object_or_404(User, pk=pk, is_active=True)
    invited = person.state == "invited"
    address = services.create_password_link(actor=signed_in_user(request), user=person)
    return render(request, "accounts/link_created.html", {"person": person, "address": address, "invited": invited})


@require_role(Role.ADMIN)
@require_POST
def deactivate(request: HttpRequest, pk: int) -> HttpResponse:
    """Shut a person out."""
    person = get_object_or_404(User, pk=pk)
    try:
        services.deactivate(actor=signed_in_user(request), user=person)
        messages.success(request, f"{person.username} is signed out and cannot sign in.")
    except services.LastAdmin as error:
        messages.error(request, f"Not deactivated: {error}.")
    return redirect("accounts:user", pk=pk)


@require_role(Role.ADMIN)
@require_POST
def reactivate(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a person in again."""
    person = get_object_or_404(User, pk=pk)
    services.reactivate(actor=signed_in_user(request), user=person)
    messages.success(request, f"{person.username} can sign in again.")
    return redirect("accounts:user", pk=pk)


@require_role(Role.ADMIN)
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """What people did, newest first."""
    page = keyset_page(
        selectors.audit_entries(), order=("-at", "-id"), cursor=request.GET.get("after", ""), size=_AUDIT_PAGE_ROWS
    )
    return render(request, "accounts/audit.html", {"page": page})
