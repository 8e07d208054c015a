"""Addresses of the API. Each feature adds its own by a ``urls_api`` module."""

from __future__ import annotations

from django.conf import settings
from django.urls import include, path

from webapp.api import docs, views
from webapp.core.features import has_module

app_name = "api"

urlpatterns = [
    path("docs/", docs.documentation, name="docs"),
    path("v1/schema/", docs.Schema.as_view(), name="schema"),
    path("v1/audit/", views.Audit.as_view(), name="audit"),
    path("v1/me/", views.Me.as_view(), name="me"),
    *(
        path("v1/", include(f"webapp.{name}.urls_api"))
        for name in settings.SPADEWORK_FEATURES
        if has_module(f"webapp.{name}.urls_api")
    ),
]
