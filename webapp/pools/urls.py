"""Addresses of pools."""

from __future__ import annotations

from django.urls import path

from webapp.pools import views

app_name = "pools"

urlpatterns = [
    path("", views.pool_list, name="list"),
    path("choose/<int:run_id>/", views.choose, name="choose"),
    path("<int:pool_id>/", views.pool_page, name="page"),
    path("<int:pool_id>/progress/", views.pool_progress, name="progress"),
    path("<int:pool_id>/act/<slug:act>/", views.pool_act, name="act"),
    path("<int:pool_id>/items/<int:item_id>/remove/", views.item_remove, name="item_remove"),
    path("<int:pool_id>/pool.tar", views.download, name="download"),
]
