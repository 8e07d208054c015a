"""Disk use, and how long what is kept."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.environments.jobs import send_plain
from webapp.keeping.disk import list_use, totals
from webapp.keeping.forms import RetentionForm
from webapp.keeping.services import MEASURE_TASK, RetentionPlan, hold_retention, plan_retention
from webapp.runs.retention import removal_of, restore_days, retention


@require_role(Role.VIEWER)
@require_safe
def disk(request: HttpRequest) -> HttpResponse:
    """What each run takes, the largest first, and all together."""
    page = list_use(cursor=request.GET.get("after", ""))
    largest = page.rows[0].total_bytes if page.rows else 0
    rows = [{"use": use, "share": use.total_bytes / largest if largest else None} for use in page.rows]
    return render(request, "keeping/disk.html", {"page": page, "rows": rows, "totals": totals()})


@require_role(Role.OPERATOR)
@require_POST
def measure(request: HttpRequest) -> HttpResponse:
    """Have a worker measure what is due."""
    send_plain(MEASURE_TASK)
    messages.success(request, "A worker measures runs whose figures are missing or old; reload this page in a moment.")
    return redirect("keeping:disk")


@require_role(Role.ADMIN)
@require_http_methods(["GET", "HEAD", "POST"])
def retention_page(request: HttpRequest) -> HttpResponse:
    """The settings. A change that removes something is shown with what it removes, and holds when that is confirmed."""
    form = RetentionForm(request.POST or None, instance=retention())
    plan: RetentionPlan | None = None
    if request.method == "POST" and form.is_valid():
        plan = plan_retention(wanted=form.save(commit=False))
        if hold_retention(actor=signed_in_user(request), plan=plan, confirmed=request.POST.get("confirmed", "")):
            messages.success(request, "The settings hold from now on. What they remove goes within the hour.")
            return redirect("keeping:retention")
    context = {
        "form": form, "plan": plan and plan.removal, "digest": plan.digest if plan else "",
        "now": removal_of(retention()), "days": restore_days(),
        "has_changed": bool(request.POST.get("confirmed")),
    }  # fmt: skip
    return render(request, "keeping/retention.html", context, status=422 if form.errors else 200)
