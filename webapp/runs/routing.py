"""Addresses of the sockets."""

from __future__ import annotations

from django.urls import re_path

from webapp.runs.live.consumers import RunConsumer, RunListConsumer

websocket_urlpatterns = [
    re_path(r"^ws/runs/$", RunListConsumer.as_asgi()),
    re_path(r"^ws/runs/(?P<run_id>[0-9]{1,18})/$", RunConsumer.as_asgi()),
]
