"""Small middlewares of the shell."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils.cache import add_never_cache_headers

from webapp.core.body_limit import TOO_LARGE
from webapp.core.requests import has_nul
from webapp.core.views import bad_request, method_not_allowed, too_large

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class ErrorPages:
    """Says in words what would else be an empty answer: a body above the limit (body_limit.py), a method a page does not take."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        refused = getattr(request, "scope", {}).get(TOO_LARGE)
        if refused is not None:
            limit_bytes, is_upload = refused
            return too_large(request, limit_bytes=limit_bytes, setting="SPADEWORK_UPLOAD_MB" if is_upload else "")
        response = self._get_response(request)
        if response.status_code == 405 and not getattr(response, "content", b"-"):
            return method_not_allowed(request, allowed=response["Allow"])
        return response


class NoNul:
    """Refuses addresses with a NUL character: Postgres takes none, so a lookup by such a text would break instead of finding nothing."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\x00" in request.path or has_nul(request.GET):
            return bad_request(request, BadRequest("The address holds a NUL character; leave it out."))
        return self._get_response(request)


class NoStore:
    """Pages of signed-in people are not kept by the browser: after logging out, "back" must not show them."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if request.user.is_authenticated and not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response


class HtmxLoginRedirect:
    """Sends a whole page to the login form when an htmx fragment needs one.

    htmx would follow the redirect and put the login page inside the fragment's place.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if not request.headers.get("HX-Request") or response.status_code != 302:
            return response
        login_url = resolve_url(settings.LOGIN_URL)
        if not response["Location"].startswith(login_url):
            return response
        answer = HttpResponse(status=204)
        answer["HX-Redirect"] = login_url
        return answer
