"""Signing in and out, one-time links, one's own profile."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth import logout as end_session
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts import services
from webapp.accounts.forms import ChangePasswordForm, LoginForm, NewPasswordForm, ThemeForm
from webapp.accounts.links import LinkNotUsable, find_link
from webapp.accounts.models import OneTimeLink, User
from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.problems import problem_response, reads_json
from webapp.core.requests import signed_in_user

LOCKED_MINUTES = round(60 * settings.AXES_COOLOFF_TIME)
_BACKEND = "django.contrib.auth.backends.ModelBackend"


@method_decorator(login_not_required, name="dispatch")
class Login(LoginView):
    """Name and password; django-axes counts failures."""

    template_name = "accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True


def locked_out(request: HttpRequest, response: object, credentials: object) -> HttpResponse:
    """What django-axes answers after too many failures."""
    if reads_json(request):
        detail = (
            f"Signing in under this name from this address is blocked for {LOCKED_MINUTES} minutes after the last failed "
            "attempt. A one-time link from an admin works at once."
        )
        return problem_response(request, status=429, code="throttled", detail=detail)
    return render(request, "accounts/locked.html", {"minutes": LOCKED_MINUTES}, status=429)


@require_POST
@login_not_required
def logout(request: HttpRequest) -> HttpResponse:
    """End the session. POST only, so that no foreign page or image can do it."""
    end_session(request)
    return redirect("accounts:login")


@login_not_required
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def link(request: HttpRequest, token: str) -> HttpResponse:
    """A one-time link. Looking (GET) uses nothing up, because chat programs and browsers fetch links ahead; POST does."""
    try:
        found = find_link(token=token)
        if found.purpose == OneTimeLink.Purpose.LOGIN:
            return _sign_in(request, found, token)
        return _set_first_password(request, found, token)
    except LinkNotUsable:
        return render(request, "accounts/link_gone.html", status=410)


def _sign_in(request: HttpRequest, found: OneTimeLink, token: str) -> HttpResponse:
    if request.method != "POST":
        return render(request, "accounts/link_login.html", {"link": found})
    user = services.sign_in_by_link(token=token)
    login(request, user, backend=_BACKEND)
    return redirect("home")


def _set_first_password(request: HttpRequest, found: OneTimeLink, token: str) -> HttpResponse:
    form = NewPasswordForm(found.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = services.set_password_by_link(token=token, password=form.cleaned_data["new_password1"])
        login(request, user, backend=_BACKEND)
        return redirect("home")
    return render(request, "accounts/link_password.html", {"link": found, "form": form})


def _password_form(user: User, data: object = None) -> ChangePasswordForm | NewPasswordForm:
    if user.has_usable_password():
        return ChangePasswordForm(user, data)
    return NewPasswordForm(user, data)


@require_role(Role.VIEWER)
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """One's own name, role, theme and password."""
    user = signed_in_user(request)
    form = _password_form(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        services.change_password(user=user, password=form.cleaned_data["new_password1"])
        update_session_auth_hash(request, user)
        messages.success(request, "Password set. Your other sessions are signed out.")
        return redirect("accounts:profile")
    return render(request, "accounts/profile.html", {"form": form, "themes": User.Theme.choices})


@require_role(Role.VIEWER)
@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Keep the chosen theme: the shell's theme button calls this in the background, the profile page as a form."""
    form = ThemeForm(request.POST)
    if not form.is_valid():
        raise BadRequest("The theme is system, light or dark.")
    services.set_theme(user=signed_in_user(request), theme=form.chosen_theme())
    if request.headers.get("X-Requested-With") == "fetch":
        return HttpResponse(status=204)
    return redirect("accounts:profile")
