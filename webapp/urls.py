"""Every address. A feature's pages are under its folder's name; see core/features.py."""

from __future__ import annotations

from django.conf import settings
from django.urls import include, path

from webapp.core import views
from webapp.core.features import has_module

handler400 = "webapp.core.views.bad_request"
handler403 = "webapp.core.views.permission_denied"
handler404 = "webapp.core.views.page_not_found"
handler500 = "webapp.core.views.server_error"

urlpatterns = [
    path("", views.home, name="home"),
    path("healthz", views.healthz, name="healthz"),
    path("design/", views.design_page, name="design"),
    path("about/licences/", views.licences, name="licences"),
    path("palette/", views.palette_list, name="palette"),
    path("accounts/", include("webapp.accounts.urls")),
    *(
        path(f"{name}/", include(f"webapp.{name}.urls"))
        for name in settings.SPADEWORK_FEATURES
        if has_module(f"webapp.{name}.urls")
    ),
]
