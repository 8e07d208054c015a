"""One's own API tokens."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts import selectors, services_tokens
from webapp.accounts.forms import TokenForm
from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.accounts.services_tokens import TokenRefused
from webapp.core.requests import signed_in_user

_SHOWN = 200


@require_role(Role.VIEWER)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """The list with a form for a new one; the answer to the form shows the token, once."""
    user = signed_in_user(request)
    form = TokenForm(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            token, text = services_tokens.create_token(actor=user, **form.cleaned_data)
            return render(request, "accounts/token_created.html", {"token": token, "text": text})
        except TokenRefused as error:
            form.add_error(None, str(error))
    now = timezone.now()
    rows = [(token, token.state_at(now)) for token in selectors.tokens_of(user=user, limit=_SHOWN)]
    return render(request, "accounts/tokens.html", {"form": form, "rows": rows}, status=422 if form.errors else 200)


@require_role(Role.VIEWER)
@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """End one of one's own tokens."""
    try:
        token = services_tokens.revoke_token(actor=signed_in_user(request), token_id=pk)
        messages.success(request, f"The token {token.name} is revoked.")
    except TokenRefused as error:
        messages.error(request, str(error))
    return redirect("accounts:tokens")
