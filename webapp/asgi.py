"""The web process: HTTP by Django, WebSockets by Channels, one origin for both. Run by uvicorn."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import chain

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import reverse

from webapp.core.body_limit import BodyLimit
from webapp.core.features import has_module
from webapp.core.origin import ExactOrigin

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Requests run on many threads here: share a few connections instead of opening one per request.
os.environ.setdefault("SPADEWORK_DB_POOL", "8")
FORM_FIELDS_BYTES = 4 * 1024**2  # beside the files of an upload


def _build_application() -> ProtocolTypeRouter:
    # First: loading Django, without which neither the consumers' models nor the settings can be imported.
    http = get_asgi_application()
    routings = (f"webapp.{name}.routing" for name in settings.SPADEWORK_FEATURES)
    patterns = list(
        chain.from_iterable(import_module(name).websocket_urlpatterns for name in routings if has_module(name))
    )
    # Imported late for the same reason: it imports the session models.
    from channels.auth import AuthMiddlewareStack

    sockets = ExactOrigin(AuthMiddlewareStack(URLRouter(patterns)), origins=settings.SPADEWORK_SOCKET_ORIGINS)
    limited = BodyLimit(
        http,
        upload_paths=(reverse("corpora:upload"), reverse("api:corpora")),
        upload_bytes=settings.SPADEWORK_UPLOAD_BYTES + FORM_FIELDS_BYTES,
        other_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
    )
    return ProtocolTypeRouter({"http": limited, "websocket": sockets})


application = _build_application()
