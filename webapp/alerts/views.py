"""Pages of alerts and webhooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.alerts import selectors, services
from webapp.alerts.forms import WebhookForm
from webapp.alerts.models import Kind
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.core.requests import signed_in_user
from webapp.runs.errors import ActRefused
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run

ACTS: dict[str, Callable[..., Any]] = {
    "test": services.test_webhook,
    "enable": services.enable_webhook,
    "disable": services.disable_webhook,
    "delete": services.delete_webhook,
}
_DONE = {"test": "A test is on its way; its outcome is listed below.", "delete": "The webhook is deleted."}


def _menus(request: HttpRequest) -> dict[str, Any]:
    words = dict(Kind.choices)
    menus = (
        FilterMenu(name="kind", label="kind", values=Kind.values, words=words),
        FilterMenu(name="attempts", label="attempts", values=selectors.ATTEMPTS),
    )
    return {
        "menus": [menu.bound(request.GET) for menu in menus], "chips": chosen_chips(request.GET, ("kind", "attempts"), words)
    }  # fmt: skip


def _chosen(request: HttpRequest) -> dict[str, Any]:
    return {
        "kind": request.GET.get("kind", ""), "attempts": request.GET.get("attempts", ""), "cursor": request.GET.get("after", "")
    }  # fmt: skip


@require_role(Role.VIEWER)
@require_safe
def alert_list(request: HttpRequest) -> HttpResponse:
    """Alerts of all runs, newest first."""
    page = selectors.list_alerts(**_chosen(request))
    return render(request, "alerts/list.html", {"page": page, **_menus(request)})


@require_role(Role.VIEWER)
@require_safe
def run_alerts(request: HttpRequest, run_id: int) -> HttpResponse:
    """Alerts of one run, newest first."""
    run = access_run(run_id=run_id)
    page = selectors.list_alerts(run=run, **_chosen(request))
    return render(request, "alerts/run.html", dict(run_context(request, run, "alerts", page=page, **_menus(request))))


@require_role(Role.OPERATOR)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def webhooks(request: HttpRequest) -> HttpResponse:
    """All webhooks with a form for a new one; the answer to the form shows its secret, once."""
    form = WebhookForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            webhook, secret = services.create_webhook(actor=signed_in_user(request), **form.cleaned_data)
            return render(request, "alerts/webhook_created.html", {"webhook": webhook, "secret": secret})
        except ActRefused as error:
            form.add_error("url", str(error))
    context = {"webhooks": selectors.list_webhooks(), "form": form}
    return render(request, "alerts/webhooks.html", context, status=422 if form.errors else 200)


@require_role(Role.OPERATOR)
@require_safe
def webhook(request: HttpRequest, webhook_id: int) -> HttpResponse:
    """One webhook and its deliveries."""
    found = selectors.access_webhook(webhook_id=webhook_id)
    page = selectors.deliveries_of(webhook=found, cursor=request.GET.get("after", ""))
    kinds = [Kind(kind).label for kind in found.kinds if kind in Kind.values]
    return render(request, "alerts/webhook.html", {"webhook": found, "page": page, "kinds": kinds})


@require_role(Role.OPERATOR)
@require_POST
def webhook_act(request: HttpRequest, webhook_id: int, act: str) -> HttpResponse:
    """Test, switch on or off, delete."""
    found, service = selectors.access_webhook(webhook_id=webhook_id), ACTS.get(act)
    if service is None:
        raise Http404("There is no such act.")
    try:
        service(actor=signed_in_user(request), webhook_id=found.pk)
        messages.success(request, _DONE.get(act, f"{found.name} is switched {'on' if act == 'enable' else 'off'}."))
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect("alerts:webhooks") if act == "delete" else redirect("alerts:webhook", found.pk)
