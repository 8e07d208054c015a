"""Addresses of reviewing."""

from __future__ import annotations

from django.urls import path

from webapp.review import views, views_admin

app_name = "review"

urlpatterns = [
    path("", views.flag_list, name="list"),
    path("environments/<int:environment_id>/flags/", views.environment_flags, name="environment_flags"),
    path("environments/<int:environment_id>/flag/", views.place_flag, name="place_flag"),
    path("flags/<int:flag_id>/withdraw/", views.withdraw_flag, name="withdraw_flag"),
    path("flags/<int:flag_id>/effect/", views.put_into_effect, name="put_into_effect"),
    path("effects/<int:effect_id>/undo/", views.undo_effect, name="undo_effect"),
    path("kinds/", views_admin.kinds, name="kinds"),
    path("kinds/new/", views_admin.kind, name="new_kind"),
    path("kinds/<int:kind_id>/", views_admin.kind, name="kind"),
    path("kinds/<int:kind_id>/<slug:act>/", views_admin.kind_act, name="kind_act"),
]
