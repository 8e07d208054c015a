"""Pages of the shell itself: home, health, error pages, the design page, licences."""

from __future__ import annotations

import logging

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template import TemplateDoesNotExist, TemplateSyntaxError, loader
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core import design, health, palette
from webapp.core.problems import problem_response, reads_json
from webapp.core.templatetags.numbers import size
from webapp.core.vendored import licences as vendored_licences

_LOG = logging.getLogger(__name__)
_PLAINEST = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Something broke · Spadework</title></head>
<body><main><h1>Something broke on our side</h1><p>The error was written to the server's log.</p></main></body></html>
"""


@require_role(Role.VIEWER)
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The list of runs; without that feature, one's profile."""
    return redirect("/runs/" if "runs" in settings.SPADEWORK_FEATURES else "accounts:profile")


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 when this process, Postgres and Valkey answer, else 503; says which. For supervisors and load balancers."""
    parts = {"database": health.database_answers(), "redis": health.redis_answers()}
    is_well = all(parts.values())
    body = {"status": "ok" if is_well else "failed", **{name: "ok" if up else "failed" for name, up in parts.items()}}
    return JsonResponse(body, status=200 if is_well else 503)


@require_role(Role.VIEWER)
@require_safe
def design_page(request: HttpRequest) -> HttpResponse:
    """Every component of the design system, with made-up content that is marked as such."""
    return render(request, "core/design.html", design.samples())


@require_role(Role.VIEWER)
@require_safe
def licences(request: HttpRequest) -> HttpResponse:
    """What other people's work this product ships to the browser, and under which licence."""
    return render(request, "core/licences.html", {"packages": vendored_licences()})


@require_role(Role.VIEWER)
@require_safe
def palette_list(request: HttpRequest) -> HttpResponse:
    """The list of the command palette, a fragment: ``?q=`` what was typed, ``?run=`` the run on whose page."""
    asked = palette.asked_of(request.GET)
    found = palette.find(request=request, asked=asked)
    return render(request, "core/_palette.html", {"found": found, "asked": asked})


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form came without a valid token: cookies are off, the page is old, or another site sent it."""
    if reads_json(request):
        detail = "This came without a valid CSRF token. Load the page again and repeat it, or use an API token."
        return problem_response(request, status=403, code="forbidden", detail=detail)
    return render(request, "errors/csrf.html", {"reason": reason}, status=403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400; 413 when the fields of a form are larger than they may be."""
    if isinstance(exception, RequestDataTooBig):
        return too_large(request, limit_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE, setting="")
    if reads_json(request):
        return problem_response(
            request, status=400, code="invalid-request", detail=_reason(exception) or "Bad request."
        )
    return render(request, "errors/400.html", {"reason": _reason(exception)}, status=400)


def method_not_allowed(request: HttpRequest, *, allowed: str) -> HttpResponse:
    """405: most often an address of a form that somebody opened by hand."""
    detail = f"{request.path} does not take {request.method}, only {allowed}."
    if reads_json(request):
        answer: HttpResponse = problem_response(request, status=405, code="method-not-allowed", detail=detail)
    else:
        answer = render(request, "errors/405.html", {"reason": detail}, status=405)
    answer["Allow"] = allowed
    return answer


def too_large(request: HttpRequest, *, limit_bytes: int, setting: str) -> HttpResponse:
    """413: what may be sent at most, and what to do. ``setting`` is the one that raises the limit ("" when there is none)."""
    advice = f"Send less at once, or ask an admin to raise {setting}." if setting else "Send less at once."
    detail = f"A request like this may hold at most {size(limit_bytes)}, and this one holds more. Nothing of it was kept. {advice}"
    if reads_json(request):
        return problem_response(request, status=413, code="too-large", detail=detail)
    return render(request, "errors/413.html", {"reason": detail}, status=413)


def out_of_range(request: HttpRequest, *, size_bytes: int) -> HttpResponse:
    """416: a range of a file that begins behind its end, most often from a download tool that had the whole file already."""
    detail = (
        f"The file has {size_bytes} bytes and the range begins behind them; what you have is whole, or of another file."
    )
    if reads_json(request):
        answer: HttpResponse = problem_response(request, status=416, code="out-of-range", detail=detail)
    else:
        answer = render(request, "errors/416.html", {"reason": detail}, status=416)
    answer["Content-Range"] = f"bytes */{size_bytes}"
    return answer


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    if reads_json(request):
        return problem_response(request, status=403, code="forbidden", detail=_reason(exception) or "Not allowed.")
    return render(request, "errors/403.html", {"reason": _reason(exception)}, status=403)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    if reads_json(request):
        detail = f"There is nothing at {request.path}; /api/docs/ lists every address."
        return problem_response(request, status=404, code="not-found", detail=detail)
    return render(request, "errors/404.html", status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a template without user, session or database, because any of them may be what failed."""
    if reads_json(request):
        detail = "Something broke on our side. The error was written to the server's log."
        return problem_response(request, status=500, code="bug", detail=detail)
    return HttpResponse(_server_error_page(), status=500)


def _server_error_page() -> str:
    try:
        return loader.get_template("errors/500.html").render({})
    except (ValueError, TemplateSyntaxError, TemplateDoesNotExist):
        # The static files were never collected, or a template is broken: say so without either.
        _LOG.exception("the error page itself failed (were the static files collected?)")
        return _PLAINEST


def _reason(exception: Exception) -> str:
    """The sentence our own code gave; library exceptions (whose text is for developers) say nothing."""
    if isinstance(exception, TooManyFieldsSent):
        return f"A form may have at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS} fields, and this one has more."
    if isinstance(exception, TooManyFilesSent):
        return f"A form may send at most {settings.DATA_UPLOAD_MAX_NUMBER_FILES} files at once; send fewer."
    return str(exception) if type(exception).__name__ in ("BadRequest", "PermissionDenied") else ""
