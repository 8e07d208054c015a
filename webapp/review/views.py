"""Flags: placing, withdrawing, their effects, and the list of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.chips import FilterMenu, chosen_chips
from webapp.core.requests import signed_in_user
from webapp.environments.models import Environment
from webapp.environments.views import number_in
from webapp.episodes.models import Episode
from webapp.review import selectors, services
from webapp.review.errors import ReviewRefused
from webapp.review.forms import FlagForm
from webapp.review.models import Flag
from webapp.review.panels import list_context
from webapp.review.selectors import SEVERITIES, STATES, FlagFilter


@require_role(Role.VIEWER)
@require_safe
def environment_flags(request: HttpRequest, environment_id: int) -> HttpResponse:
    """The flags of an environment, or with ``?episode=`` of one of its episodes, as a fragment for live pages."""
    environment = selectors.access_environment(environment_id=environment_id)
    number = number_in(request.GET, "episode")
    episode = None if number is None else Episode.objects.filter(pk=number, environment=environment).first()
    if number is not None and episode is None:
        raise Http404("There is no such episode of this environment.")
    return render(request, "review/_flags.html", list_context(request, environment, episode))


@require_role(Role.REVIEWER)
@require_POST
def place_flag(request: HttpRequest, environment_id: int) -> HttpResponse:
    """Flag something of an environment; goes back to the page it was seen on."""
    environment = selectors.access_environment(environment_id=environment_id)
    form = FlagForm(request.POST)
    if not form.is_valid():
        messages.error(request, f"Not flagged. {form.problem()}")
        return _back(request, environment)
    wish = form.chosen_wish()

    def place() -> str:
        flag = services.place_flag(
            actor=signed_in_user(request),
            environment_id=environment.pk,
            kind_id=form.cleaned_data["kind"],
            subject=form.cleaned_data["subject"],
            pointer=form.pointer(),
            severity=form.cleaned_data["severity"],
            comment=form.cleaned_data["comment"],
            wish=wish,
        )
        if wish.act == Flag.NOTE or flag.effect is not None:
            return "Flagged."
        return f"Flagged. An {services.EFFECT_ROLE.value} decides about the {flag.get_wish_display()}."

    return _attempt(request, environment, place)


@require_role(Role.REVIEWER)
@require_POST
def withdraw_flag(request: HttpRequest, flag_id: int) -> HttpResponse:
    """Take a flag back, and the effect only it held."""
    flag = selectors.access_flag(flag_id=flag_id)

    def withdraw() -> str:
        reason = request.POST.get("reason", "")
        services.withdraw_flag(actor=signed_in_user(request), flag_id=flag_id, reason=reason)
        return "The flag was withdrawn."

    return _attempt(request, flag.environment, withdraw)


@require_role(Role.OPERATOR)
@require_POST
def put_into_effect(request: HttpRequest, flag_id: int) -> HttpResponse:
    """Carry out what a reviewer proposed."""
    flag = selectors.access_flag(flag_id=flag_id)

    def put() -> str:
        effect = services.put_into_effect(actor=signed_in_user(request), flag_id=flag_id)
        return f"{effect.get_act_display().capitalize()}: this page shows what the trainer answers."

    return _attempt(request, flag.environment, put)


@require_role(Role.OPERATOR)
@require_POST
def undo_effect(request: HttpRequest, effect_id: int) -> HttpResponse:
    """Take an effect back; its flags stay as notes."""
    effect = selectors.access_effect(effect_id=effect_id)

    def undo() -> str:
        reason = request.POST.get("reason", "")
        services.undo_effect(actor=signed_in_user(request), effect_id=effect_id, reason=reason)
        return f"The {effect.get_act_display()} is undone as soon as the trainer says so."

    return _attempt(request, effect.environment, undo)


@require_role(Role.VIEWER)
@require_safe
def flag_list(request: HttpRequest) -> HttpResponse:
    """Every flag, newest first; filters are in the address."""
    chosen = filter_in(request)
    page, shown = selectors.list_flags(
        chosen=chosen, reader=signed_in_user(request), cursor=request.GET.get("after", "")
    )
    kinds = {kind.key: kind.label for kind in selectors.all_kinds()}
    words = {**kinds, **STATES}
    menus = [
        FilterMenu(name="kind", label="kind", values=list(kinds), words=kinds),
        FilterMenu(name="severity", label="severity", values=list(SEVERITIES)),
        FilterMenu(name="state", label="state", values=list(STATES), words=STATES),
        FilterMenu(name="subject", label="about", values=Flag.Subject.values),
    ]
    context = {
        "page": page, "shown": shown, "menus": [menu.bound(request.GET) for menu in menus],
        "chips": chosen_chips(request.GET, ("kind", "severity", "state", "subject", "run", "skill", "by"), words),
    }  # fmt: skip
    return render(request, "review/flags.html", context)


def filter_in(request: HttpRequest) -> FlagFilter:
    """The list's filter of an address. Raises BadRequest."""
    query = request.GET
    return FlagFilter(
        kind=query.get("kind", ""), severity=query.get("severity", ""), state=query.get("state", ""), subject=query.get("subject", ""),
        run=number_in(query, "run"), skill=query.get("skill", ""), by=query.get("by", ""),
    )  # fmt: skip


def _attempt(request: HttpRequest, environment: Environment, act: Callable[[], str]) -> HttpResponse:
    """Do it, say what happened, go back."""
    try:
        messages.success(request, act())
    except ReviewRefused as error:
        messages.error(request, str(error))
    return _back(request, environment)


def _back(request: HttpRequest, environment: Environment) -> HttpResponse:
    """To the page of ours the form was on, else to the environment."""
    address = request.POST.get("back", "")
    if url_has_allowed_host_and_scheme(address, allowed_hosts=None):
        return redirect(address)
    arguments: list[Any] = [environment.run_id, environment.key]
    attempt = f"?attempt={environment.attempt}" if environment.superseded else ""
    return redirect(f"{reverse('runs:environment', args=arguments)}{attempt}")
