"""Addresses of pools in the API."""

from __future__ import annotations

from django.urls import path

from webapp.pools import api

urlpatterns = [
    path("pools/", api.Pools.as_view(), name="pools"),
    path("pools/<int:pool_id>/", api.OnePool.as_view(), name="pool"),
    path("pools/<int:pool_id>/environments/", api.PoolItems.as_view(), name="pool_items"),
    path("pools/<int:pool_id>/acts/<slug:act>/", api.PoolAct.as_view(), name="pool_act"),
    path("pools/<int:pool_id>/pool.tar", api.PoolArchive.as_view(), name="pool_archive"),
]
