"""The web process: HTTP by Django, WebSockets by Channels, one origin for both. Run by uvicorn."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import chain

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Requests run on many threads here: share a few connections instead of opening one per request.
os.environ.setdefault("SPADEWORK_DB_POOL", "8")

from django.core.asgi import get_asgi_application

_http = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings

from webapp.core.features import has_module
from webapp.core.origin import ExactOrigin

_routings = (f"webapp.{name}.routing" for name in settings.SPADEWORK_FEATURES)
websocket_urlpatterns = list(
    chain.from_iterable(import_module(name).websocket_urlpatterns for name in _routings if has_module(name))
)

application = ProtocolTypeRouter(
    {
        "http": _http,
        "websocket": ExactOrigin(
            AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), origins=settings.SPADEWORK_SOCKET_ORIGINS
        ),
    }
)
