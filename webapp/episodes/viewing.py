"""Whether a person reads transcripts raw or rendered: asked for in the address, remembered in the session."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from webapp.episodes.rendering import VIEWS

_SESSION = "transcript_view"


def view_of(request: HttpRequest) -> str:
    """The view to show, one of VIEWS. One that the address names is kept for the next transcripts."""
    asked = request.GET.get("view", "")
    if asked in VIEWS:
        if request.session.get(_SESSION) != asked:
            request.session[_SESSION] = asked
        return asked
    kept = str(request.session.get(_SESSION, ""))
    return kept if kept in VIEWS else VIEWS[0]


def view_context(request: HttpRequest) -> dict[str, Any]:
    """``view`` and, for the switch, ``views``: each with its address, which keeps everything else of this one."""
    view = view_of(request)
    links = []
    for name in VIEWS:
        query = request.GET.copy()
        query["view"] = name
        links.append({"name": name, "url": f"?{query.urlencode()}", "active": name == view})
    return {"view": view, "views": links}
