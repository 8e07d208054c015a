"""What keeping shows on other pages (see core/panels.py)."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from webapp.accounts.roles import Role, has_role


def import_link(request: HttpRequest, _subject: object) -> SafeString:
    """Above the list of runs, for operators."""
    if not has_role(request.user, Role.OPERATOR):
        return SafeString("")
    return render_to_string("keeping/_import_link.html", request=request)


def menu(request: HttpRequest, _subject: object) -> SafeString:
    """In the account's menu: the disk for everybody who may see runs, retention for admins."""
    if not has_role(request.user, Role.VIEWER):
        return SafeString("")
    return render_to_string("keeping/_menu.html", request=request)
