"""Judging a program again, and editing it into variants that are judged and played in the sandbox and never enter a run."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.requests import signed_in_user
from webapp.environments import selectors_play, services
from webapp.environments.models import Environment, GateRun, Variant
from webapp.environments.selectors import access_environment
from webapp.environments.views import number_in
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.selectors import access_run


@require_role(Role.REVIEWER)
@require_POST
def gates_rerun(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """Ask for the gates once more."""
    run, environment, variant = _found(request, run_id, key)
    try:
        services.rerun_gates(actor=signed_in_user(request), environment=environment, variant=variant)
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect(f"{_address(run, environment, variant)}#gate-runs")


@require_role(Role.VIEWER)
@require_safe
def gate_runs(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """The list of gate runs alone, for live updates."""
    run, environment, variant = _found(request, run_id, key)
    return render(request, "environments/_gate_runs.html", {"run": run, **gate_run_context(environment, variant)})


@require_role(Role.REVIEWER)
@require_http_methods(["GET", "HEAD", "POST"])
def variant_new(request: HttpRequest, run_id: int, key: str) -> HttpResponse:
    """Edit the program (``?variant=``: of that variant); POST stores the variant and sends it through the gates."""
    run, environment, parent = _found(request, run_id, key)
    code, note = parent.code if parent else environment.code, ""
    if request.method == "POST":
        code, note = request.POST.get("code", ""), request.POST.get("note", "")
        try:
            variant = services.create_variant(
                actor=signed_in_user(request), environment=environment, code=code, note=note, parent=parent
            )
            return redirect(_address(run, environment, variant))
        except ActRefused as error:
            messages.error(request, str(error))
    context = run_context(
        request, run, "environments", environment=environment, parent=parent, source=code, note=note,
        rows=max(16, min(60, code.count("\n") + 2)),
    )  # fmt: skip
    return render(request, "environments/variant_new.html", dict(context))


@require_role(Role.VIEWER)
@require_safe
def variant(request: HttpRequest, run_id: int, key: str, number: int) -> HttpResponse:
    """One variant: what was changed, and what the gates say."""
    run = access_run(run_id=run_id)
    environment = access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    found = selectors_play.access_variant(environment=environment, number=number)
    base = found.parent.code if found.parent else environment.code
    lines = selectors_play.diff_lines(old=base, new=found.code)
    added, removed = selectors_play.changed_counts(lines)
    context = run_context(
        request, run, "environments", diff=lines, added=added, removed=removed,
        may_review=has_role(request.user, Role.REVIEWER), **gate_run_context(environment, found),
    )  # fmt: skip
    return render(request, "environments/variant.html", dict(context))


def gate_run_context(environment: Environment, variant: Variant | None) -> dict[str, object]:
    """What ``_gate_runs.html`` shows."""
    runs = selectors_play.gate_runs_of(environment=environment, variant=variant)
    return {
        "environment": environment, "variant": variant, "gate_runs": runs,
        "is_gating": any(one.state == GateRun.State.WAITING for one in runs),
    }  # fmt: skip


def _found(request: HttpRequest, run_id: int, key: str) -> tuple[Run, Environment, Variant | None]:
    run = access_run(run_id=run_id)
    environment = access_environment(run=run, key=key, attempt=number_in(request.GET, "attempt"))
    number = number_in(request.GET, "variant")
    found = selectors_play.access_variant(environment=environment, number=number) if number is not None else None
    return run, environment, found


def _address(run: Run, environment: Environment, variant: Variant | None) -> str:
    """The page of the variant, or of the environment."""
    if variant is None:
        address = reverse("runs:environment", args=[run.pk, environment.key])
    else:
        address = reverse("runs:variant", args=[run.pk, environment.key, variant.number])
    return f"{address}?attempt={environment.attempt}" if environment.superseded else address
